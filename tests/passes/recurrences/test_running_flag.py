"""Truth values that are joined over time: how many were true says what they came to."""

import numpy as np
import pytest
from helpers import assert_same, model
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.passes import run_pipeline
from looplift.patterns.graph.values import nodes_within
from tests.passes.places import assert_same_everywhen, everywhere

TEXT = """agraph (int64 n, bool[3] v, bool[9,3] rows, bool w, float[3] x)
    => (bool[3] y, bool[k,3] after, bool[k,3] before, float[k,3] kept) {{
  y, after, before, kept = Loop (n, "", v) <body = l (int64 i, bool ci, bool[3] p) =>
      (bool co, bool[3] q, bool[3] r, bool[3] s, float[3] t) {{
    co = Identity(ci) {body} r = Identity(q) s = Identity(p) h = Neg(x) t = Where(p, x, h) }}>
}}"""
BODIES = {
    "a row": "e = Gather(rows, i) q = {op}(p, e)",
    "a row first, computed": "e = Gather(rows, i) f = Not(e) q = {op}(f, p)",
    "one that stays": "q = {op}(p, w)",
}
SCAN = """agraph (bool[T,2] rows, bool[2] v) => (bool[2] y, bool[T,2] t) {{
  y, t = Scan <num_scan_inputs = 1, body = b (bool[2] p, bool[2] e) => (bool[2] q, bool[2] r) {{
    q = {op}(p, e) r = Identity(q) }}> (v, rows)
}}"""


def feeds(trips: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shape = {"v": (3,), "rows": (9, 3), "w": ()}
    flags = {name: np.array(random.random(extents) < 0.4) for name, extents in shape.items()}
    return {"n": np.array(trips), "x": random.standard_normal(3).astype(np.float32), **flags}


def loops(subject) -> bool:
    return bool({"Loop", "Scan"} & {node.op_type for node in nodes_within(subject.graph)})


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("op", ["Or", "And", "Xor"])
@pytest.mark.parametrize("name", BODIES)
def test_the_loop_goes(name, op, target):
    before = model(TEXT.format(body=BODIES[name].format(op=op)))
    after, (finding,) = run_pipeline(before, target=target)
    assert finding.lifted, finding
    assert f"running {op}" in finding.recurrence
    assert not loops(after)
    for trips in (-1, 0, 1, 2, 9):
        assert_same(before, after, feeds(trips, trips + 1))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["Or", "And", "Xor"]), st.integers(0, 9))
def test_bits(seed, op, trips):
    before = model(TEXT.format(body=BODIES["a row"].format(op=op)))
    for target in ("kernel", "standard"):
        after, _ = run_pipeline(before, target=target)
        assert_same(before, after, feeds(trips, seed))


@pytest.mark.parametrize("op", ["Or", "And", "Xor"])
@pytest.mark.parametrize("rows", [1, 7])
def test_in_a_scan(op, rows):
    before = model(SCAN.format(op=op))
    after, _ = run_pipeline(before, target="standard")
    assert not loops(after)
    random = np.random.default_rng(rows)
    assert_same(before, after, {"rows": random.random((rows, 2)) < 0.5, "v": np.array([True, False])})


SOMEWHERE = """g = Less(v, s) y0, t0 = Loop (M, , g) <body = l (int64 i, bool ci, bool[2] p) => (bool co, bool[2] q, bool[2] r) {
  co = Identity(ci) e = Greater(v, s) q = Or(p, e) r = Identity(q) }> y = Cast<to = 1>(y0) t = Cast<to = 1>(t0)"""


@pytest.mark.parametrize("place", everywhere(SOMEWHERE))
def test_wherever_the_loop_stands(place):
    before = everywhere(SOMEWHERE)[place]
    after, (finding, *_) = run_pipeline(before)
    assert any("running Or" in each.recurrence for each in run_pipeline(before)[1]), finding
    assert_same_everywhen(before, after)


STAYS = {
    "before CumSum": (TEXT.format(body=BODIES["a row"].format(op="Or")), 10, "needs opset 11"),
    "two in a row": (TEXT.format(body="e = Gather(rows, i) u = Or(p, e) q = And(u, w)"), 17, "And of a running Or"),
    "both": (TEXT.format(body="u = Not(p) q = Or(p, u)"), 17, "goes through Not"),
    "wide": (
        TEXT.replace("[3]", "[4000]").replace("9,3", "9,4000").replace("k,3", "k,4000").format(body="q = Or(p, w)"),
        17,
        "so wide a state",
    ),
}


@pytest.mark.parametrize("reason", STAYS)
def test_left_alone_with_the_reason(reason):
    text, opset, words = STAYS[reason]
    after, (finding,) = run_pipeline(model(text, opset))
    assert loops(after)
    assert words in finding.reason

"""Several additions in a row in every iteration: a prefix sum with a step for each."""

import numpy as np
import pytest
from helpers import assert_same, model, ops
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.passes import run_pipeline
from looplift.patterns.graph.values import nodes_within
from tests.passes.places import assert_same_everywhen, everywhere

BODIES = {
    "two that stay": "t = Add(p, a) q = Add(t, b)",
    "a row, and one that stays": "x = Gather(rows, i) t = Add(x, p) q = Sub(t, b)",
    "three": "x = Gather(rows, i) t = Add(p, x) u = Sub(t, a) q = Add(c, u)",
    "a scalar": "t = Add(p, c) q = Add(t, a)",
    "the sum between is stacked": "t = Add(p, a) q = Add(t, b) z = Mul(t, a)",
}
TEXT = """agraph (int64 n, float[3] v, float[3] a, float[3] b, float c, float[9,3] rows)
    => (float[3] y, float[k,3] after, float[k,3] before) {{
  y, after, before = Loop (n, "", v) <body = l (int64 i, bool ci, float[3] p) =>
      (bool co, float[3] q, float[3] r, float[3] s) {{ co = Identity(ci) {body} r = Identity({stacked}) s = Identity(p) }}>
}}"""


def text(name: str) -> str:
    return TEXT.format(body=BODIES[name], stacked="z" if "z = " in BODIES[name] else "q")


def feeds(trips: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    numbers = random.choice(np.array([0.0, -0.0, 1e-45, np.inf, -np.inf, np.nan, 3e38, 0.1, -0.3], np.float32), (9, 3))
    rows = np.where(random.random((9, 3)) < 0.3, numbers, random.standard_normal((9, 3))).astype(np.float32)
    v, a, b = (random.standard_normal(3).astype(np.float32) for _ in range(3))
    return {"n": np.array(trips), "v": v, "a": a, "b": b, "c": np.array(0.7, np.float32), "rows": rows}


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("name", BODIES)
def test_every_addition_is_a_step(name, target):
    before = model(text(name))
    after, (finding,) = run_pipeline(before, target=target)
    assert finding.lifted, finding
    assert not {"Loop", "Scan"} & {node.op_type for node in nodes_within(after.graph)}
    assert ("PrefixSum" in ops(after.graph)) == (target == "kernel")
    for trips in (-1, 0, 1, 2, 9):
        assert_same(before, after, feeds(trips, trips + 1))


SOMEWHERE = """y, t = Loop (M, , v) <body = l (int64 i, bool ci, float[2] p) => (bool co, float[2] q, float[2] r) {
  co = Identity(ci) u = Add(p, s) w = Add(s, u) q = Sub(w, s) r = Identity(q) }>"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("place", everywhere(SOMEWHERE))
def test_wherever_the_loop_stands(place, target):
    before = everywhere(SOMEWHERE)[place]
    after, _ = run_pipeline(before, target=target)
    names = [node.op_type for node in nodes_within(after.graph)]
    names += [node.op_type for function in after.functions.values() for node in nodes_within(function)]
    assert "CumSum" in names or "PrefixSum" in names
    assert_same_everywhen(before, after)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(BODIES)), st.integers(0, 9))
def test_bits(seed, name, trips):
    before = model(text(name))
    for target in ("kernel", "standard"):
        after, _ = run_pipeline(before, target=target)
        assert_same(before, after, feeds(trips, seed))


STAYS = {
    "float16": (TEXT.replace("float", "float16"), 17, "two additions in a row round twice"),
    "before CumSum": (TEXT, 10, "two additions in a row round twice"),
    "a sum negated": (TEXT.replace("{body}", "t = Add(p, a) m = Neg(t) q = Add(m, b)"), 17, "a negated sum"),
    "a product behind": (
        TEXT.replace("{body}", "t = Add(p, a) u = Add(t, b) q = Mul(u, b)"),
        17,
        "a sum is multiplied",
    ),
    "a product before": (TEXT.replace("{body}", "m = Mul(p, a) t = Add(m, b) q = Add(t, a)"), 17, "round twice"),
    "wide": (TEXT.replace("[3]", "[4000]").replace("9,3", "9,4000").replace("k,3", "k,4000"), 17, "so wide a state"),
}


@pytest.mark.parametrize("reason", STAYS)
def test_left_alone_with_the_reason(reason):
    template, opset, words = STAYS[reason]
    before = model(template.format(body=BODIES["two that stay"], stacked="q"), opset)
    after, (finding,) = run_pipeline(before)
    assert "Loop" in ops(after.graph) or "Scan" in ops(after.graph)
    assert words in finding.reason

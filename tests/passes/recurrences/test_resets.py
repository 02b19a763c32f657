"""States that are set now and then: the last value that was set, and integer sums from there on."""

import numpy as np
import pytest
from helpers import assert_same, model
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.passes import run_pipeline
from looplift.patterns.graph.values import nodes_within
from tests.passes.places import assert_same_everywhen, everywhere

TEXT = """agraph (int64 n, {kind}[2] v, {kind}[9,2] rows, {kind}[9,2] other, bool[9] flags)
    => ({kind}[2] y, {kind}[k,2] after, {kind}[k,2] before) {{
  y, after, before = Loop (n, "", v) <body = l (int64 i, bool ci, {kind}[2] p) =>
      (bool co, {kind}[2] q, {kind}[2] r, {kind}[2] s) {{
    co = Identity(ci) x = Gather(rows, i) z = Gather(other, i) f = Gather(flags, i) {body}
    r = Identity(q) s = Identity(p) }}>
}}"""
BODIES = {
    "set or kept": ("float", "q = Where(f, x, p)"),
    "kept or set": ("float", "q = Where(f, p, x)"),
    "set or added to": ("int64", "a = Add(p, x) q = Where(f, z, a)"),
    "added to or set": ("int32", "a = Sub(p, x) b = Add(a, z) q = Where(f, b, x)"),
    "steps that stay": (
        "int64",
        "c = Constant<value = int64[2] {3, -4}>() a = Add(p, c) b = Sub(a, v) q = Where(f, z, b)",
    ),
    "set to what is added": ("int64", "a = Add(x, p) q = Where(f, x, a)"),
    "condition of one element": (
        "double",
        "axes = Constant<value_ints = [0]>() g = Unsqueeze(f, axes) q = Where(g, x, p)",
    ),
}
DTYPES = {"float": np.float32, "double": np.float64, "int64": np.int64, "int32": np.int32}


def text(name: str) -> str:
    kind, body = BODIES[name]
    return TEXT.format(kind=kind, body=body)


def feeds(name: str, trips: int, seed: int, share: float = 0.3) -> dict[str, np.ndarray]:
    random, dtype = np.random.default_rng(seed), DTYPES[BODIES[name][0]]
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        v, rows, other = (random.integers(limits.min, limits.max, s, dtype) for s in ((2,), (9, 2), (9, 2)))
    else:
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5], dtype)
        v, rows, other = (random.choice(special, s) for s in ((2,), (9, 2), (9, 2)))
    return {"n": np.array(trips), "v": v, "rows": rows, "other": other, "flags": random.random(9) < share}


def loops(subject) -> bool:
    return bool({"Loop", "Scan"} & {node.op_type for node in nodes_within(subject.graph)})


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("name", BODIES)
def test_the_loop_goes(name, target):
    before = model(text(name))
    after, (finding,) = run_pipeline(before, target=target)
    assert finding.lifted, finding
    assert not loops(after)
    for trips in (-1, 0, 1, 2, 9):
        for share in (0.0, 0.3, 1.0):
            assert_same(before, after, feeds(name, trips, trips + 1, share))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(BODIES)), st.integers(0, 9), st.floats(0, 1))
def test_bits(seed, name, trips, share):
    before = model(text(name))
    for target in ("kernel", "standard"):
        after, _ = run_pipeline(before, target=target)
        assert_same(before, after, feeds(name, trips, seed, share))


SOMEWHERE = """shape = Constant<value_ints = [9, 2]>() many = Expand(s, shape)
  y, t = Loop (M, , v) <body = l (int64 i, bool ci, float[2] p) => (bool co, float[2] q, float[2] r) {
  co = Identity(ci) three = Constant<value_int = 3>() m = Mod(i, three) nine = Constant<value_int = 9>() k = Mod(i, nine)
  one = Constant<value_int = 1>() f = Equal(m, one) x = Gather(many, k) q = Where(f, x, p) r = Identity(q) }>"""


@pytest.mark.parametrize("place", everywhere(SOMEWHERE))
def test_wherever_the_loop_stands(place):
    before = everywhere(SOMEWHERE)[place]
    after, findings = run_pipeline(before)
    assert any("p: last value, set to 'x' where 'f'" in finding.carries for finding in findings)
    assert_same_everywhen(before, after)


STAYS = {
    "floats added to": ("float", "a = Add(p, x) q = Where(f, z, a)", 17, "which no rule follows"),
    "element by element": (
        "float",
        "zero = Constant<value_float = 0.0>() g = Less(x, zero) q = Where(g, x, p)",
        17,
        "which no rule follows",
    ),
    "a condition on the state": ("int64", "g = Less(p, x) q = Where(g, x, p)", 17, "which no rule follows"),
    "a product": ("int64", "a = Mul(p, x) q = Where(f, z, a)", 17, "which no rule follows"),
    "a value that broadcasts": (
        "float",
        "two = Constant<value_float = 2.0>() k = Mul(x, two) m = ReduceMax<keepdims = 0>(k) q = Where(f, m, p)",
        17,
        "has the shape of the state",
    ),
    "wide": ("float", "q = Where(f, x, p)", 17, "so wide a state"),
    "before CumSum": ("float", "q = Where(f, x, p)", 10, "needs opset 11"),
}


@pytest.mark.parametrize("reason", STAYS)
def test_left_alone_with_the_reason(reason):
    kind, body, opset, words = STAYS[reason]
    wide = "4000" if reason == "wide" else "2"
    subject = TEXT.replace("[2]", f"[{wide}]").replace("9,2]", f"9,{wide}]").replace("k,2]", f"k,{wide}]")
    after, (finding,) = run_pipeline(model(subject.format(kind=kind, body=body), opset))
    assert loops(after)
    assert words in finding.reason

"""Masked steps: a choice between a step and none, or between two steps."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from lifting import assert_equal, lift, loops_left, nodes, parse

from looplift.runtime import Session

LOOP = """agraph ({dtype}[T,3] x, {dtype}[T,3] g, bool[T,1] mask, {dtype}[3] start) => ({dtype}[P] last, {dtype}[R,S] y) {{
  shape = Shape(x)
  zero = Constant<value_int = 0>()
  n = Gather(shape, zero)
  last, y = Loop (n, "", start) <body = b (int64 i, bool ci, h) => (bool co, hn, out) {{
    co = Identity(ci)
    r = Gather(x, i)
    a = Gather(g, i)
    m = Gather(mask, i)
    {body}
    out = Identity(hn)
  }}>
}}"""

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 1.5, -2.25, 0.1], "f")


def feeds(length: int, seed: int, dtype: str = "f", special: bool = False) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return (random.choice(SPECIAL, shape) if special else random.standard_normal(shape) * 3).astype(dtype)

    mask = random.integers(0, 2, (length, 1)).astype(bool)
    return {"x": numbers(length, 3), "g": numbers(length, 3), "mask": mask, "start": numbers(3)}


CASES = {
    "sum": ("s = Add(h, r) hn = Where(m, s, h)", "PrefixSum"),
    "difference, the other way round": ("s = Sub(h, r) hn = Where(m, h, s)", "PrefixSum"),
    "two sums": ("s = Add(h, r) t = Sub(h, a) hn = Where(m, s, t)", "PrefixSum"),
    "decay": ("s = Mul(h, a) hn = Where(m, s, h)", "LinearRecurrence"),
    "average": ("d = Mul(h, a) s = Add(d, r) hn = Where(m, s, h)", "LinearRecurrence"),
    "average or sum": ("d = Mul(h, a) s = Add(d, r) t = Add(h, a) hn = Where(m, s, t)", "LinearRecurrence"),
    "sign": ("s = Neg(h) hn = Where(m, s, h)", "LinearRecurrence"),
    "subtracted from": ("s = Sub(r, h) hn = Where(m, s, h)", "LinearRecurrence"),
}


@pytest.mark.parametrize(("body", "made"), CASES.values(), ids=CASES)
def test_a_masked_step_is_lifted(body, made):
    text = LOOP.format(dtype="float", body=body)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert set(nodes(model)) == {made}
    for seed in range(6):
        assert_equal(parse(text), model, feeds(9, seed), feeds(30, seed, special=True), feeds(0, seed))


@pytest.mark.parametrize(("dtype", "numpy"), [("int64", "i8"), ("uint8", "u1"), ("double", "f8"), ("float16", "f2")])
def test_of_any_type(dtype, numpy):
    text = LOOP.format(dtype=dtype, body="d = Mul(h, a) s = Add(d, r) hn = Where(m, s, h)")
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert_equal(parse(text), model, feeds(9, 1, numpy), feeds(1, 2, numpy))


@pytest.mark.parametrize(
    "body",
    [
        "s = Add(h, r) hn = Where(m, r, s)",  # a reset: 0 * h is not 0 where h is infinite
        "c = Less(h, r) s = Add(h, r) hn = Where(c, s, h)",  # the choice looks at the state
        "s = Add(h, r) t = Add(s, a) hn = Where(m, t, h)",  # two additions round twice
    ],
)
def test_what_stays(body):
    model, _ = lift(LOOP.format(dtype="float", body=body))
    assert loops_left(model) == 1


MINUS_ZERO = """agraph (int64 n, bool[D] m, bool[T] row, float[D] x, float[D] step) => (float[D] v) {{
  off = Not(m)
  offs = Not(row)
  v = Loop (n, "", x) <body = b (int64 i, bool ci, float[D] p) => (bool co, float[D] q) {{
    co = Identity(ci)
    on = Gather(row, i)
    none = Not(on)
    left = Gather(offs, i)
    moved = {op}(p, step)
    q = Where({condition}, {values})
  }}>
}}"""


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize("values", ["moved, p", "p, moved"])
@pytest.mark.parametrize("condition", ["m", "off", "on", "none", "left"])
def test_a_minus_zero_stays_one_in_onnxruntime(condition, values, op):
    """Its Where loses some, of one input or the other by their shapes, and by a Not before it."""
    text = MINUS_ZERO.format(condition=condition, values=values, op=op)
    before, after = parse(text), lift(text)[0]
    assert loops_left(after) == 0
    for told, step in itertools.product((True, False), (0.0, -0.0)):
        feed = {
            "n": np.array(2), "m": np.full(2, told), "row": np.full(4, told),
            "x": np.array([-0.0, -1], "f"), "step": np.array([step, step], "f"),
        }  # fmt: skip
        right = Session(before, "numpy").run(None, feed)[0]
        for level in (
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
            onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        ):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = level
            run = onnxruntime.InferenceSession(ir.to_proto(after).SerializeToString(), options)
            got = run.run(None, {value.name: feed[value.name] for value in run.get_inputs()})[0]
            assert got.tobytes() == right.tobytes()

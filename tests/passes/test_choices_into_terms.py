"""Masked steps: a choice between a step and none, or between two steps."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, lift, loops_left, nodes, parse

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
        "hn = Where(m, r, h)",
    ],
)
def test_what_stays(body):
    model, _ = lift(LOOP.format(dtype="float", body=body))
    assert loops_left(model) == 1

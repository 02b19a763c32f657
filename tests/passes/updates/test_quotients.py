"""Division by powers of two is multiplication, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, lift, loops_left, nodes

LOOP = """
agraph ({type}[N] x, int64 n) => ({type}[N] v) {{
  v = Loop (n, "", x) <body = b (int64 i, bool ci, {type}[N] p) => (bool co, {type}[N] u)
    <float by = {{{by}}}, float add = {{{add}}}> {{
    co = Identity(ci) c = Cast<to = {to}>(by) s = Cast<to = {to}>(add) h = Div({quotient}) u = Add(h, s) }}>
}}"""
TYPES = {"float": 1, "int32": 6, "float16": 10, "double": 11}


def loop(kind, by, add, quotient="p, c"):
    return LOOP.format(type=kind, to=TYPES[kind], by=by, add=add, quotient=quotient)


def numbers(dtype):
    bits = np.random.default_rng(0).integers(0, 256, 4000 * np.dtype(dtype).itemsize, np.uint8)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -3], dtype)
    return np.concatenate([special, bits.view(dtype), np.finfo(dtype).smallest_subnormal * np.arange(9, dtype=dtype)])


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("double", np.float64), ("float16", np.float16)])
@pytest.mark.parametrize("by", ["2", "-4", "0.5", "0.0078125"])
def test_powers_of_two(kind, dtype, by):
    text = loop(kind, by, "-0.0")
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert nodes(model) == ["LinearRecurrence"]
    for n in (0, 1, 7, 40):
        assert_equal(text, model, {"x": numbers(dtype), "n": np.array(n)})


@pytest.mark.parametrize(
    ("kind", "by", "quotient"),
    [
        ("float", "3", "p, c"),
        ("float", "2", "c, p"),
        ("float", "0", "p, c"),
        ("float", "1.7014118e38", "p, c"),  # 2^127, whose reciprocal is subnormal
        ("int32", "2", "p, c"),
    ],
)
def test_other_quotients_stay(kind, by, quotient):
    model, _ = lift(loop(kind, by, "1", quotient))
    assert loops_left(model) == 1

"""Loops whose exit test is made of constants run as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, lift, loops_left, nodes

TIME = """
agraph (float[4] x{inputs}) => (float[4] v, float at) <{constants}, bool true = {{1}}> {{
  v, at = Loop ({trips}, {cond}, x, {start}) <body = b (int64 i, bool ci, float[4] p, {type} t) => (bool co, float[4] q, {type} u)
    <float s = {{0.1}}> {{
    q = Add(p, s)
    {body} }}>
}}"""


def time(body, constants, start="t0", trips='""', cond="true", inputs="", kind="float"):
    text = TIME.format(body=body, constants=constants, start=start, trips=trips, cond=cond, inputs=inputs, type=kind)
    return text.replace("float at", f"{kind} at")


FLOAT = "float t0 = {0}, float dt = {0.1}, float end = {1}"
STEP = "u = Add(t, dt) co = Less(u, end)"
X = np.array([0.5, -1, 3, 100], np.float32)


@pytest.mark.parametrize(
    ("body", "constants", "kind", "number"),
    [
        (STEP, FLOAT, "float", 10),  # ten times 0.1 is 1.0000001 in float, 0.9999999999999999 in double
        (STEP, FLOAT.replace("float", "double"), "double", 11),
        ("u = Mul(t, dt) co = Less(u, end)", "int64 t0 = {1}, int64 dt = {3}, int64 end = {1000}", "int64", 7),
        ("k = Mul(i, i) co = Less(k, end) u = Identity(t)", "int64 t0 = {1}, int64 end = {50}", "int64", 9),
        ("u = Neg(t) k = Less(u, t) co = Not(k)", "float t0 = {-1}", "float", 2),
    ],
    ids=["float", "double", "powers", "squares", "signs"],
)
def test_constant_tests(body, constants, kind, number):
    text = time(body, constants, kind=kind)
    model, (finding,) = lift(text)
    assert f"counted {number} iterations before its exit test, made of constants, fails" in finding.actions
    assert_equal(text, model, {"x": X})


def test_lifted():
    model, _ = lift(time(STEP, FLOAT))
    assert loops_left(model) == 0
    assert nodes(model) == ["AddStep", "AddStep"]


@pytest.mark.parametrize("n", [-1, 0, 3, 11, 30])
def test_other_bounds_stay(n):
    text = time(STEP, FLOAT, trips="n", cond="c", inputs=", int64 n, bool c")
    model, _ = lift(text)
    assert loops_left(model) == 0
    for c in (True, False):
        assert_equal(text, model, {"x": X, "n": np.array(n), "c": np.array(c)})


def test_a_smaller_constant_bound():
    text = time(STEP, FLOAT + ", int64 n = {4}", trips="n")
    model, _ = lift(text)
    assert loops_left(model) == 0
    assert_equal(text, model, {"x": X})


@pytest.mark.parametrize(
    ("body", "constants", "start", "inputs"),
    [
        (STEP, FLOAT.replace("float t0 = {0}, ", ""), "t0", ", float t0"),
        (STEP, FLOAT.replace(", float end = {1}", ""), "t0", ", float end"),
        ("u = Add(t, dt) m = ReduceSum<keepdims=0>(q) co = Less(m, end)", FLOAT, "t0", ""),
        (STEP, FLOAT.replace("{0.1}", "{0.00001}"), "t0", ""),  # too long to try
    ],
    ids=["start", "bound", "state", "long"],
)
def test_what_is_not_constant_stays(body, constants, start, inputs):
    model, _ = lift(time(body, constants, start=start, inputs=inputs))
    assert loops_left(model) == 1

"""Numbers that wrap in a narrow type, and shapes that a body declares wrong: no pass may believe them."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, lift, parse

from looplift.passes import run_pipeline

WRAPPING = """agraph (float[5,2] x, int64 n) => (float[5,2] y)
    <int32 big = {1073741824}, int32 zero = {0}, int64 first = {0}, int64[2] one = {1, 1}, int64[2] row = {1, 2}> {
  y = Loop (n, "", x) <body = b (int64 i, bool c, float[5,2] p) => (bool co, float[5,2] r) {
    co = Identity(c)
    i32 = Cast<to = 6>(i)
    t = Mul(i32, big)
    below = Less(t, zero)
    j = Where(below, first, i)
    k = Reshape(j, one)
    f = Cast<to = 1>(i)
    v = Expand(f, row)
    r = ScatterND(p, k, v)
  }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_a_test_of_a_number_that_wraps_is_not_settled(target):
    lifted, _ = lift(WRAPPING, target=target)
    x = np.arange(10, dtype="f").reshape(5, 2)
    assert_equal(WRAPPING, lifted, *({"x": x, "n": np.array(n)} for n in (0, 1, 2, 5)))


GRID = """agraph (float[T,5] x, float[T,1] rows) => (float[T,5] y)
    <int64 n = {5}, int64 zero = {0}, int64 one = {1}, int64[1] last = {1}, int64[3] single = {1, 1, 1}> {
  shape = Shape(x)
  limit = Gather(shape, zero)
  numbers = Range(zero, limit, one)
  narrow = Cast<to = TYPE>(numbers)
  wide = Cast<to = 7>(narrow)
  column = Unsqueeze(wide, last)
  lane = Unsqueeze(column, last)
  y = Loop (n, "", x) <body = b (int64 i, bool c, float[T,5] p) => (bool co, float[T,5] r) {
    co = Identity(c)
    all = Shape(lane)
    k = Reshape(i, single)
    ks = Expand(k, all)
    indices = Concat<axis = -1>(lane, ks)
    f = Cast<to = 1>(i)
    v = Add(rows, f)
    r = ScatterND(p, indices, v)
  }>
}"""


@pytest.mark.parametrize(("kind", "follows"), [(7, True), (6, True), (2, False), (3, False), (9, False), (10, False)])
def test_a_lane_that_a_narrow_type_wraps_is_not_the_whole_axis(kind, follows):
    text = GRID.replace("TYPE", str(kind))
    lifted, findings = lift(text)
    assert findings[0].lifted == follows
    feed = {"x": np.zeros((300, 5), "f"), "rows": np.arange(300, dtype="f").reshape(300, 1)}
    assert_equal(text, lifted, feed)


GROWS = """agraph (float[2] x) => (int64 count) <int64 m = {20}, int64 zero = {0}, int64 one = {1}, int64 limit = {30}, bool yes = {1}> {
  y, count = Loop (m, yes, x, zero) <body = b (int64 i, bool c, float[2] p, int64 k) => (bool co, float[2] r, int64 l) {
    l = Add(k, one)
    r = Concat<axis = 0>(p, p)
    shape = Shape(SOURCE)
    extent = Gather(shape, zero)
    co = Less(extent, limit)
  }>
}"""


@pytest.mark.parametrize("source", ["p", "r"])
def test_a_shape_that_a_loop_body_declares_wrong_settles_no_exit_test(source):
    text = GROWS.replace("SOURCE", source)
    result, _ = run_pipeline(parse(text))  # onnx.checker does not accept the original either
    assert_equal(text, result, {"x": np.ones(2, "f")})

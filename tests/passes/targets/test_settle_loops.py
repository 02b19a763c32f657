"""What engines want of the loops that stay."""

import numpy as np
import pytest
from helpers import assert_same, find, model

from looplift.passes import run_pipeline

GROWS = """agraph (int64 n, bool flag, float[2] x) => (float[k,2] y, int64[j] t) {
  none = Constant<value = float[0,2] {}>()
  y, t = Loop (n, flag, none) <body = b (int64 i, bool c, float[m,2] p) => (bool d, float[mm,2] q, int64 r) {
    d = Identity(flag) row = Unsqueeze<axes = [0]>(x) q = Concat<axis = 0>(p, row) r = NonZeros
  }>
}"""


@pytest.mark.parametrize("opset", [8, 10, 11])
def test_a_loop_that_carries_nothing(opset):
    """Loop-1 has one carried value at least."""
    element = "e = Gather(many, i) r = Cast<to = 7>(e) d = Less(e, limit)"
    text = GROWS.replace("d = Identity(flag)", "").replace("r = NonZeros", element)
    text = text.replace("float[2] x)", "float[2] x, float[9] many, float limit)")
    before = model(text, opset)
    after, _ = run_pipeline(before)
    assert len(find(after, "Loop").inputs) == (3 if opset < 11 else 2)
    for trips, flag in ((0, True), (2, True), (3, False)):
        feed = {"n": np.array(trips), "flag": np.array(flag), "x": np.ones(2, np.float32)}
        assert_same(before, after, {**feed, "many": np.arange(9, dtype=np.float32), "limit": np.array(1.5, np.float32)})


COND = """agraph (int64 n, float[1] a, float[2] v) => (float[2] y) {
  zero = Constant<value_float = 0.0>() two = Constant<value_int = 2>()
  z = Loop (two, "", zero) <body = f (int64 j, bool e, u) => (bool g, w) { g = Identity(e) w = Identity(u) }>
  test = Equal(z, a)
  y = Loop (n, test, v) <body = b (int64 i, bool c, float[2] p) => (bool d, float[2] q) {
    d = Identity(c) m = Tanh(p) q = Mul(m, m)
  }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_a_cond_whose_rank_is_known_at_last(target):
    """Once 'z' is a constant, 'test' is known to be a vector of one, and the body wants a scalar."""
    before = model(COND)
    after, _ = run_pipeline(before, target=target)
    for a in (0.0, 1.0):
        feed = {"n": np.array(3), "a": np.array([a], np.float32), "v": np.ones(2, np.float32)}
        assert_same(before, after, feed)

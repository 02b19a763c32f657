"""What PyTorch's exporter writes around recurrences: batch first, with extents that only the inputs know."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, lift, loops_left, nodes, parse

CONSTANTS = """
  zero = Constant<value_ints = [0]>()
  one = Constant<value_ints = [1]>()
  top = Constant<value_ints = [9223372036854775807]>()
  s0 = Constant<value_int = 0>()
  s1 = Constant<value_int = 1>()
  s2 = Constant<value_int = 2>()
  shape = Shape(x)
  batch = Gather(shape, s0)
  time = Gather(shape, s1)
  whole = Slice(x, zero, top, zero, one)
  first = Gather<axis = 1>(whole, s0)
  start = Shape(first)
  state = ConstantOfShape(start)
"""
BATCH_FIRST = f"""agraph (float[B,T,3] x) => (float[R,S,D] y, float[P,Q] last) {{{{ {CONSTANTS}
  {{outside}}
  last, s = Loop (time, "", state) <body = b (int64 i, bool ci, h) => (bool co, hn, so) {{{{
    co = Identity(ci)
    all = Slice(x, zero, top, zero, one)
    r = Gather<axis = 1>(all, i)
    {{body}}
    so = Identity(hn)
  }}}}>
  y = Transpose<perm = [1, 0, 2]>(s)
}}}}"""


def feeds(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(sum(shape)).standard_normal(shape).astype("f")}


RUNS = [feeds(2, 7, 3), feeds(1, 1, 3), feeds(3, 2, 3), feeds(1, 9, 3)]

BODIES = {
    "running sum": ("", "hn = Add(h, r)", ["PrefixSum"]),
    "average": ("a = Constant<value_float = 0.9>()", "m = Mul(h, a) hn = Add(m, r)", ["LinearRecurrence"]),
    "gate of the input": ("", "g = Sigmoid(r) t = Tanh(r) m = Mul(g, h) hn = Add(m, t)", ["LinearRecurrence"]),
}


@pytest.mark.parametrize(("outside", "body", "made"), BODIES.values(), ids=BODIES)
def test_batch_first(outside, body, made):
    text = BATCH_FIRST.format(outside=outside, body=body)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert sorted(set(nodes(model))) == made
    for run in RUNS:
        assert_equal(parse(text), model, run)

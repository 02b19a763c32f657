"""Loops over the rows of a tensor that was split into a sequence."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import apply, assert_same, model, ops
from lifting import assert_equal, lift, loops_left, parse

from looplift.passes.stack.read_split_rows import ReadSplitRows

SPLIT = """agraph (float[B,T,3] x, int64 shift, int64 part) => (float[R,P,Q] y) {{
  one = Constant<value_int = 1>()
  two = Constant<value_int = 2>()
  ones = Constant<value_ints = [1, 1]>()
  start = Constant<value = float[1,1,1] {{0}}>()
  rows = SplitToSequence<axis = {axis}, keepdims = {keepdims}>(x{split})
  length = SequenceLength(rows)
  {outside}
  y = Loop (length, "", start) <body = b (int64 i, bool ci, h) => (bool co, hn) {{
    co = Identity(ci)
    k = Sub(i, shift)
    row = SequenceAt(rows, k)
    hn = Add(h, row)
  }}>
}}"""


def split(split: str = "", axis: int = 1, keepdims: int = 1, outside: str = "") -> str:
    return SPLIT.format(split=split, axis=axis, keepdims=keepdims, outside=outside)


def feeds(shift: int, *shape: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(7).standard_normal(shape).astype("f")
    return {"x": x, "shift": np.array(shift), "part": np.array(1)}


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("lengths", ["", ", one"])
def test_rows_are_read_from_the_tensor(axis, keepdims, lengths):
    before = model(split(lengths, axis, keepdims))
    after = apply(before, ReadSplitRows())
    assert not {"SequenceAt", "SequenceLength"} & set(ops(after.graph))
    # 0: in order; 1: from the end, negative; 9: out of range, which fails; and no rows at all
    for run in (feeds(0, 2, 4, 3), feeds(1, 2, 4, 3), feeds(9, 2, 4, 3), feeds(0, 1, 1, 1)):
        assert_same(before, after, run)


@pytest.mark.parametrize(
    "text",
    [
        split(", two"),  # parts of length two
        split(", part"),  # of a length that only the caller knows
        split(", ones"),  # two parts, or it fails
        split(outside="again = Identity(rows) other = SequenceLength(again)"),
        split().replace("row = SequenceAt(rows, k)", "row = Identity(start)").replace("(length,", "(part,"),
    ],
)
def test_other_sequences_stay(text):
    apply(model(text), ReadSplitRows(), expect=False)


def test_a_running_sum_over_unbound_rows_is_lifted():
    text = """agraph (float[B,T,3] x) => (float[R,P,Q] y) {
      one = Constant<value_int = 1>()
      zero = Constant<value_int = 0>()
      rows = SplitToSequence<axis = 1, keepdims = 0>(x, one)
      n = SequenceLength(rows)
      first = Gather<axis = 1>(x, zero)
      like = Shape(first)
      start = ConstantOfShape(like)
      last, y = Loop (n, "", start) <body = b (int64 i, bool ci, h) => (bool co, hn, out) {
        co = Identity(ci)
        row = SequenceAt(rows, i)
        hn = Add(h, row)
        out = Identity(hn)
      }>
    }"""
    lifted, findings = lift(text)
    assert loops_left(lifted) == 0, findings
    for shape in ((2, 5, 3), (1, 1, 3)):
        assert_equal(parse(text), lifted, {"x": feeds(0, *shape)["x"]})

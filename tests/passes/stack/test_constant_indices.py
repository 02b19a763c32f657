"""Indices that are computed in many steps from the iteration number, and rows that are written element by element."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, count, lift, loops_left

READ = """
agraph (float[8, 4] x) => (float[4] v) <int64 trips = {{{trips}}}, float[4] zeros = {{0, 0, 0, 0}}> {{
  v = Loop (trips, "", zeros) <body = b (int64 i, bool ci, float[4] h) => (bool co, float[4] hn)
    <int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}}, int64 seven = {{7}}, float half = {{0.5}}> {{
    co = Identity(ci)
    {index}
    r = Gather(x, k) g = Mul(h, half) hn = Add(g, r) }}>
}}"""
INDICES = {
    "clamped": "a = Add(i, three) b = Sub(a, three) c = Max(b, one) d = Sub(c, one) e = Min(d, seven) k = Max(e, d)",
    "clamped so that it counts no more": "a = Add(i, three) b = Mul(a, two) k = Min(b, seven)",
    "strided": "a = Add(i, one) b = Mul(a, two) c = Min(b, seven) d = Sub(c, one) k = Max(d, one)",
    "always the same": "a = Sub(i, seven) b = Max(a, three) c = Min(b, three) k = Identity(c)",
    "backwards": "a = Add(i, one) b = Sub(seven, a) c = Max(b, one) d = Min(c, seven) k = Identity(d)",
}


@pytest.mark.parametrize("trips", [1, 3, 7])
@pytest.mark.parametrize("index", INDICES)
def test_reads(index, trips):
    text = READ.format(index=INDICES[index], trips=trips)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert_equal(text, model, {"x": np.random.default_rng(trips).standard_normal((8, 4)).astype(np.float32)})


def test_an_index_that_counts_is_the_row():
    model, _ = lift(READ.format(index="a = Add(i, three) b = Sub(a, three) c = Max(b, i) k = Min(c, seven)", trips=8))
    assert "Gather" not in count(model)


WRITE = """
agraph (float[5, 4] x) => (float[{rows}, {columns}] y) <int64 trips = {{5}}, float[4] zeros = {{0, 0, 0, 0}}> {{
  shape = Constant<value_ints = [{rows}, {columns}]>() out = ConstantOfShape(shape)
  v, y = Loop (trips, "", zeros, out)
    <body = b (int64 i, bool ci, float[4] h, float[R, C] o) => (bool co, float[4] hn, float[R, C] on)
    <int64 two = {{2}}, int64 zero = {{0}}, int64 step = {{1}}, int64[1] last = {{1}}, int64[2] grid = {{4, 1}},
     int64[4] columns = {{{order}}}> {{
    co = Identity(ci)
    r = Gather(x, i) hn = Add(h, r)
    a = Add(i, two) b = Sub(a, two) c = Max(b, zero) row = {row}
    rows = Expand(row, grid) columns1 = Unsqueeze(columns, last) at = Concat<axis = 1>(rows, columns1)
    on = ScatterND(o, at, hn) }}>
}}"""


def write(rows=5, columns=4, order="0, 1, 2, 3", row="Identity(c)"):
    return WRITE.format(rows=rows, columns=columns, order=order, row=row)


X = {"x": np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)}


@pytest.mark.parametrize(("rows", "row"), [(5, "Identity(c)"), (9, "Add(c, two)"), (9, "Mul(c, two)")])
def test_rows_written_element_by_element(rows, row):
    text = write(rows, row=row)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert_equal(text, model, X)


@pytest.mark.parametrize(
    "text",
    [write(order="3, 2, 1, 0"), write(columns=6), write(order="0, 0, 1, 2"), write(row="Identity(two)")],
    ids=["in another order", "part of a row", "one twice", "one row over and over"],
)
def test_what_is_no_row_of_its_own(text):
    model, _ = lift(text)
    assert loops_left(model) == 1
    assert_equal(text, model, X)

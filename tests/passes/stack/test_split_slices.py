"""Slices of several axes at once, and the starts that exporters write for them."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, count, lift, loops_left, nodes

READ = """
agraph ({signature}) => (float[4] v) <float[4] zeros = {{0, 0, 0, 0}}, int64 eight = {{8}}, bool true = {{1}}> {{
  v = Loop ({trips}, true, zeros) <body = b (int64 i, bool ci, float[4] h) => (bool co, float[4] hn)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64 none = {{0}}, int64 extent = {{8}}, int64 last = {{7}},
     int64[2] sizes = {{{sizes}}}, int64[2] axes = {{{axes}}}, float half = {{0.5}}> {{
    co = Identity(ci)
    {index}
    row = Unsqueeze(k, zero)
    starts = Concat<axis = 0>({starts})
    ends = Add(starts, sizes)
    cut = Slice(x, starts, ends, axes)
    r = Squeeze(cut, {squeezed})
    g = Mul(h, half) hn = Add(g, r) }}>
}}"""
FORWARD = "k = Identity(i)"
WRAPPED = "is_negative = Less(i, none) behind = Add(i, extent) k = Where(is_negative, behind, i)"
NARROW = (
    "n = Cast<to = 6>(i) z = Cast<to = 6>(none) e = Cast<to = 6>(extent) is_negative = Less(n, z) behind = Add(n, e) "
    "w = Where(is_negative, behind, n) k = Cast<to = 7>(w)"
)
BACKWARD = "b = Sub(last, i) is_negative = Less(b, none) behind = Add(b, extent) k = Where(is_negative, behind, b)"
STATIC, DYNAMIC = "float[8, 4] x", "float[T, 4] x, int64 n"


def read(
    index=FORWARD, signature=STATIC, trips="eight", axes="0, 1", sizes="1, 4", starts="row, zero", squeezed="zero"
):
    return READ.format(**locals())


def x(rows=8, columns=4):
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("index", [FORWARD, WRAPPED, NARROW, BACKWARD], ids=["i", "wrapped", "int32", "backward"])
def test_rows_of_all_columns(index):
    text = read(index)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert nodes(model) == ["LinearRecurrence"]
    assert_equal(text, model, {"x": x()})


def test_rows_of_some_columns():
    text = read(WRAPPED, signature="float[8, 6] x", starts="row, one")
    model, _ = lift(text)
    assert loops_left(model) == 0
    assert_equal(text, model, {"x": x(columns=6)})


def test_columns():
    text = read(WRAPPED, signature="float[4, 8] x", axes="1, 0", starts="row, zero", squeezed="one")
    model, _ = lift(text)
    assert loops_left(model) == 0
    assert_equal(text, model, {"x": x(4, 8)})


def test_as_many_rows_as_asked_for():
    text = read(WRAPPED, signature=DYNAMIC, trips="n")
    model, _ = lift(text)
    assert loops_left(model) == 0
    assert_equal(text, model, *({"x": x(rows), "n": np.array(n)} for rows, n in [(5, 5), (5, 2), (3, 0)]))


def test_rows_counted_from_the_end():
    """Backwards from row 7 of a tensor of unknown length for an unknown number of times: 0 is passed."""
    text = read(BACKWARD.replace("k = Where(is_negative, behind, b)", "k = Identity(b)"), signature=DYNAMIC, trips="n")
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert_equal(text, model, *({"x": x(rows), "n": np.array(n)} for rows, n in [(8, 8), (12, 8), (9, 3), (3, 0)]))


@pytest.mark.parametrize(
    "index",
    [
        "b = Sub(i, last) is_negative = Less(b, none) behind = Add(b, extent) k = Where(is_negative, behind, b)",
        "two = Add(one, one) three = Add(two, one) t = Squeeze(three) early = Less(i, t) later = Add(i, t) "
        "k = Where(early, later, i)",
    ],
    ids=["negative at first", "another test"],
)
def test_an_index_that_is_not_always_the_same_branch(index):
    text = read(index)
    model, _ = lift(text)
    assert_equal(text, model, {"x": x()})


def test_two_axes_that_move():
    text = read(starts="row, row", sizes="1, 1", signature="float[8, 8] x")
    model, _ = lift(text)
    assert_equal(text, model, {"x": x(8, 8)})


@pytest.mark.parametrize(("bound", "rows"), [(0, "identity"), (3, "some twice")])
def test_an_index_is_known_only_if_its_branch_is(bound, rows):
    text = f"""
agraph (float[8, 4] x) => (float[8, 4] y) <int64 eight = {{8}}> {{
  y = Loop (eight, "") <body = b (int64 i, bool ci) => (bool co, float[4] r)
    <int64 bound = {{{bound}}}, int64 three = {{3}}> {{
    co = Identity(ci)
    early = Less(i, bound) later = Add(i, three) k = Where(early, later, i)
    r = Gather(x, k) }}>
}}"""
    model, _ = lift(text)
    assert ("Gather" in count(model)) == (rows != "identity")
    assert_equal(text, model, {"x": x()})

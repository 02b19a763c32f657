"""What PyTorch's exporter writes around recurrences: batch first, with extents that only the inputs know."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, count, lift, loops_left, nodes, parse

from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError

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
"""
BATCH_FIRST = f"""agraph (float[B,T,3] x) => (float[R,S,D] y, float[P,Q] last) {{{{ {CONSTANTS}
  state = ConstantOfShape(start)
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


def narrow(end: str = "s1", step: str = "") -> str:
    """x[:, i : i + 1].squeeze(1), which PyTorch exports as a choice by the extent."""
    return f"""i1 = Unsqueeze(i, zero)
    j = Add(i, {end})
    j1 = Unsqueeze(j, zero)
    wide = Slice(x, i1, j1, one{step})
    size = Shape(wide)
    extent = Gather(size, s1)
    is_one = Equal(extent, s1)
    r1 = If (is_one) <
      then_branch = t () => (squeezed) {{ squeezed = Squeeze(wide, one) }},
      else_branch = e () => (as_is) {{ as_is = Identity(wide) }}
    >"""


LAYER = """table = Constant<value = float[3,3] {0, 2, 0, 4, 0, 0, 0, 0, 8}>()
  bias = Constant<value_floats = [0.5, 1.0, 2.0]>()"""
VIEWS = """rows = Constant<value_ints = [-1, 1, 3]>()
  rest = Constant<value_ints = [-1]>()
  b1 = Unsqueeze(batch, zero)
  flat = Concat<axis = 0>(b1, rest)"""

MORE = {
    "squeezed slice": ("", narrow() + " hn = Add(h, r1)"),
    "squeezed slice with a step": ("", narrow(step=", one") + " hn = Add(h, r1)"),
    "linear layer": (LAYER, "p = Gemm<transB = 1>(r, table, bias) g = Sigmoid(p) m = Mul(g, h) hn = Add(m, r)"),
    "two views": (VIEWS, "q = Reshape(r, rows) d = Reshape(q, flat) hn = Add(h, d)"),
}


@pytest.mark.parametrize(("outside", "body"), MORE.values(), ids=MORE)
def test_batch_first_with_extents_that_change_on_the_way(outside, body):
    text = BATCH_FIRST.format(outside=outside, body=body)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    for run in RUNS:
        assert_equal(parse(text), model, run)


def test_a_squeeze_of_an_axis_of_unknown_extent_stays_a_choice():
    """Reading one row further than there are: the slice may be empty, which the If lets pass."""
    body = narrow(end="s2") + " hn = Add(h, r1)"
    model, _ = lift(BATCH_FIRST.format(outside="", body=body))
    assert loops_left(model) == 1


CHUNKS = """agraph (float[B,T,3] x) => (float[R,S,D] y, float[P,Q,U] last) {{ {constants}
  state = Unsqueeze(first, one)
  empty = SequenceEmpty()
  last, s = Loop (time, "", state, empty) <body = b (int64 i, bool ci, h, list) => (bool co, hn, longer) {{
    co = Identity(ci)
    i1 = Unsqueeze(i, zero) j = Add(i, s1) j1 = Unsqueeze(j, zero) r = Slice(x, i1, j1, one, one)
    hn = Add(h, r)
    longer = SequenceInsert(list, hn)
  }}>
  y = ConcatFromSequence<axis = {axis}>(s)
}}"""


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_list_of_rows_that_are_concatenated(axis):
    text = CHUNKS.format(constants=CONSTANTS, axis=axis)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    for run in RUNS:
        assert_equal(parse(text), model, run)


GRID = """agraph (float[B,T,3] x, int64 rows) => (float[P,Q,U] y) {{ {constants}
  {written}
  state = ConstantOfShape(start)
  last, y = Loop (time, "", state, out) <body = b (int64 i, bool ci, h, o) => (bool co, hn, filled) {{
    co = Identity(ci)
    r = Gather<axis = 1>(x, i)
    hn = Add(h, r)
    size = Shape(o)
    batch_o = Gather(size, s0)
    every = Range(s0, batch_o, s1)
    down = Constant<value_ints = [-1, 1]>()
    column = Reshape(every, down)
    k = {index}
    k1 = Unsqueeze(k, zero)
    laid = Add(column, k1)
    grid = Shape(laid)
    {wild}
    b_grid = Expand(column, target)
    t_grid = Expand(k1, target)
    behind = Constant<value_ints = [-1]>()
    b_index = Unsqueeze(b_grid, behind)
    t_index = Unsqueeze(t_grid, behind)
    indices = Concat<axis = -1>({order})
    rest = Slice(size, two, top, zero)
    row_shape = Concat<axis = 0>(grid, rest)
    row = Reshape(hn, row_shape)
    filled = ScatterND(o, indices, row)
  }}>
}}"""
AS_IS = "target = Identity(grid)"
WILD = """rank = Shape(grid)
    ones = ConstantOfShape<value = int64[1] {1}>(rank)
    minus = Constant<value_int = -1>()
    wild = Mul(ones, minus)
    is_wild = Equal(grid, wild)
    target = Where(is_wild, ones, grid)"""
ALIKE = "two = Constant<value_ints = [2]>() out = ConstantOfShape(shape)"
LARGER = """two = Constant<value_ints = [2]>() b1 = Unsqueeze(batch, zero) r1 = Unsqueeze(rows, zero)
  rest = Slice(shape, two, top, zero) size_out = Concat<axis = 0>(b1, r1, rest) out = ConstantOfShape(size_out)"""


def columns(written=ALIKE, index="Identity(i)", wild=WILD, order="b_index, t_index") -> str:
    return GRID.format(constants=CONSTANTS, written=written, index=index, wild=wild, order=order)


@pytest.mark.parametrize("text", [columns(), columns(wild=AS_IS)])
def test_columns_that_fill_a_tensor_are_the_stack(text):
    model, findings = lift(text)
    assert (loops_left(model), count(model).get("ScatterND", 0)) == (0, 0), findings
    for run in RUNS:
        assert_equal(parse(text), model, {**run, "rows": np.array(0)})


@pytest.mark.parametrize(("index", "spare"), [("Identity(i)", 4), ("Add(i, s2)", 3), ("Mul(i, s2)", 9)])
def test_columns_written_into_a_larger_tensor(index, spare):
    text = columns(LARGER, index)
    model, findings = lift(text)
    assert (loops_left(model), count(model).get("ScatterND", 0)) == (0, 1), findings
    for run in RUNS:
        assert_equal(parse(text), model, {**run, "rows": np.array(run["x"].shape[1] + spare)})


def test_columns_past_the_end_fail_as_before():
    text = columns(LARGER)
    model, _ = lift(text)
    for subject in (parse(text), model):
        with pytest.raises(LoopliftError):
            Session(subject, device="numpy").run(None, {**feeds(2, 7, 3), "rows": np.array(6)})


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize(("index", "rows"), [("Identity(i)", 3), ("Mul(i, s2)", 0), ("Identity(i)", 7)])
def test_columns_without_elements_are_written_nowhere(index, rows, opset):
    """The loop looks at no index then, in range or not."""
    text = columns(LARGER, index)
    model, findings = lift(text, opset)
    assert loops_left(model) == 0, findings
    for shape in ((0, 7, 3), (0, 1, 3)):
        assert_equal(parse(text, opset), model, {**feeds(*shape), "rows": np.array(rows)})


@pytest.mark.parametrize(
    "text",
    [
        columns(index="Mul(i, s0)"),  # one column, again and again
        columns(LARGER, index="Neg(i)"),  # from the end, in an order that only the extent tells
        columns(order="t_index, b_index"),  # rows, at the places of the columns
        columns().replace("every = Range(s0, batch_o, s1)", "ev = Range(s0, batch_o, s1) every = Mul(ev, s0)"),
    ],
)
def test_writes_that_are_no_column_of_their_own_stay(text):
    model, _ = lift(text)
    assert loops_left(model) == 1


def layer(k: int, source: str, result: str) -> str:
    """A running average over the rows of `source`, batch first, gathered in a list."""
    return f"""
  whole{k} = Slice({source}, zero, top, zero, one)
  first{k} = Gather<axis = 1>(whole{k}, s0)
  gate{k} = Sigmoid({source})
  start{k} = Shape(first{k})
  state{k} = ConstantOfShape(start{k})
  shape{k} = Shape({source})
  time{k} = Gather(shape{k}, s1)
  empty{k} = SequenceEmpty()
  last{k}, list{k} = Loop (time{k}, "", state{k}, empty{k}) <body = b (int64 i, bool ci, h, l) => (bool co, hn, ln) {{
    co = Identity(ci)
    r = Gather<axis = 1>({source}, i)
    g = Gather<axis = 1>(gate{k}, i)
    m = Mul(g, h)
    hn = Add(m, r)
    ln = SequenceInsert(l, hn)
  }}>
  {result} = ConcatFromSequence<axis = 1, new_axis = 1>(list{k})"""


def test_layers_on_top_of_each_other():
    """What one loop stacks is what the next one reads: its extents are known again once the first is rewritten."""
    body = CONSTANTS.split("s2 =")[0] + layer(1, "x", "y1") + layer(2, "y1", "y2") + layer(3, "y2", "y")
    text = f"agraph (float[B,T,3] x) => (float[P,Q,U] y) {{ {body} }}"
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert nodes(model) == ["LinearRecurrence"] * 3
    for run in RUNS:
        assert_equal(parse(text), model, run)

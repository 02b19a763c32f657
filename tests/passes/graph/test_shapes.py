"""What is taken as proof of a shape: what engines enforce and what follows from it, not what a model declares."""

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import looplift
from looplift.passes.graph.shapes import forget_declared, prove_shapes
from tests.helpers import assert_same, model

LOOP = "Loop (n, , x) <body = b (int64 i, bool ci, {state} p) => (bool co, {state} q, {row} o) {{ co = Identity(ci) {body} }}>"
SCAN = "Scan <num_scan_inputs = 1, body = b ({state} p, float e) => ({state} q, {row} o) {{ {body} }}> (x, rows)"


def sides(loop: str, state: str, row: str, body: str) -> str:
    loop = loop.format(state=state, row=row, body=body)
    return f"main (int64 n, float[N] x, float[R] rows) => (float[?] f, float[?,?] z) {{ f, z = {loop} }}"


def assert_lifted_same(before: ir.Model, *feeds: dict[str, np.ndarray]) -> None:
    for target in ("kernel", "standard"):
        after = looplift.optimize(before, target=target)
        for feed in feeds:
            assert_same(before, after, feed)


def series(size: int, n: int = 2) -> dict[str, np.ndarray]:
    return {"n": np.array(n), "x": np.arange(size, dtype=np.float32), "rows": np.ones(n, np.float32)}


@pytest.mark.parametrize("loop", [LOOP, SCAN], ids=["Loop", "Scan"])
@pytest.mark.parametrize("bounds", [(0, -1), (1, 2**31 - 1), (-1, 2**31 - 1), (0, 0), (0, 2), (-2, -1)])
@pytest.mark.parametrize("opset", [9, 10, 11, 21])
def test_a_cut_is_a_cut_in_every_opset(opset, bounds, loop):
    """ONNX's inference keeps the symbol of an axis that is cut before opset 11."""
    start, end = bounds
    constants = f"s = Constant<value = int64[1] {{{start}}}>() t = Constant<value = int64[1] {{{end}}}>()"
    part = (
        f"o = Slice<axes = [0], starts = [{start}], ends = [{end}]>(p)"
        if opset < 10
        else f"{constants} o = Slice(p, s, t)"
    )
    before = model(sides(loop, "float[N]", "float[?]", f"{part} q = Add(p, p)"), opset)
    assert_lifted_same(before, series(3), series(2), series(4))


LIES = ["", "[99]", "[1]", "[N]", "[1,1]", "[]"]


@pytest.mark.parametrize("where", ["main graph", "body", "carry", "element", "output"])
@pytest.mark.parametrize("lie", LIES)
def test_what_a_model_declares_of_what_it_computes_is_no_proof(lie, where):
    """An Expand to [1] does nothing to a tensor that is said to have 99 elements; this one has none but a scalar."""
    declare = {place: lie if place == where else "[]" for place in ("main graph", "body", "carry", "element", "output")}
    text = f"""g (int64 n, float x, float[K] rows) => (float{declare["output"]} f, float[?,?] z, float[?] w)
      <float{declare["main graph"]} a>
    {{
      a = Neg(x)
      one = Constant<value = int64[1] {{1}}>()
      f, z, w = Loop (n, , a) <
        body = b (int64 i, bool ci, float{declare["carry"]} p) => (bool co, float{declare["carry"]} q, float[?] r,
          float{declare["element"]} e) <float{declare["body"]} h>
        {{
          co = Identity(ci)
          h = Neg(p)
          wide = Expand(h, one)
          outer = Expand(a, one)
          r = Add(wide, outer)
          e = Identity(h)
          q = Add(p, x)
        }}>
    }}"""
    before = model(text, 17)
    feeds = [{"n": np.array(n), "x": np.array(1.5, np.float32), "rows": np.ones(2, np.float32)} for n in (1, 3)]
    assert_lifted_same(before, *feeds)


def shapes(text: str, opset: int = 17) -> dict[str, list[str]]:
    """What is proven of every value, by name; extents without a name of the model's are shown by the one they have."""
    subject = model(text, opset)
    forget_declared(subject)
    prove_shapes(subject)
    nodes = ir.traversal.RecursiveGraphIterator(subject.graph)
    values = itertools.chain(subject.graph.inputs, *(node.outputs for node in nodes))
    return {
        v.name: None if v.shape is None else [d if isinstance(d, int) else d.value for d in v.shape] for v in values
    }


def test_what_is_proven():
    found = shapes(
        """g (float[N,?] x, float[?] y, float[-1,3] z, int64[K] s) => (float[N,4] a) <float[7] c> {
          a = Relu(x)
          b = Add(x, x)
          c = Neg(y)
          d = Transpose(z)
          e = Reshape(x, s)
        }"""
    )
    assert found["a"] == found["b"] == ["N", "x#1"]
    assert found["c"] == ["y#0"]
    assert found["d"] == [3, "z#0"]
    assert found["e"] is None or found["e"] == [None]


def test_an_input_named_like_a_made_up_extent():
    found = shapes('g (float["y#0"] x, float[?] y) => (float[?] a) { a = Neg(y) }')
    assert found["a"] == ["y#0#"]


def test_declarations_come_back():
    """Of the interface, and of rows: engines read the extents of stacks without rows there."""
    before = model(
        """g (int64 n, float[?,N] x, float[2,?] s) => (float[A,B] f, float[C,2,7] z) {
          f, z = Loop (n, , x) <body = b (int64 i, bool ci, float[2,N] p) => (bool co, float[2,N] q, float[2,7] o) {
            co = Identity(ci) q = Max(p, s) o = Sin(q) }>
        }"""
    )
    after = looplift.optimize(before)
    for old, new in zip(
        (*before.graph.inputs, *before.graph.outputs), (*after.graph.inputs, *after.graph.outputs), strict=True
    ):
        assert str(old.shape) == str(new.shape)
    assert "#" not in str(ir.to_proto(after))
    feed = {"x": np.zeros((2, 7), np.float32), "s": np.ones((2, 7), np.float32)}
    assert_lifted_same(before, *({**feed, "n": np.array(n)} for n in (0, 1, 3)))


def test_the_default_of_an_input_has_its_say():
    found = shapes("g (float[4] x) => (float[?] a) <float[2] x = {1, 2}> { a = Neg(x) }")
    assert found["a"] != [4]

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


def layer(k: int, data: str, factor: str) -> str:
    """A state made as zeros in the shape of row 0 of `data`, updated from its row i."""
    return f"""
      r{k} = Gather<axis = 1>({data}, zero)
      e{k} = Shape(r{k})
      h{k} = ConstantOfShape(e{k})
      l{k} = Shape({data})
      t{k} = Gather<axis = 0>(l{k}, one)
      f{k}, y{k} = Loop (t{k}, , h{k}) <body = b{k} (int64 i{k}, bool ci{k}, float[?,?] p{k}) => (bool co{k}, float[?,?] q{k}, float[?,?] o{k}) {{
        co{k} = Identity(ci{k})
        g{k} = Gather<axis = 1>({factor}, i{k})
        b{k} = Gather<axis = 1>({data}, i{k})
        m{k} = Mul(g{k}, p{k})
        q{k} = Add(m{k}, b{k})
        o{k} = Identity(q{k})
      }}>
      z{k} = Transpose<perm = [1, 0, 2]>(y{k})"""


UNKNOWN_ROWS = """g (float[N] x, float[M] u, int64[3] s, int64[3] s2) => (float[?,?] f, float[?,?,?] z) {{
      zero = Constant<value = int64 {{0}}>()
      one = Constant<value = int64 {{1}}>()
      d = Reshape(x, s)
      other = Reshape(u, s2)
      {body}
      f = Identity({final})
      z = Identity({stack})
    }}"""


@pytest.mark.parametrize(
    ("body", "loops"),
    [
        ("a = Sigmoid(d)" + layer(1, "d", "a"), 1),
        ("a = Mul(other, d)" + layer(1, "a", "other"), 1),
        ("a = Mul(other, d) c = Add(a, d)" + layer(1, "c", "d"), 1),
        ("a = Sigmoid(d)" + layer(1, "d", "a") + "c2 = Sigmoid(z1)" + layer(2, "z1", "c2"), 2),
    ],
    ids=["one extent", "what it is broadcast from", "part of a chain", "two layers"],
)
def test_a_state_in_the_shape_of_a_row_of_unknown_extents(body, loops):
    text = UNKNOWN_ROWS.format(body=body, final=f"f{loops}", stack=f"z{loops}")
    before = model(text)
    report = looplift.explain(before)
    assert [finding.lifted for finding in report] == [True] * loops, str(report)
    numbers = np.arange(-6, 6, dtype=np.float32)
    for rows in ([2, 3, 2], [2, 0, 2], [1, 12, 1], [0, 3, 2], [2, 1, 6]):
        size = int(np.prod(rows))
        feed = {"x": numbers[:size], "u": numbers[:size], "s": np.array(rows), "s2": np.array(rows)}
        narrow = {"u": numbers[: rows[0] * rows[1]], "s2": np.array([rows[0], rows[1], 1])}
        assert_lifted_same(before, feed, *([feed | narrow] if "other, d" in body else []))


def test_a_state_in_the_shape_of_something_else():
    report = looplift.explain(model(UNKNOWN_ROWS.format(body=layer(1, "d", "other"), final="f1", stack="z1")))
    assert not report[0].lifted
    assert "it runs as it was where" in report[0].reason
    report = looplift.explain(
        model(UNKNOWN_ROWS.format(body="a = Mul(d, other)" + layer(1, "d", "a"), final="f1", stack="z1"))
    )
    assert not report[0].lifted


def test_extents_without_a_name_get_one_where_they_come_up():
    found = shapes(
        """g (float[N,4] x, int64[2] s, bool[N] c) => (float[N,4] a) {
          r = Reshape(x, s)
          a = Neg(r)
          t = Transpose(a)
          k = Compress<axis = 0>(x, c)
          j = Add(k, x)
        }"""
    )
    assert found["r"] == found["a"] == found["t"][::-1]
    assert found["j"] == ["#|".join(sorted([found["k"][0], "N"])), 4]
    assert len({*found["r"], found["k"][0]}) == 3


def test_a_name_of_a_joint_extent_is_not_believed():
    found = shapes('g (float["a#|b"] x, float[a] y) => (float[?] z) { z = Neg(x) w = Add(y, x) }')
    assert found["z"] == ["x#0"]
    assert found["w"] == ["a#|x#0"]

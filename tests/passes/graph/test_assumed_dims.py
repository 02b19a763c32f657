"""What a person says of the sizes of inputs is written into the model, and lifts what it proves."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import looplift
from looplift import cli
from looplift.passes.graph.assumed_dims import AssumedDims
from looplift.runtime.errors import LoopliftError
from tests.helpers import assert_same, model, run_ort

PORTS = 'g (float[A,B,?] x, float["b b",?,3] y, int64 n) => (float[A,?] u, float["b b"] v) { u = Neg(n) v = Neg(n) }'


@pytest.mark.parametrize(
    ("sizes", "same", "shapes"),
    [
        ({"A": 5}, (), ["[5,B,None]", "[b b,None,3]", "[5,None]", "[b b]"]),
        ({"x:0": 5, "y:1": 0}, (), ["[5,B,None]", "[b b,0,3]", "[5,None]", "[b b]"]),
        ({}, [("b b", "B")], ["[A,B,None]", "[B,None,3]", "[A,None]", "[B]"]),
        ({}, [("x:2", "y:1")], ["[A,B,x_2]", "[b b,x_2,3]", "[A,None]", "[b b]"]),
        ({}, [("x:2", "y:1"), ("y:1", "B")], ["[A,B,B]", "[b b,B,3]", "[A,None]", "[b b]"]),
        ({}, [("x:2", "y:2"), ("A", "x:1")], ["[A,A,3]", "[b b,None,3]", "[A,None]", "[b b]"]),
        ({"B": 7}, [("A", "B")], ["[7,7,None]", "[b b,None,3]", "[7,None]", "[b b]"]),
        ({"y:2": 3}, [("A", "A")], ["[A,B,None]", "[b b,None,3]", "[A,None]", "[b b]"]),
    ],
)
def test_declares_them(sizes, same, shapes):
    subject = model(PORTS)
    AssumedDims(sizes, tuple(same)).write_into(subject)
    ports = (*subject.graph.inputs[:2], *subject.graph.outputs)
    assert [str(value.shape).replace(" ", "") for value in ports] == [shape.replace(" ", "") for shape in shapes]


@pytest.mark.parametrize(
    ("sizes", "same", "words"),
    [
        ({"C": 5}, (), "no input of the model has a dim 'C': it has 'A', 'B', 'b b'; INPUT:AXIS"),
        ({"x:3": 5}, (), "no input of the model has a dim 'x:3'"),
        ({}, [("A", "z")], "no input of the model has a dim 'z'"),
        ({"y:2": 4}, (), "two sizes: 3 and 4, of 3"),
        ({"A": 1, "B": 2}, [("A", "B")], "two sizes: 1 and 2, of A, B"),
    ],
)
def test_refuses_what_can_not_be(sizes, same, words):
    with pytest.raises(LoopliftError, match=words):
        AssumedDims(sizes, tuple(same)).write_into(model(PORTS))


SUM = """g (float[T,A] x, float[B] v) => (float[?] w, float[?,?] z) {
  l = Shape(x)  zero = Constant<value = int64 {0}>()  n = Gather(l, zero)
  w, z = Loop (n, , v) <body = b (int64 i, bool c, float[?] p) => (bool d, float[?] q, float[?] o) {
    d = Identity(c)  r = Gather(x, i)  q = Add(p, r)  o = Identity(q) }>
}"""


@pytest.mark.parametrize(
    "said",
    [{"dims": {"A": 3, "B": 3}}, {"same_dims": [("A", "B")]}, {"dims": {"B": 3}, "same_dims": [("x:1", "v:0")]}],
    ids=["sizes", "equal", "both"],
)
@pytest.mark.parametrize("kind", [ir.to_proto, lambda each: each], ids=["proto", "ir"])
@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_what_is_said_lifts(said, kind, target):
    before = model(SUM)
    given = kind(before)
    assert not looplift.explain(given, target)[0].lifted
    assert looplift.explain(given, target, **said)[0].lifted
    after = looplift.optimize(given, target, **said)
    assert str(before.graph.inputs[0].shape) == str(model(SUM).graph.inputs[0].shape)
    lifted = after if isinstance(after, ir.Model) else ir.from_proto(after)
    for rows in (0, 1, 3):
        feeds = {"x": np.ones((rows, 3), np.float32), "v": np.arange(3, dtype=np.float32)}
        if rows:
            assert_same(before, lifted, feeds)
    wrong = {"x": np.ones((2, 5), np.float32), "v": np.ones(5, np.float32)}
    assert (run_ort(lifted, wrong) is None) == ("dims" in said)


def test_on_the_command_line(tmp_path, capsys):
    path, out = str(tmp_path / "m.onnx"), str(tmp_path / "o.onnx")
    onnx.save(ir.to_proto(model(SUM)), path)
    assert cli.main(["explain", path, "--same-dim", "A=B"]) == 0
    assert "1 of 1 loop lifted" in capsys.readouterr().out
    assert cli.main(["optimize", path, "-o", out, "--dim", "x:1=3", "--dim", "B=3", "--verify", "--cases", "8"]) == 0
    assert [dim.dim_value for dim in onnx.load(out).graph.input[1].type.tensor_type.shape.dim] == [3]
    for wrong in (["--dim", "C=3"], ["--dim", "A"], ["--same-dim", "A"], ["--same-dim", "A=C"]):
        assert cli.main(["explain", path, *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1

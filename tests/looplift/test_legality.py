"""Names that don't resolve as the standard says are refused; hidden names are made distinct."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import looplift
from looplift import interop, legality
from looplift.runtime.errors import LoopliftError

LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 M, float[1] x, float[1] s) => (float[1] y) {
  [outer] y = Loop <body = b (int64 i, bool c, float[1] v) => (bool co, float[1] %(out)s) {
    co = Identity(c) %(body)s
  }> (M, , x)
}"""


def loop(body: str, out: str = "w") -> onnx.ModelProto:
    return onnx.parser.parse_model(LOOP % {"body": body, "out": out})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (loop("w = Add(v, nothing)"), "Add in graph /outer:body reads 'nothing', which nothing makes"),
        (loop("q = Add(v, x) x = Mul(q, q) w = Identity(x)"), "reads 'x' of an outer graph"),
        (loop("", out="s"), "graph /outer:body returns 's', which it does not make; put an Identity"),
        (loop("w = Add(v, s) w = Neg(v)"), "writes 'w', which is written before"),
        (loop("v = Add(v, s) w = Identity(v)"), "writes 'v', which is written before"),
    ],
)
def test_refuses_names_that_do_not_resolve(model: onnx.ModelProto, words: str) -> None:
    with pytest.raises(LoopliftError, match=r"^[^\n]*$") as caught:
        interop.to_ir(interop.read(model))
    assert words in str(caught.value)


def test_refuses_names_that_are_not_text() -> None:
    content = loop("w = Add(v, s)").SerializeToString().replace(b"Add", b"A\xffd")
    with pytest.raises(LoopliftError, match="not UTF-8"):
        interop.to_ir(interop.read(onnx.ModelProto.FromString(content)))


def test_refuses_two_inputs_of_one_name() -> None:
    model = loop("w = Add(v, s)")
    model.graph.input[2].name = "x"
    with pytest.raises(LoopliftError, match="two inputs named 'x'"):
        legality.require_legal(model)


@pytest.mark.parametrize("lost", ["sparse", "training", "graph", "opset"])
def test_refuses_what_would_be_lost(lost: str) -> None:
    model = loop("w = Add(v, s)")
    if lost == "sparse":
        model.graph.sparse_initializer.add().values.name = "z"
    elif lost == "training":
        model.training_info.add()
    elif lost == "graph":
        model.ClearField("graph")
    else:
        del model.opset_import[:]
    with pytest.raises(LoopliftError):
        interop.to_ir(interop.read(model))


def test_refuses_in_functions() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]> g (float[1] x) => (float[1] y) { y = f.twice(x) }
        <domain: "f", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, z) }"""
    )
    with pytest.raises(LoopliftError, match="function f::twice reads 'z'"):
        legality.require_legal(model)


def test_sorts_an_unsorted_graph() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Neg(z) z = Abs(x) }"""
    )
    assert legality.require_legal(model)
    assert [node.op_type for node in interop.to_ir(interop.read(model)).graph] == ["Abs", "Neg"]


CAPTURED_AHEAD = """<ir_version: 8, opset_import: ["" : 17]> g (float[1] x, int64 M) => (float[1] y) {
  y = Loop <body = b (int64 i, bool c, float[1] v) => (bool co, float[1] w) {
    co = Identity(c)
    w = If (c) <then_branch = t () => (float[1] a) { a = Add(v, z) }, else_branch = e () => (float[1] b) { b = Neg(v) }>
  }> (M, , x)
  z = Abs(x)
}"""

FUNCTION_AHEAD = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]> g (float[1] x, int64 M) => (float[1] y) { y = f.h(x, M) }
<domain: "f", opset_import: ["" : 17]> h (x, M) => (y) {
  y = Loop <body = b (int64 i, bool c, float[1] v) => (bool co, float[1] w) { co = Identity(c) w = Add(v, z) }> (M, , x)
  z = Abs(x)
}"""


@pytest.mark.parametrize("text", [CAPTURED_AHEAD, FUNCTION_AHEAD], ids=["branch in a body", "function"])
def test_a_value_that_a_body_reads_counts_as_read_by_its_loop(text: str) -> None:
    model = onnx.parser.parse_model(text)
    assert legality.require_legal(model)
    read = interop.to_ir(interop.read(model))
    for graph in (read.graph, *read.functions.values()):
        assert [node.op_type for node in graph][-1] in ("Loop", "h")
    for target in ("kernel", "standard"):
        onnx.checker.check_model(looplift.optimize(model, target=target), full_check=True)
    feeds = {"x": np.array([-2], np.float32), "M": np.array(3)}
    assert looplift.Session(model).run(None, feeds) == looplift.Session(looplift.optimize(model)).run(None, feeds)


def test_an_ir_model_that_is_not_sorted_is_refused() -> None:
    given = ir.from_proto(onnx.parser.parse_model(CAPTURED_AHEAD))
    with pytest.raises(LoopliftError, match=r"Add 'a' stands before .*graph\.sort\(\)"):
        looplift.optimize(given)
    given.graph.sort()
    assert looplift.explain(given).findings


@pytest.mark.parametrize(
    ("nodes", "through"),
    [
        ("y = Add(z, x) z = Abs(y)", "Add 'y'|Abs 'z'"),
        (CAPTURED_AHEAD.partition("{")[2].rpartition("}")[0].replace("Abs(x)", "Abs(y)"), "Loop 'y'|Abs 'z'"),
        ("c = Cast <to = 9> (M) y = If (c) <then_branch = t () => (float[1] a) { a = Add(b, x) b = Neg(a) }, "
         "else_branch = e () => (float[1] d) { d = Neg(x) }>", "Add 'a'|Neg 'b'"),
    ],
    ids=["graph", "captured", "branch"],
)  # fmt: skip
def test_refuses_a_cycle(nodes: str, through: str) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x, int64 M) => (float[1] y) '
    model = onnx.parser.parse_model(f"{header}{{ {nodes} }}")
    with pytest.raises(LoopliftError, match=f"in a cycle through ({through}); export"):
        interop.to_ir(interop.read(model))


def test_refuses_a_read_that_another_scope_makes_ambiguous() -> None:
    model = onnx.parser.parse_model(
        CAPTURED_AHEAD.replace("w = If", "q = Neg(v) w = If").replace("z = Abs(x)", "q = Abs(x)")
    )
    branch = model.graph.node[0].attribute[0].g.node[2].attribute[0].g
    branch.node[0].input[1] = "q"
    assert not legality.require_legal(model)
    body = model.graph.node[0].attribute[0].g
    made = body.node.pop(1)
    body.node.append(made)
    with pytest.raises(
        LoopliftError, match=r"reads 'q' of an outer graph, and graph .*body writes the same name later"
    ):
        legality.require_legal(model)


SHADOWED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 M, float[1] x, float[1] s) => (float[1] y) {
  y = Loop <body = b (int64 M, bool c, float[1] x) => (bool co, float[1] s_1) {
    co = Identity(c)
    s_1 = Add(x, s)
  }> (M, , x)
}"""


def test_names_that_hide_outer_names_become_distinct() -> None:
    model = interop.to_ir(interop.read(onnx.parser.parse_model(SHADOWED)))
    assert legality.shadowing_values(model) == []
    body = next(iter(model.graph)).attributes["body"].as_graph()
    assert [value.name for value in body.inputs] == ["M_1", "c", "x_1"]
    add = body.node(1)
    assert add.inputs[0] is body.inputs[2]
    assert add.inputs[1] is model.graph.inputs[2]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_an_ir_model_that_was_given_keeps_its_names() -> None:
    given = ir.from_proto(onnx.parser.parse_model(SHADOWED))
    used = interop.to_ir(interop.read(given))
    assert legality.shadowing_values(given) != []
    assert legality.shadowing_values(used) == []


def test_lists_loops_with_their_graph_paths() -> None:
    model = loop("w = Add(v, s)")
    inner = model.graph.node[0].attribute[0].g.node.add(op_type="If", name="choose")
    inner.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g.node.add(op_type="Scan", name="deep")
    found = [(each.node.name, each.path) for each in legality.loop_nodes(model)]
    assert found == [("outer", "/"), ("deep", "/outer:body/choose:then_branch")]

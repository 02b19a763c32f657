"""Every kind of model in, the same kind out."""

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from looplift import interop
from looplift.runtime.errors import LoopliftError

gs = pytest.importorskip("onnx_graphsurgeon")

CAPTURING = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 M, float[2] x) => (float[2] y, float[N, 2] ys) <float[2] step = {1, 2}> {
  x1 = Add(x, step)
  y, ys = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
    co = Identity(c)
    w = Add(v, step)
    e = Identity(v)
  }> (M, , x1)
}"""

WITH_MAP = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
g (float[1, 2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap <classlabels_int64s = [3, 4]> (x) }"""


def round_trip(model: object) -> object:
    source = interop.read(model)
    return interop.from_ir(interop.to_ir(source), source)


def test_the_kind_is_kept(tmp_path) -> None:
    proto = onnx.parser.parse_model(CAPTURING)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    assert isinstance(round_trip(proto), onnx.ModelProto)
    assert isinstance(round_trip(path), onnx.ModelProto)
    assert isinstance(round_trip(str(path)), onnx.ModelProto)
    assert isinstance(round_trip(ir.from_proto(proto)), ir.Model)
    assert isinstance(round_trip(gs.import_onnx(proto)), gs.Graph)


@pytest.mark.parametrize("nothing", [None, 3, b"bytes", {}])
def test_refuses_other_kinds(nothing: object) -> None:
    with pytest.raises(LoopliftError, match="a model is a path"):
        interop.read(nothing)


def test_a_proto_that_was_given_is_not_changed() -> None:
    proto = onnx.parser.parse_model(CAPTURING)
    before = proto.SerializeToString(deterministic=True)
    round_trip(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_captured_initializers_of_graphsurgeon_stay_in_one_place() -> None:
    graph = gs.import_onnx(onnx.parser.parse_model(CAPTURING))
    exported = gs.export_onnx(graph)
    assert [t.name for t in exported.graph.node[1].attribute[0].g.initializer] == ["step"], "graphsurgeon mended it"
    model = interop.to_ir(interop.read(graph))
    body = model.graph.node(1).attributes["body"].as_graph()
    assert list(body.initializers) == []
    assert list(model.graph.initializers) == ["step"]
    onnx.checker.check_model(gs.export_onnx(round_trip(graph)), full_check=True)


def test_says_what_graphsurgeon_would_drop() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) {
        [opt] o = Optional(x) y = OptionalGetElement(o) }"""
    )
    node = model.graph.node[0]
    node.attribute.append(onnx.helper.make_attribute("type", onnx.helper.make_tensor_type_proto(1, [1])))
    from looplift import graphsurgeon

    with pytest.raises(LoopliftError, match=r"'opt'.*'type' holds a type"):
        graphsurgeon.from_proto(model)


def test_says_what_graphsurgeon_can_not_export() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (optional(float[1]) x) => (float[1] y) {
        y = OptionalGetElement(x) }"""
    )
    with pytest.raises(LoopliftError, match="onnx_graphsurgeon can't export the graph"):
        interop.read(gs.import_onnx(model))


def test_map_types_survive() -> None:
    model = onnx.parser.parse_model(WITH_MAP)
    out = round_trip(model)
    assert out.graph.output[0].type == model.graph.output[0].type
    assert model.graph.output[0].type.WhichOneof("value") == "sequence_type"


def test_metadata_and_doc_strings_survive() -> None:
    model = onnx.parser.parse_model(CAPTURING)
    model.doc_string, model.domain, model.model_version = "what it does", "mine", 3
    model.metadata_props.add(key="author", value="me")
    model.graph.node[0].doc_string = "the loop"
    model.graph.node[0].metadata_props.add(key="pass", value="1")
    out = round_trip(model)
    assert (out.doc_string, out.domain, out.model_version) == ("what it does", "mine", 3)
    assert out.metadata_props == model.metadata_props
    assert out.graph.node[0].doc_string == "the loop"
    assert out.graph.node[0].metadata_props == model.graph.node[0].metadata_props

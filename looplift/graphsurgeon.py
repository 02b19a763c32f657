"""Graphs of onnx-graphsurgeon in and out.

Its import and export lose things; what looplift does about each:

* export writes a captured initializer into every body that reads it, besides the outer graph if that reads it too:
  copies of one that an outer graph has are taken out again, one that only bodies read stays in each;
* import binds a body value to an outer value of the same name: names are made distinct before;
* import skips attributes that hold types, lists of tensors or of graphs, or sparse tensors: refused, with the node;
* export fails on optional types and on attributes with an empty list: refused, with graphsurgeon's message.

A ``gs.Graph`` has no place for the model's documentation, domain and metadata, the metadata of nodes, overloads of
functions and defaults of inputs, so these are gone before looplift sees the graph; go through ``ModelProto`` to keep
them. After looplift, don't call ``cleanup(remove_unused_graph_inputs=True)`` on a graph with loops: it deletes the
iteration input of their bodies.
"""

from __future__ import annotations

import sys
from typing import Any

import onnx

from looplift.legality import subgraphs_of_proto
from looplift.runtime.errors import LoopliftError

_LOST_ON_IMPORT = {
    onnx.AttributeProto.TYPE_PROTO: "a type",
    onnx.AttributeProto.TYPE_PROTOS: "types",
    onnx.AttributeProto.TENSORS: "a list of tensors",
    onnx.AttributeProto.GRAPHS: "a list of graphs",
    onnx.AttributeProto.SPARSE_TENSOR: "a sparse tensor",
    onnx.AttributeProto.SPARSE_TENSORS: "sparse tensors",
}


def is_graph(model: object) -> bool:
    """Whether `model` is a ``gs.Graph``; does not import graphsurgeon."""
    module = sys.modules.get("onnx_graphsurgeon")
    return module is not None and isinstance(model, module.Graph)


def to_proto(graph: Any) -> onnx.ModelProto:
    """The graph as a ModelProto, without second copies of captured initializers.

    Raises:
        LoopliftError: graphsurgeon can't write the graph.
    """
    import onnx_graphsurgeon as gs

    try:
        model: onnx.ModelProto = gs.export_onnx(graph, do_type_check=False)
    except Exception as error:  # graphsurgeon has no error type of its own for this: KeyError, UnboundLocalError, ...
        raise LoopliftError(f"onnx_graphsurgeon can't export the graph: {type(error).__name__}: {error}") from error
    _drop_captured_copies(model.graph, {})
    return model


def _drop_captured_copies(graph: onnx.GraphProto, outer: dict[str, onnx.TensorProto]) -> None:
    copies = [tensor for tensor in graph.initializer if tensor.name in outer and tensor == outer[tensor.name]]
    for tensor in copies:
        graph.initializer.remove(tensor)
    visible = outer | {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for _, inner in subgraphs_of_proto(node):
            _drop_captured_copies(inner, visible)


def from_proto(model: onnx.ModelProto) -> Any:
    """The model as a new ``gs.Graph``.

    Raises:
        LoopliftError: graphsurgeon's import would drop an attribute.
    """
    import onnx_graphsurgeon as gs

    _require_importable(model.graph)
    return gs.import_onnx(model)


def _require_importable(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type in _LOST_ON_IMPORT:
                what = _LOST_ON_IMPORT[attribute.type]
                raise LoopliftError(
                    f"{node.op_type} {node.name!r}: attribute {attribute.name!r} holds {what}, "
                    "which onnx_graphsurgeon would drop; pass the model as a ModelProto"
                )
        for _, inner in subgraphs_of_proto(node):
            _require_importable(inner)

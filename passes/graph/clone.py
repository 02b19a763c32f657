"""Copies of models that can be renamed without the original's hearing of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx_ir.serde import TensorProtoTensor

from looplift.patterns.graph.values import nodes_within, subgraphs
from looplift.patterns.graph.walk import GraphLike

SMALL = 4096
"""Bytes. Tensors up to this size are copied, written as they were; larger ones share their data."""


def clone(model: ir.Model) -> ir.Model:
    """A copy of the model, as `onnx_ir` makes it, with tensors of its own (see `own_tensors`)."""
    made = model.clone()
    own_tensors(made)
    return made


def own_tensors(model: ir.Model) -> None:
    """Gives every initializer and Constant of the model a tensor object of its own; large data stays shared.

    A copied model shares its tensors with the original, and a model read from a proto shares them with the proto.
    Renaming a value renames its tensor: without this, that of the original, whose readers keep the old name.
    """
    for graph in _graphs(model):
        if not isinstance(graph, ir.Function):
            for value in graph.initializers.values():
                if value.const_value is not None:
                    value.const_value = _own(value.const_value)
        for node in graph:
            _own_constant(node)


def _graphs(model: ir.Model) -> Iterator[GraphLike]:
    roots: tuple[GraphLike, ...] = (model.graph, *model.functions.values())
    for root in roots:
        yield root
        for node in nodes_within(root):
            yield from subgraphs(node)


def _own_constant(node: ir.Node) -> None:
    attribute = node.attributes.get("value")
    if node.op_type != "Constant" or attribute is None or attribute.type != ir.AttributeType.TENSOR:
        return
    if attribute.is_ref():
        return
    tensor = _own(attribute.as_tensor())
    node.attributes.add(ir.AttrTensor("value", tensor, doc_string=attribute.doc_string))
    if node.outputs[0].const_value is not None:
        node.outputs[0].const_value = tensor


def _own(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if not isinstance(tensor, TensorProtoTensor):
        return copy.copy(tensor)
    if tensor.nbytes <= SMALL:
        proto = onnx.TensorProto()
        proto.CopyFrom(tensor.raw)
        return TensorProtoTensor(proto)
    return ir.LazyTensor(
        lambda: tensor,
        tensor.dtype,
        ir.Shape(list(tensor.shape)),
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )

"""ONNX's own inference over the whole model, with data propagation, merged into the IR: types, and what engines see.

No proof: it believes what the model declares. The proven shapes are those of `passes.graph.shapes`. `onnx_ir`'s pass of
the same purpose gives a sequence the type of a tensor, so the merge here is our own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from looplift.patterns.graph.types import tensor_shape
from looplift.patterns.graph.values import graphs_within, nodes_within
from looplift.patterns.graph.walk import nodes_inlined

logger = logging.getLogger(__name__)

LARGE = 1024
"""Elements. Initializers above this are described to the inference by their type only."""


LONGEST_VECTOR = 1 << 22
"""Elements. ONNX's data propagation takes a second and a gigabyte for a few times as many."""

MOST_INLINED = 100_000
"""Nodes of a model with all calls of functions followed."""


def infer_types(model: ir.Model) -> bool:
    """Fills in the types that the model leaves out, as ONNX's inference gives them. Preserves bits.

    Legality: (1) only a value without a type gets one; engines check types when they load a model; (2) a model that
    the inference rejects is left as it is.
    """
    return infer_shapes(model, with_shapes=False)


def infer_shapes(model: ir.Model, *, with_shapes: bool = True) -> bool:
    """Fills in types and shapes that the model leaves out. Declared ones stay. Preserves bits: nothing is computed.

    Legality: (1) only a value without a type gets one, only a shape without an extent gets that extent; (2) a model
    that the inference rejects is left as it is.
    """
    try:
        inferred = _inferred(light_proto(model), nodes_inlined(model) <= MOST_INLINED, with_shapes)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        logger.debug("shape inference rejects the model: %s", error)
        return False
    changed = False
    for graph, found in _pairs(model.graph, inferred.graph):
        facts = {info.name: info.type for info in (*found.value_info, *found.output)}
        for value in (*(output for node in graph for output in node.outputs), *graph.outputs):
            if value.name in facts:
                changed |= _merge(value, facts[value.name], with_shapes)
    return changed


@contextlib.contextmanager
def with_inferred(model: ir.Model) -> Iterator[None]:
    """Inside, the model's values have the types and shapes that `infer_shapes` finds; then again what they had."""
    values = [value for node in nodes_within(model.graph) for value in node.outputs]
    values += [value for graph in graphs_within(model.graph) for value in graph.outputs]
    before = [(value, value.type, value.shape) for value in values]
    try:
        infer_shapes(model)
        yield
    finally:
        for value, kind, shape in before:
            value.type, value.shape = kind, shape


def _inferred(proto: onnx.ModelProto, with_functions: bool, with_data: bool) -> onnx.ModelProto:
    """The model with the types that ONNX's inference finds, given what it does in little time and memory.

    It follows every call of a function, so that a few functions that call one another twice each take it for ever:
    those it does not see, and what they return has no type. Its data propagation writes the elements of a vector down
    one by one, so it is left out where there is a very long one.
    """
    if not with_functions:
        del proto.functions[:]
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=False)
    if not with_data or _longest_vector(inferred.graph) > LONGEST_VECTOR:
        return inferred
    return onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=True)


def _longest_vector(graph: onnx.GraphProto) -> int:
    """The largest known extent of a tensor of one axis."""
    shapes = [info.type.tensor_type.shape.dim for info in (*graph.input, *graph.output, *graph.value_info)]
    inner = [
        _longest_vector(body)
        for node in graph.node
        for attribute in node.attribute
        for body in (attribute.g, *attribute.graphs)
        if body.node
    ]
    return max([0, *(int(shape[0].dim_value) for shape in shapes if len(shape) == 1), *inner])


def _pairs(graph: ir.Graph, proto: onnx.GraphProto) -> Iterator[tuple[ir.Graph, onnx.GraphProto]]:
    """The graph and those inside it, each with its serialised form: nodes stand in the same order."""
    yield graph, proto
    for node, node_proto in zip(graph, proto.node, strict=True):
        bodies = {attribute.name: attribute.g for attribute in node_proto.attribute if attribute.HasField("g")}
        for name, body in bodies.items():
            yield from _pairs(node.attributes[name].as_graph(), body)


def light_proto(model: ir.Model) -> onnx.ModelProto:
    """The model with large initializers as inputs. No copy of it is made: that would take longer than the inference."""
    graph = model.graph
    large: dict[str, ir.Value] = {}
    small = []
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.size > LARGE:
            large[name] = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor_shape(tensor)))
        else:
            small.append(value)
    inputs = [large.pop(value.name or "", value) for value in graph.inputs]
    view = ir.GraphView(
        [*inputs, *large.values()],
        graph.outputs,
        nodes=graph,
        initializers=small,
        opset_imports=graph.opset_imports,
        name=graph.name,
    )
    functions = list(model.functions.values())
    return ir.to_proto(ir.Model(view, ir_version=model.ir_version, functions=functions))  # type: ignore[arg-type]


def _merge(value: ir.Value, found: onnx.TypeProto, with_shapes: bool) -> bool:
    changed = False
    if value.type is None and _is_read(found):
        value.type, changed = ir.serde.deserialize_type_proto_for_type(found), True
    if not with_shapes or not isinstance(value.type, ir.TensorType) or not found.tensor_type.HasField("shape"):
        return changed
    shape = ir.serde.deserialize_type_proto_for_shape(found)
    if shape is None or (value.shape is not None and len(value.shape) != len(shape)):
        return changed
    if value.shape is None:
        value.shape = shape
        return True
    dims = [new if _nameless(old) else old for old, new in zip(value.shape, shape, strict=True)]
    if dims != list(value.shape):
        value.shape, changed = ir.Shape(dims), True
    return changed


def _is_read(found: onnx.TypeProto) -> bool:
    """Tensors and sequences of tensors; the IR has no maps."""
    if found.HasField("sequence_type"):
        found = found.sequence_type.elem_type
    return bool(found.HasField("tensor_type"))


def _nameless(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) and dim.value is None

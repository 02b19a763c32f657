"""ONNX's own shape inference over the whole model, with data propagation, merged into the IR.

`onnx_ir`'s pass of the same purpose gives a sequence the type of a tensor, so the merge here is our own. What feeds a
loop is then followed once more, node by node, with the rules that bodies are inferred with (`patterns.types`): they
know that ``x[:, 0]`` has as many rows as ``x``, where ONNX's own inference makes up a new symbol.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from looplift.passes.walk import places
from looplift.patterns.types import Dim, Types, infer_node, is_public, tensor_shape
from looplift.patterns.values import nodes_within, subgraphs
from looplift.patterns.view import LoopView, is_loop, is_scan, view_of

logger = logging.getLogger(__name__)

LARGE = 1024
"""Elements. Initializers above this are described to the inference by their type only."""


def infer_shapes(model: ir.Model) -> bool:
    """Fills in types and shapes that the model leaves out. Declared ones stay. Preserves bits: nothing is computed.

    Legality: (1) only a value without a type gets one, only a shape without an extent gets that extent; (2) a model
    that the inference rejects is left as it is.
    """
    try:
        proto = ir.to_proto(_light_copy(model))
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        logger.debug("shape inference rejects the model: %s", error)
        return False
    changed = False
    for graph, found in _pairs(model.graph, inferred.graph):
        facts = {info.name: info.type for info in (*found.value_info, *found.output)}
        for value in (*(output for node in graph for output in node.outputs), *graph.outputs):
            if value.name in facts:
                changed |= _merge(value, facts[value.name])
    return name_extents(model) or changed


def forget_declared(model: ir.Model) -> None:
    """Takes away the shapes that Loop bodies declare of carried values and of what they compute inside.

    No engine checks them, and a constant that is made from a wrong one is wrong. The rank of the iteration number and
    the shapes of scan outputs stay: engines obey them.
    """
    for place in places(model):
        for node in place.graph:
            view = view_of(node, place.opset) if is_loop(node) else None
            if isinstance(view, LoopView):
                elements = {id(output.element) for output in view.scan_outputs}
                inner = [output for other in view.body for output in other.outputs if id(output) not in elements]
                for value in (*(carry.previous for carry in view.carries), *inner):
                    value.shape = None


def name_extents(model: ir.Model) -> bool:
    """Calls extents of what feeds loops by the names of the inputs' extents that they are equal to.

    Again after a loop was rewritten: what it stacks then has a known shape, and feeds the next loop.
    """
    opset = model.opset_imports.get("", 1)
    given = {dim.value for value in model.graph.inputs for dim in value.shape or () if not isinstance(dim, int)}
    feeds = _feeding_loops(model.graph)
    changed = False
    for node in model.graph:
        if node not in feeds:
            continue
        for value, fact in zip(node.outputs, infer_node(node, Types(), opset), strict=True):
            if fact.shape is None or value.is_graph_output():
                continue
            if value.shape is None and fact.dtype is not None:
                value.type = value.type or ir.TensorType(fact.dtype)
                value.shape, changed = ir.Shape([dim if is_public(dim) else None for dim in fact.shape]), True
            if value.shape is None or len(value.shape) != len(fact.shape):
                continue
            dims = [
                new if _is_better(old, new, given) else old for old, new in zip(value.shape, fact.shape, strict=True)
            ]
            if dims != list(value.shape):
                value.shape, changed = ir.Shape(dims), True
    return changed


def _feeding_loops(graph: ir.Graph) -> set[ir.Node]:
    """The nodes of the graph whose values reach a loop, directly or through others, inner graphs included."""
    found: set[ir.Node] = set()
    work = [node for node in graph if any(is_loop(inner) or is_scan(inner) for inner in [node, *_held(node)])]
    while work:
        node = work.pop()
        read = [value for reader in [node, *_held(node)] for value in reader.inputs if value is not None]
        for maker in (value.producer() for value in read):
            if maker is not None and maker.graph is graph and maker not in found:
                found.add(maker)
                work.append(maker)
    return found


def _held(node: ir.Node) -> list[ir.Node]:
    return [inner for graph in subgraphs(node) for inner in nodes_within(graph)]


def _is_better(old: int | ir.SymbolicDim, new: Dim, given: set[str | None]) -> bool:
    """Whether the inferred extent says more than the one that is there: a number, or an input's symbol."""
    if isinstance(old, int) or old.value in given:
        return False
    return isinstance(new, int) or new in given


def _pairs(graph: ir.Graph, proto: onnx.GraphProto) -> Iterator[tuple[ir.Graph, onnx.GraphProto]]:
    """The graph and those inside it, each with its serialised form: nodes stand in the same order."""
    yield graph, proto
    for node, node_proto in zip(graph, proto.node, strict=True):
        bodies = {attribute.name: attribute.g for attribute in node_proto.attribute if attribute.HasField("g")}
        for name, body in bodies.items():
            yield from _pairs(node.attributes[name].as_graph(), body)


def _light_copy(model: ir.Model) -> ir.Model:
    """A copy whose large initializers are inputs."""
    copy = model.clone()
    for name, value in list(copy.graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and tensor.size > LARGE:
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor_shape(tensor))
            del copy.graph.initializers[name]
            if not value.is_graph_input():
                copy.graph.inputs.append(value)
    return copy


def _merge(value: ir.Value, found: onnx.TypeProto) -> bool:
    changed = False
    if value.type is None and _is_read(found):
        value.type, changed = ir.serde.deserialize_type_proto_for_type(found), True
    if not isinstance(value.type, ir.TensorType) or not found.tensor_type.HasField("shape"):
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

"""Compile-time values: constants in every spelling, and expressions of them.

A value is constant if it is a Constant node's, an initializer that no caller can override, or computed from
constants by a pure op. Expressions are evaluated with onnx's reference implementation, small ones only: how large a
result gets is known before it is computed (`patterns.graph.budget`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from looplift.patterns.graph.budget import Array as Array
from looplift.patterns.graph.budget import budget
from looplift.patterns.graph.operators import Trait, has, has_references, is_standard

LIMIT = 4096
"""Elements. Larger tensors are never folded: the analysis asks about counters, bounds, axes and steps.

None of the values that go into a constant may be larger, or its bytes more than those of so many int64."""

UNKNOWN_EXTENT = -1
"""Stands for an extent that is not known among known ones, which are never negative."""

INT64_MAX, INT64_MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def constant(value: ir.Value | None, opset: int) -> Array | None:
    """The value's array if it is a compile-time constant of at most `LIMIT` elements, else None."""
    return _fold(value, opset, 0, {})


def scalar(value: ir.Value | None, opset: int) -> Any | None:
    """The Python scalar of a constant that has one element, else None."""
    array = constant(value, opset)
    return array.reshape(-1)[0].item() if array is not None and array.size == 1 else None


def _fold(value: ir.Value | None, opset: int, depth: int, known: dict[int, Array | None]) -> Array | None:
    """The array of a constant; each value is asked for once, or shared operands would double the work."""
    if value is None or depth > 64:
        return None
    if id(value) not in known:
        known[id(value)] = _fold_new(value, opset, depth, known)
    return known[id(value)]


def _fold_new(value: ir.Value, opset: int, depth: int, known: dict[int, Array | None]) -> Array | None:
    if value.is_initializer():
        # An initializer that is also a graph input is a default, not a constant.
        return None if value.is_graph_input() else _small(value.const_value)
    node = value.producer()
    if not is_standard(node):
        return None
    if node.op_type == "Constant":
        return _small(constant_tensor(value))
    if node.op_type == "Shape" or node.op_type in ("Gather", "Slice"):
        extents = _extents(value, opset, depth, known)
        if extents is not None or node.op_type == "Shape":
            return None if extents is None or (extents == UNKNOWN_EXTENT).any() else extents
    if node.op_type == "CastLike":
        return _cast_like(node, opset, depth, known)
    if not has(node, Trait.FOLDS) or has_references(node):
        return None
    arrays: list[Array | None] = []
    for operand in node.inputs:  # the first that is no constant ends the search
        arrays.append(None if operand is None else _fold(operand, opset, depth + 1, known))
        if operand is not None and arrays[-1] is None:
            return None
    if node.op_type in ("Div", "Mod") and not all(a is not None and (a > 0).all() for a in arrays):
        # onnx.reference rounds integer quotients down where the standard truncates; positive ones agree.
        return None
    return _evaluate(node, arrays, opset)


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of a Constant node's output or of an initializer, of any size; None for every other value."""
    node = value.producer()
    if node is None:
        return value.const_value
    if node.op_type != "Constant" or len(node.attributes) != 1:
        return None
    attribute = node.attributes.data.get("value")
    plain = attribute is not None and attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref()
    if attribute is None or not plain or node.domain != "" or len(node.outputs) != 1 or value.const_value is not None:
        return ir.convenience.get_const_tensor(value)
    # The same, without asking a typing Protocol whether this is a tensor, which took a fifth of all time.
    tensor: ir.TensorProtocol = attribute.value
    tensor.name = value.name
    return tensor


def _small(tensor: ir.TensorProtocol | None) -> Array | None:
    if tensor is None or tensor.size > LIMIT or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy()


def _extents(value: ir.Value, opset: int, depth: int, known: dict[int, Array | None]) -> Array | None:
    """What is taken from the shape of a value of known rank; `UNKNOWN_EXTENT` for an extent that is no number."""
    node = value.producer()
    if not is_standard(node, "Shape", "Cast", "Gather", "Slice") or has_references(node) or depth > 64:
        return None
    source = node.inputs[0]
    if source is None:
        return None
    if node.op_type == "Shape":
        dims = [dim if isinstance(dim, int) else UNKNOWN_EXTENT for dim in source.shape or ()]
        return None if source.shape is None else np.array(dims[shape_part(node)], np.int64)
    taken = _extents(source, opset, depth + 1, known)
    others = None if taken is None else [x if x is None else _fold(x, opset, depth + 1, known) for x in node.inputs[1:]]
    if others is None or any(x is not None and y is None for x, y in zip(node.inputs[1:], others, strict=True)):
        return None
    found = _evaluate(node, [taken, *others], opset)
    return found if found is not None and found.dtype in (np.int32, np.int64) else None


def shape_part(node: ir.Node) -> slice:
    """Which extents a Shape node gives: some of them from opset 15 on."""
    return slice(node.attributes.get_int("start", None), node.attributes.get_int("end", None))


def _cast_like(node: ir.Node, opset: int, depth: int, known: dict[int, Array | None]) -> Array | None:
    """CastLike needs only the type of its second input."""
    array, like = _fold(node.inputs[0], opset, depth + 1, known), node.inputs[1]
    if array is None or like is None or like.dtype is None:
        return None
    cast = ir.node("Cast", inputs=[ir.val("x")], attributes={"to": like.dtype})
    return _evaluate(cast, [array], max(opset, 9))


def _evaluate(node: ir.Node, arrays: list[Array | None], opset: int) -> Array | None:
    """Runs one node on its constant inputs, once.

    None if its result would be large, or the op itself refuses its inputs (the loop then meets the error).
    """
    proto = onnx.NodeProto(op_type=node.op_type)
    proto.input.extend("" if array is None else f"x{k}" for k, array in enumerate(arrays))
    proto.output.append("y")
    proto.attribute.extend(ir.to_proto(attr) for attr in node.attributes.values() if isinstance(attr, ir.Attr))
    feeds = {f"x{k}": array for k, array in enumerate(arrays) if array is not None}
    given = tuple((name, array.dtype.name, array.shape, array.tobytes()) for name, array in feeds.items())
    key, now = (proto.SerializeToString(deterministic=True), given, opset), budget()
    found: tuple[Array | None] | None = now.kept(key)
    if found is None:
        refusal = now.spend(node, arrays, LIMIT * 8)
        found = (None if refusal is not None else _run(proto, feeds, opset),)
        now.keep(key, found, sum(array.nbytes for array in (*feeds.values(), found[0]) if array is not None))
    return None if found[0] is None else found[0].copy()


def _run(proto: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> Array | None:
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    output = onnx.helper.make_value_info("y", onnx.TypeProto())
    graph = onnx.helper.make_graph([proto], "fold", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        results: list[Any] = list(ReferenceEvaluator(model).run(None, feeds))
    except Exception:
        return None
    return np.asarray(results[0])

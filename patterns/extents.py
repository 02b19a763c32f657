"""Shapes that a graph computes with: the numbers in a tensor made from Shape, Gather, Slice, Concat and constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from looplift.patterns.constants import constant

Dim = int | str | None
Dims = tuple[Dim, ...]
ShapeOf = Callable[[ir.Value], "Dims | None"]

COPIES = frozenset({"Identity", "Unsqueeze", "Squeeze", "Reshape"})


def entries(value: ir.Value | None, shape_of: ShapeOf, opset: int, depth: int = 0) -> Dims | None:
    """The entries of an integer tensor, flattened: numbers, symbols of extents, None for an unknown entry.

    Args:
        value: a tensor of rank 0 or 1 that holds extents, such as the second input of Expand.
        shape_of: the known shape of a value.
        opset: version of the default domain.
        depth: how far the search has come.

    Returns:
        One entry per element, or None if not even their number is known.
    """
    if value is None or depth > 32:
        return None
    array = constant(value, opset)
    if array is not None:
        return tuple(int(x) for x in array.reshape(-1)) if array.dtype.kind in "iu" else None
    node = value.producer()
    if node is not None and node.domain in ("", "ai.onnx") and not _has_references(node):
        found = _computed(node, shape_of, opset, depth)
        if found is not None:
            return found
    count = shape_of(value)
    return (None,) if count in ((), (1,)) else None


def _has_references(node: ir.Node) -> bool:
    return any(attribute.is_ref() for attribute in node.attributes.values())


def _computed(node: ir.Node, shape_of: ShapeOf, opset: int, depth: int) -> Dims | None:
    def inner(k: int) -> Dims | None:
        return entries(node.inputs[k], shape_of, opset, depth + 1) if k < len(node.inputs) else None

    def number(name: str, default: int | None) -> int | None:
        attribute = node.attributes.get(name)
        return attribute.as_int() if attribute is not None else default

    if node.op_type == "Shape" and node.inputs[0] is not None:
        shape = shape_of(node.inputs[0])
        return shape[slice(number("start", 0), number("end", None))] if shape is not None else None
    if node.op_type in COPIES:
        return inner(0)
    if node.op_type == "Cast" and node.attributes["to"].as_int() == ir.DataType.INT64:
        return inner(0)
    if node.op_type == "Concat":
        parts = [inner(k) for k in range(len(node.inputs))]
        return None if None in parts else tuple(dim for part in parts if part is not None for dim in part)
    if node.op_type in ("Gather", "Slice"):
        whole = inner(0)
        return None if whole is None else (_gathered if node.op_type == "Gather" else _sliced)(node, whole, opset)
    return None


def _gathered(node: ir.Node, whole: Dims, opset: int) -> Dims | None:
    index = constant(node.inputs[1], opset)
    if index is None or not all(-len(whole) <= k < len(whole) for k in index.reshape(-1)):
        return None
    return tuple(whole[int(k)] for k in index.reshape(-1))


def _sliced(node: ir.Node, whole: Dims, opset: int) -> Dims | None:
    if len(node.inputs) < 3:
        return None
    starts, ends = (constant(node.inputs[k], opset) for k in (1, 2))
    steps = constant(node.inputs[4], opset) if len(node.inputs) > 4 else np.ones(1, np.int64)
    if any(array is None or array.size != 1 for array in (starts, ends, steps)):
        return None
    start, end, step = (int(array.reshape(-1)[0]) for array in (starts, ends, steps) if array is not None)
    return whole[start:end:step] if step > 0 else None


def expanded(shape: Dims | None, target: Dims | None) -> Dims | None:
    """The result's shape of Expand: both broadcast together."""
    if shape is None or target is None:
        return None
    rank = max(len(shape), len(target))
    pairs = zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(target)) + target, strict=True)
    return tuple(_broadcast(left, right) for left, right in pairs)


def _broadcast(left: Dim, right: Dim) -> Dim:
    if left == right:
        return left
    if left == 1 or right == 1:
        return right if left == 1 else left
    # Extents that differ and go together: the one that is known not to be 1 is the result.
    known = [dim for dim in (left, right) if isinstance(dim, int)]
    return known[0] if len(known) == 1 else None


def reshaped(shape: Dims | None, target: Dims | None, *, allow_zero: bool) -> Dims | None:
    """The result's shape of Reshape: 0 copies an extent (unless `allow_zero`), one -1 takes what is left."""
    if target is None:
        return None
    dims: list[Dim] = []
    for axis, dim in enumerate(target):
        if dim == 0 and not allow_zero:
            dims.append(shape[axis] if shape is not None and axis < len(shape) else None)
        elif isinstance(dim, str) and not allow_zero and (shape is None or axis >= len(shape) or shape[axis] != dim):
            # A symbol may stand for zero, which copies.
            dims.append(None)
        else:
            dims.append(dim)
    if target.count(-1) != 1 or shape is None:
        return tuple(None if dim == -1 else dim for dim in dims)
    total, rest = _product(shape), _product(tuple(dim for dim in dims if dim != -1))
    inferred = total // rest if total is not None and rest else None
    return tuple(inferred if dim == -1 else dim for dim in dims)


def _product(dims: Dims) -> int | None:
    result = 1
    for dim in dims:
        if not isinstance(dim, int):
            return None
        result *= dim
    return result

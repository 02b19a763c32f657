"""Integer body values that count: first + stride * iteration, both compile-time constants."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.constants import constant, scalar
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import LoopView, View

LIMIT = 2**31
"""Bound on `first` and `stride`, so that no int64 arithmetic on them wraps in a loop that can be run."""

LONGEST = 2**26
"""Iterations that a loop of unknown length is expected not to exceed, while it counts in int32."""

COPIES = frozenset({"Identity", "Squeeze", "Unsqueeze", "Reshape", "Cast"})


@dataclasses.dataclass(frozen=True)
class Index:
    """The value in iteration k is ``first + stride * k``, in a tensor of one element."""

    first: int
    stride: int

    def lowest(self, view: View) -> int | None:
        """A bound on every iteration's value from below, None if there is none to be seen."""
        if self.stride >= 0:
            return self.first
        last = last_iteration(view)
        return None if last is None else self.first + self.stride * last


def last_iteration(view: View) -> int | None:
    """The number of the last iteration that a constant trip limit allows, None without one."""
    limit = scalar(view.max_trip, view.opset) if isinstance(view, LoopView) and view.max_trip is not None else None
    return max(limit - 1, 0) if isinstance(limit, int) and limit <= LIMIT else None


def index_of(value: ir.Value | None, view: View, types: Types) -> Index | None:
    """The counting form of a body value of one element, or None if it has none.

    Only int64 and int32 arithmetic is followed, where no step of it wraps in a loop that can be run.
    """
    return None if value is None else _index(value, view, types, 0)


def _index(value: ir.Value | None, view: View, types: Types, depth: int) -> Index | None:
    """The counting form, if it holds for every iteration."""
    found = _counting(value, view, types, depth) if value is not None else None
    return None if found is None or value is None or _wraps(found, types[value].dtype, view) else found


def _wraps(index: Index, dtype: ir.DataType | None, view: View) -> bool:
    """Whether the numbers may leave the range of their type in an iteration that can be reached."""
    if abs(index.first) > LIMIT or abs(index.stride) > LIMIT:
        return True
    if dtype == ir.DataType.INT64:
        return False
    last = last_iteration(view)
    return abs(index.first) + abs(index.stride) * (LONGEST if last is None else last) >= 2**31


def _counting(value: ir.Value, view: View, types: Types, depth: int) -> Index | None:
    if isinstance(view, LoopView) and value is view.iteration:
        return Index(0, 1)
    if depth > 32:
        return None
    array = constant(value, view.opset)
    if array is not None:
        return Index(int(array.reshape(-1)[0]), 0) if array.size == 1 and array.dtype.kind in "iu" else None
    node = value.producer()
    if node is None or node.graph is not view.body or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in COPIES or (node.op_type == "Concat" and len(node.inputs) == 1):
        dtype = types[value].dtype
        integer = dtype in (ir.DataType.INT64, ir.DataType.INT32)
        return _index(node.inputs[0], view, types, depth + 1) if integer and node.inputs[0] is not None else None
    if node.op_type == "Where":
        return _wrapped(node, view, types, depth)
    if node.op_type not in ("Add", "Sub", "Mul") or len(node.inputs) != 2:
        return None
    left, right = (None if x is None else _index(x, view, types, depth + 1) for x in node.inputs)
    if left is None or right is None:
        return None
    if node.op_type == "Add":
        return Index(left.first + right.first, left.stride + right.stride)
    if node.op_type == "Sub":
        return Index(left.first - right.first, left.stride - right.stride)
    if left.stride and right.stride:
        return None
    return Index(left.first * right.first, left.first * right.stride + left.stride * right.first)


def _wrapped(node: ir.Node, view: View, types: Types, depth: int) -> Index | None:
    """``where(i < 0, i + extent, i)``: how indices that may be negative are read. One that never is stays."""
    test = node.inputs[0].producer() if node.inputs[0] is not None else None
    if test is None or test.op_type != "Less" or test.domain not in ("", "ai.onnx") or node.inputs[2] is None:
        return None
    tested, bound = (None if x is None else _index(x, view, types, depth + 1) for x in test.inputs)
    if tested is None or bound is None or bound.stride != 0:
        return None
    lowest = tested.lowest(view)
    if lowest is None or lowest < bound.first:
        return None
    return _index(node.inputs[2], view, types, depth + 1)


__all__ = ["Index", "index_of"]

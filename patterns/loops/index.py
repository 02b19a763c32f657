"""Integer body values that count: first + stride * iteration + trips * trip count, all three compile-time constants."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.constants import constant, scalar
from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.shapes import entries
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import LoopView, View
from looplift.patterns.loops.trip import Counted, Trip, trip_of

LIMIT = 2**31
"""Bound on `first` and `stride`, so that no int64 arithmetic on them wraps in a loop that can be run."""

LONGEST = 2**26
"""Iterations that a loop of unknown length is expected not to exceed, while it counts in int32."""


@dataclasses.dataclass(frozen=True)
class Index:
    """The value in iteration k of T is ``first + stride * k + trips * T``, in a tensor of one element."""

    first: int
    stride: int
    trips: int = 0

    def lowest(self, view: View) -> int | None:
        """A bound on every iteration's value from below, None if there is none to be seen."""
        if self.trips == 1:
            return self.first + 1 if self.stride >= -1 else None
        if self.trips:
            return None
        if self.stride >= 0:
            return self.first
        last = last_iteration(view)
        return None if last is None else self.first + self.stride * last

    def highest(self, view: View) -> int | None:
        """A bound on every iteration's value from above, None if there is none to be seen."""
        if self.trips or self.stride <= 0:
            return None if self.trips else self.first
        last = last_iteration(view)
        return None if last is None else self.first + self.stride * last


def last_iteration(view: View) -> int | None:
    """The number of the last iteration that a constant trip limit allows, None without one."""
    limit = scalar(view.max_trip, view.opset) if isinstance(view, LoopView) and view.max_trip is not None else None
    return max(limit - 1, 0) if isinstance(limit, int) and limit <= LIMIT else None


def index_of(value: ir.Value | None, view: View, types: Types) -> Index | None:
    """The counting form of a body value of one element, without the trip count in it; None if it has none.

    Only int64 and int32 arithmetic is followed, where no step of it wraps in a loop that can be run.
    """
    return None if value is None else _Count(view, types, None).index(value)


def index_by_trips(value: ir.Value | None, view: View, types: Types) -> Index | None:
    """The counting form of a body value of one element, of which the trip count may be a part, as in ``n - 1 - i``."""
    trip = trip_of(view, types)
    return None if value is None else _Count(view, types, None if isinstance(trip, Refusal) else trip).index(value)


def backwards(index: Index, trip: Trip) -> bool:
    """Whether it is the number of a row, of as many as there are iterations, from the last one to the first."""
    if isinstance(trip.extent, int):
        return index.stride == -1 and index.first + index.trips * trip.extent in (-1, trip.extent - 1)
    return index in (Index(-1, -1), Index(-1, -1, 1))


@dataclasses.dataclass(frozen=True)
class _Count:
    """What is followed: the values of a loop, with the trip count if that may be a part of them."""

    view: View
    types: Types
    trip: Trip | None

    def index(self, value: ir.Value | None, depth: int = 0) -> Index | None:
        """The counting form, if it holds for every iteration."""
        found = self._counting(value, depth) if value is not None else None
        return None if found is None or value is None or self._wraps(found, self.types[value].dtype) else found

    def _wraps(self, index: Index, dtype: ir.DataType | None) -> bool:
        """Whether the numbers may leave the range of their type in an iteration that can be reached."""
        if abs(index.first) > LIMIT or abs(index.stride) > LIMIT or abs(index.trips) > 1:
            return True
        if dtype == ir.DataType.INT64:
            return False
        last = last_iteration(self.view)
        furthest = LONGEST if last is None or index.trips else last
        return abs(index.first) + (abs(index.stride) + abs(index.trips)) * furthest >= 2**31

    def _counting(self, value: ir.Value, depth: int) -> Index | None:
        view = self.view
        if isinstance(view, LoopView) and value is view.iteration:
            return Index(0, 1)
        if depth > 32:
            return None
        array = constant(value, view.opset)
        if array is not None:
            return Index(int(array.reshape(-1)[0]), 0) if array.size == 1 and array.dtype.kind in "iu" else None
        if self._is_trip_count(value):
            return Index(0, 0, 1)
        node = value.producer()
        if not is_standard(node) or (self.trip is None and node.graph is not view.body):
            return None
        if has(node, Trait.RESHAPES) or node.op_type == "Cast" or (node.op_type == "Concat" and len(node.inputs) == 1):
            integer = self.types[value].dtype in (ir.DataType.INT64, ir.DataType.INT32)
            return self.index(node.inputs[0], depth + 1) if integer and node.inputs[0] is not None else None
        if node.op_type == "Where":
            return self._wrapped(node, depth)
        if node.op_type not in ("Add", "Sub", "Mul") or len(node.inputs) != 2:
            return None
        left, right = (self.index(x, depth + 1) for x in node.inputs)
        return None if left is None or right is None else _combined(node.op_type, left, right)

    def _is_trip_count(self, value: ir.Value) -> bool:
        """Whether the value is the number of iterations wherever one runs: as extent, or as what limits the loop."""
        if self.trip is None or self.types[value].dtype != ir.DataType.INT64:
            return False
        if isinstance(self.trip, Counted) and source(value) is source(self.trip.max_trip):
            return True
        found = entries(value, lambda other: self.types[other].shape, self.view.opset)
        return found is not None and len(found) == 1 and found[0] is not None and found[0] == self.trip.extent

    def _wrapped(self, node: ir.Node, depth: int) -> Index | None:
        """``where(i < 0, i + extent, i)``: how indices that may be negative are read. One that never is stays."""
        test = node.inputs[0].producer() if node.inputs[0] is not None else None
        if not is_standard(test, "Less") or node.inputs[2] is None:
            return None
        tested, bound = (self.index(x, depth + 1) for x in test.inputs)
        if tested is None or bound is None or bound.stride != 0 or bound.trips != 0:
            return None
        lowest = tested.lowest(self.view)
        if lowest is None or lowest < bound.first:
            return None
        return self.index(node.inputs[2], depth + 1)


def _combined(op_type: str, left: Index, right: Index) -> Index | None:
    if op_type == "Add":
        return Index(left.first + right.first, left.stride + right.stride, left.trips + right.trips)
    if op_type == "Sub":
        return Index(left.first - right.first, left.stride - right.stride, left.trips - right.trips)
    if left.stride or left.trips:
        left, right = right, left
    if left.stride or left.trips:
        return None
    return Index(left.first * right.first, left.first * right.stride, left.first * right.trips)


__all__ = ["Index", "backwards", "index_by_trips", "index_of"]

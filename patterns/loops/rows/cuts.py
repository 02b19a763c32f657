"""Slices that cut one row per iteration: ``x[i : i + 1]``, and what exporters write for it.

Slice clamps its bounds, so past the end of the tensor it gives no row where Gather fails. A cut is called a row
cut if it gives one row, or else the loop fails anyway; then reading row i by Gather instead changes nothing.

Obligations: (1) one axis is cut; (2) the start counts and is never negative and the step is positive, so that a
cut of one row is row `start`, but for the third case below; (3) one of

* every iteration's start lies inside the tensor and the end is start + 1 (both known);
* whoever reads the cut drops its axis with Squeeze, which fails unless the extent is 1;
* the same, and of the start nothing is known, but the end is start + 1, or both end and step lie past every extent:
  then it is the start counted from the end if negative that is read, where there is such a row (`Negative`);
* the end is start + 1, iteration 0 starts inside the tensor, and a cut without a row changes the shape of a scan
  output, which fails: the elements of a scan output must all have one shape (Loop and Scan, all versions).
"""

from __future__ import annotations

import dataclasses
import enum

import onnx_ir as ir

from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.slices import known_axes, slice_bounds
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import is_used, origin
from looplift.patterns.graph.view import View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.index import Index, index_of
from looplift.patterns.loops.trip import Trip

GATHER_FROM_THE_END = 11
"""Opset from which Gather takes negative indices."""

PAST = 2**29
"""Exporters write such numbers for "to the end". A tensor's axis is shorter."""


class Negative(enum.Enum):
    """What the row cut does where its start is negative; with N rows, -N is row 0, as for Gather.

    Attributes:
        NEVER: it never is.
        LAST_FAILS: -1 cuts no row, since the end is 0, nor does what is below -N.
        CLAMPED: -1 cuts the last row; what is below -N cuts row 0.
    """

    NEVER = enum.auto()
    LAST_FAILS = enum.auto()
    CLAMPED = enum.auto()


@dataclasses.dataclass(frozen=True)
class RowCut:
    """One Slice: reads a row of ``data`` along `axis` and keeps the axis; `starts` is the [1] tensor.

    Attributes:
        index: how the start counts, if it does and is never negative.
        one_long: whether the end is the start plus 1.
        negative: what happens where the start is negative.
    """

    node: ir.Node
    data: ir.Value
    starts: ir.Value
    axis: int
    index: Index | None
    one_long: bool
    negative: Negative = Negative.NEVER

    @property
    def cut(self) -> ir.Value:
        """The Slice's output."""
        return self.node.outputs[0]


def row_cuts(view: View, outer: Types, trip: Trip, *, certain: bool = False) -> tuple[dict[int, RowCut], Types]:
    """The proven row cuts of a body by their node's identity, and the body's types given that they cut one row.

    Args:
        view: the loop.
        outer: facts outside it.
        trip: its trip count.
        certain: only cuts that give one row in every execution, none of those with which the loop fails otherwise:
            for rewrites that may take away what fails.
    """
    types = outer.with_body(view)
    dependence = Dependence(view, types)
    found = [cut for node in view.body if (cut := _candidate(node, view, types, dependence)) is not None]
    while found:
        assumed = {id(cut.cut): _with_extent(types, cut, 1) for cut in found}
        types_if = outer.with_body(view, assumed)
        proven = [cut for cut in found if _proven(cut, view, types_if, trip, certain=certain)]
        if len(proven) == len(found):
            return {id(cut.node): cut for cut in found}, types_if
        found = proven
    return {}, types


def _candidate(node: ir.Node, view: View, types: Types, dependence: Dependence) -> RowCut | None:
    if not is_standard(node, "Slice") or len(node.inputs) < 3:
        return None
    data, starts, ends = node.inputs[:3]
    if data is None or starts is None or ends is None or dependence.invariant(starts):
        return None
    bounds, rank = slice_bounds(node, view.opset, 1), types[data].rank
    axes, step = bounds.axes, bounds.steps
    if rank is None or axes is None or len(axes) != 1 or types[starts].shape != (1,) or not -rank <= axes[0] < rank:
        return None
    if not step or step[0] < 1:
        return None
    start, end = index_of(starts, view, types), index_of(ends, view, types)
    lowest = start.lowest(view) if start is not None else None
    if start is not None and lowest is not None and lowest >= 0:
        return RowCut(node, data, starts, axes[0] % rank, start, end == Index(start.first + 1, start.stride))
    if view.opset >= GATHER_FROM_THE_END and _follows(ends, starts, view.opset):
        return RowCut(node, data, starts, axes[0] % rank, None, one_long=True, negative=Negative.LAST_FAILS)
    if view.opset >= GATHER_FROM_THE_END and step[0] >= PAST and _is_past(ends, view.opset):
        return RowCut(node, data, starts, axes[0] % rank, None, one_long=False, negative=Negative.CLAMPED)
    return None


def _is_past(value: ir.Value, opset: int) -> bool:
    """Whether a bound of one element lies past every extent: a large number, or the maximum with one."""
    number, node = scalar(value, opset), value.producer()
    if number is not None or not is_standard(node):
        return number is not None and number >= PAST
    if node.op_type in ("Cast", "Identity") and node.inputs[0] is not None:
        return _is_past(node.inputs[0], opset)
    return node.op_type == "Max" and any(x is not None and (scalar(x, opset) or 0) >= PAST for x in node.inputs)


def _follows(after: ir.Value, before: ir.Value, opset: int) -> bool:
    """Whether one [1] tensor is the other plus 1, for certain."""
    after, before = _bare(after), _bare(before)
    node = after.producer()
    if not is_standard(node, "Add"):
        return False
    left, right = node.inputs
    if left is None or right is None:
        return False
    return any(_bare(x) is before and scalar(y, opset) == 1 for x, y in ((left, right), (right, left)))


def _bare(value: ir.Value) -> ir.Value:
    """A tensor of one element before copies that change at most its shape, or int32 into int64."""
    return origin(value, _keeps_number)


def _keeps_number(node: ir.Node) -> bool:
    widens = node.op_type == "Cast" and node.attributes.get_int("to", None) == ir.DataType.INT64
    return widens or has(node, Trait.RESHAPES) or (node.op_type == "Concat" and len(node.inputs) == 1)


def _with_extent(types: Types, cut: RowCut, extent: int) -> TensorType:
    whole = types[cut.data]
    shape = whole.shape or ()
    return TensorType(whole.dtype, (*shape[: cut.axis], extent, *shape[cut.axis + 1 :]))


def _proven(cut: RowCut, view: View, types: Types, trip: Trip, *, certain: bool) -> bool:
    if not certain and _dropped_by_squeeze(cut, types, view.opset):
        return True
    if not cut.one_long or cut.index is None:
        return False
    inside = in_range(types[cut.data], cut.index, cut.axis, trip)
    return inside or (not certain and _changes_a_scan_output(cut, view, types))


def in_range(whole: TensorType, index: Index, axis: int, trip: Trip) -> bool:
    """Whether every iteration's index lies inside the axis, for certain."""
    extent = whole.shape[axis] if whole.shape is not None else None
    if isinstance(extent, str) and extent == trip.extent:
        return index == Index(0, 1)
    if not isinstance(extent, int) or trip.static is None:
        return False
    if trip.static == 0:
        return True
    ends = index.first, index.first + index.stride * (trip.static - 1)
    return min(ends) >= 0 and max(ends) < extent


def _dropped_by_squeeze(cut: RowCut, types: Types, opset: int) -> bool:
    rank = types[cut.data].rank
    if cut.cut.is_graph_output() or not is_used(cut.cut) or rank is None:
        return False
    for usage in cut.cut.uses():
        reader = usage.node
        if not is_standard(reader, "Squeeze"):
            return False
        axes = known_axes(reader, opset)
        if axes is None or cut.axis not in [axis % rank for axis in axes]:
            return False
    return True


def _changes_a_scan_output(cut: RowCut, view: View, types: Types) -> bool:
    extent = (types[cut.data].shape or ())[cut.axis]
    if not isinstance(extent, int) or cut.index is None or not cut.index.first < extent:
        return False
    empty = types.one_iteration(view, {id(cut.cut): _with_extent(types, cut, 0)})
    for output in view.scan_outputs:
        usual, without = types[output.element].shape, empty[output.element].shape
        if usual is None or without is None or len(usual) != len(without):
            continue
        if any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(usual, without, strict=True)):
            return True
    return False

"""Gather and Slice over time: reading by the iteration number becomes reading all rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.vectorize.axes import shifted
from looplift.passes.vectorize.context import OverTime, Rule
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.loops.index import Index, backwards, index_by_trips
from looplift.patterns.loops.rows.cuts import Negative, RowCut


def gather(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Gather: rows of an invariant tensor at indices that vary, the same places of a tensor that varies, or both.

    An index out of range fails over time as it does in the loop.
    """
    data, indices = node.inputs
    assert data is not None
    assert indices is not None
    axis = node.attributes.get_int("axis", 0)
    (place,) = shifted(over, node, [axis], over.rank(data))
    if over.varies(data) and over.varies(indices):
        return [_gathered_each(over, node, data, indices, place - over.lead)]
    if over.varies(data):
        return [over.emit.op("Gather", [over.stack(data), over.outside(indices)], {"axis": place})]
    return [read_rows(over, data, indices, place - over.lead, over.rank(indices))]


def read_rows(over: OverTime, data: ir.Value, indices: ir.Value, axis: int, index_rank: int) -> ir.Value:
    """``data`` at the index of every iteration along `axis`: [T, before axis, index axes, behind axis]."""
    source = over.outside(data)
    index = index_by_trips(indices, over.view, over.types) if index_rank == 0 else None
    if index is not None and has_a_row_each(over, data, axis):
        if index == Index(0, 1):
            return over.emit.move_axis(source, over.rank(data), axis, 0)
        if backwards(index, over.trip) and over.emit.opset >= 10:
            return over.emit.flip(over.emit.move_axis(source, over.rank(data), axis, 0))
    return gathered(over, data, over.stack(indices), axis, index_rank)


def gathered(over: OverTime, data: ir.Value, indices: ir.Value, axis: int, index_rank: int) -> ir.Value:
    """``data`` at a stack of indices, time first."""
    picked = over.emit.op("Gather", [over.outside(data), indices], {"axis": axis})
    # Gather puts all axes of the index where `axis` was; the leading ones go to the front.
    total = over.rank(data) - 1 + index_rank + over.lead
    lead = list(range(axis, axis + over.lead))
    return over.emit.transpose(picked, [*lead, *(k for k in range(total) if k not in lead)])


def _gathered_each(over: OverTime, node: ir.Node, data: ir.Value, indices: ir.Value, axis: int) -> ir.Value:
    """Every iteration's tensor at its own indices, by GatherND along time: [T, before, indices, behind]."""
    if over.lead > 1:
        raise Refused(Refusal("both the tensor and the indices of Gather vary, behind a batch axis", node))
    if over.emit.opset < 12:
        raise Refused(Refusal("both the tensor and the indices of Gather vary, which needs opset 12", node))
    emit, rank, places = over.emit, over.rank(data), over.rank(indices)
    rows = emit.move_axis(over.stack(data), rank + 1, axis + 1, 1)
    numbers = over.stack(indices)
    if over.types[indices].dtype != ir.DataType.INT64:
        numbers = emit.op("Cast", [numbers], {"to": int(ir.DataType.INT64)})
    picked = emit.op("GatherND", [rows, emit.unsqueeze(numbers, [places + 1])], {"batch_dims": 1})
    before = range(places + 1, places + 1 + axis)  # these axes stood in front of the one that was read
    order = [0, *before, *range(1, places + 1), *range(places + 1 + axis, places + rank)]
    return emit.transpose(picked, order)


def has_a_row_each(over: OverTime, data: ir.Value, axis: int) -> bool:
    """Whether there are as many rows as iterations, for certain."""
    shape = over.types[data].shape
    extent = shape[axis] if shape is not None else None
    return extent is not None and extent == over.trip.extent


def gather_elements(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """GatherElements: both repeated over time, the axis behind it."""
    data, indices = node.inputs
    assert data is not None
    assert indices is not None
    axis = node.attributes.get_int("axis", 0)
    axis = axis % over.rank(data) + over.lead
    return [over.emit.op("GatherElements", [over.stack(data), over.stack(indices)], {"axis": axis})]


def slice_(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Slice: of a tensor that varies at bounds that do not, or one row of an invariant tensor at a counting start."""
    data = node.inputs[0]
    assert data is not None
    bounds = [value for value in node.inputs[1:] if value is not None]
    if not any(over.varies(value) for value in bounds):
        return [_same_slice(over, node, data)]
    if over.varies(data):
        raise Refused(Refusal("both the tensor and the bounds of Slice vary", node))
    cut = over.row_cuts.get(id(node))
    if cut is None:
        raise Refused(Refusal("Slice at varying bounds may cut more or less than one row", node))
    # The start has shape [1], so reading at it keeps the axis.
    if cut.negative is Negative.NEVER:
        return [read_rows(over, data, cut.starts, cut.axis, 1)]
    return [gathered(over, data, _as_gather_counts(over, data, cut), cut.axis, 1)]


def _as_gather_counts(over: OverTime, data: ir.Value, cut: RowCut) -> ir.Value:
    """The starts of all iterations, so that Gather reads what Slice cuts and fails where Slice cuts nothing."""
    emit, starts = over.emit, over.stack(cut.starts)
    dtype = int(emit.type_of(starts).dtype or ir.DataType.INT64)
    extent = emit.op("Cast", [emit.extent(over.outside(data), cut.axis)], {"to": dtype})
    if cut.negative is Negative.LAST_FAILS:
        minus_one = emit.op("Cast", [emit.const(-1)], {"to": dtype})
        return emit.op("Where", [emit.op("Equal", [starts, minus_one]), extent, starts])
    first = emit.op("Neg", [extent])
    return emit.op("Where", [emit.op("Less", [starts, first]), first, starts])


def _same_slice(over: OverTime, node: ir.Node, data: ir.Value) -> ir.Value:
    rank = over.rank(data)
    if "starts" in node.attributes:
        starts = list(node.attributes["starts"].as_ints())
        axes = list(node.attributes["axes"].as_ints()) if "axes" in node.attributes else list(range(len(starts)))
        return over.emit.op("Slice", [over.stack(data)], {**node.attributes, "axes": shifted(over, node, axes, rank)})
    _, starts_in, ends_in, axes_in, steps_in = [*node.inputs, None, None][:5]
    assert starts_in is not None
    assert ends_in is not None
    axes = _axes(over, node, starts_in, axes_in)
    steps = [over.outside(steps_in)] if steps_in is not None else []
    # Slice wants its axes in the type of its bounds.
    narrow = over.types[starts_in].dtype == ir.DataType.INT32
    bounds = [
        over.outside(starts_in),
        over.outside(ends_in),
        over.emit.const(shifted(over, node, axes, rank), np.int32 if narrow else np.int64),
    ]
    return over.emit.op("Slice", [over.stack(data), *bounds, *steps])


def _axes(over: OverTime, node: ir.Node, starts: ir.Value, axes: ir.Value | None) -> list[int]:
    if axes is not None:
        array = constant(axes, over.view.opset)
        if array is None:
            raise Refused(Refusal("the axes of Slice are not constant", node))
        return [int(axis) for axis in array.reshape(-1)]
    shape = over.types[starts].shape
    if shape is None or not isinstance(shape[0], int):
        raise Refused(Refusal("how many axes Slice cuts is not known", node))
    return list(range(shape[0]))


RULES: dict[str, Rule] = {"Gather": gather, "GatherElements": gather_elements, "Slice": slice_}

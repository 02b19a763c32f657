"""Gather and Slice over time: reading by the iteration number becomes reading all rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.over_time.context import NotOverTime, OverTime, Rule
from looplift.patterns.constants import constant
from looplift.patterns.index import Index, index_of
from looplift.patterns.proof import Refusal
from looplift.patterns.values import is_used


def gather(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Gather: rows of an invariant tensor at indices that vary, or the same places of a tensor that varies.

    An index out of range fails over time as it does in the loop.
    """
    data, indices = node.inputs
    assert data is not None and indices is not None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    axis %= over.rank(data)
    if over.varies(data) and over.varies(indices):
        raise NotOverTime(Refusal("both the tensor and the indices of Gather vary", node))
    if over.varies(data):
        return [over.emit.op("Gather", [over.stack(data), over.outside(indices)], {"axis": axis + over.lead})]
    return [read_rows(over, data, indices, axis, over.rank(indices))]


def read_rows(over: OverTime, data: ir.Value, indices: ir.Value, axis: int, index_rank: int) -> ir.Value:
    """``data`` at the index of every iteration along `axis`: [T, before axis, index axes, behind axis]."""
    source = over.outside(data)
    if index_rank == 0 and reads_every_row(over, data, index_of(indices, over.view, over.types), axis):
        return over.emit.move_axis(source, over.rank(data), axis, 0)
    picked = over.emit.op("Gather", [source, over.stack(indices)], {"axis": axis})
    # Gather puts all axes of the index where `axis` was; the leading ones go to the front.
    total = over.rank(data) - 1 + index_rank + over.lead
    lead = list(range(axis, axis + over.lead))
    return over.emit.transpose(picked, [*lead, *(k for k in range(total) if k not in lead)])


def reads_every_row(over: OverTime, data: ir.Value, index: Index | None, axis: int) -> bool:
    """Whether iteration k reads row k, and there are as many rows as iterations, for certain."""
    shape = over.types[data].shape
    extent = shape[axis] if shape is not None else None
    return index == Index(0, 1) and extent is not None and extent == over.trip.static


def gather_elements(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """GatherElements: both repeated over time, the axis behind it."""
    data, indices = node.inputs
    assert data is not None and indices is not None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
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
        raise NotOverTime(Refusal("both the tensor and the bounds of Slice vary", node))
    return [_counting_row(over, node, data)]


def _same_slice(over: OverTime, node: ir.Node, data: ir.Value) -> ir.Value:
    rank = over.rank(data)
    if "starts" in node.attributes:
        starts = list(node.attributes["starts"].as_ints())
        axes = list(node.attributes["axes"].as_ints()) if "axes" in node.attributes else list(range(len(starts)))
        shifted = [axis % rank + over.lead for axis in axes]
        return over.emit.op("Slice", [over.stack(data)], {**node.attributes, "axes": shifted})
    _, starts_in, ends_in, axes_in, steps_in = [*node.inputs, None, None][:5]
    assert starts_in is not None and ends_in is not None
    axes = _axes(over, node, starts_in, axes_in)
    shifted = [axis % rank + over.lead for axis in axes]
    steps = [over.outside(steps_in)] if steps_in is not None else []
    bounds = [over.outside(starts_in), over.outside(ends_in), over.emit.const(shifted)]
    return over.emit.op("Slice", [over.stack(data), *bounds, *steps])


def _axes(over: OverTime, node: ir.Node, starts: ir.Value, axes: ir.Value | None) -> list[int]:
    if axes is not None:
        array = constant(axes, over.view.opset)
        if array is None:
            raise NotOverTime(Refusal("the axes of Slice are not constant", node))
        return [int(axis) for axis in array.reshape(-1)]
    shape = over.types[starts].shape
    if shape is None or not isinstance(shape[0], int):
        raise NotOverTime(Refusal("how many axes Slice cuts is not known", node))
    return list(range(shape[0]))


def _counting_row(over: OverTime, node: ir.Node, data: ir.Value) -> ir.Value:
    """``data[i : i + n]`` along one axis, where it can only be one row or an error: the row, with its axis kept.

    Legality: (1) one axis is cut; (2) the start counts and is never negative, the step is positive, so the first
    row cut is row `start`; (3) either the cut is one row long for certain (the end is start + 1 and the tensor is
    long enough), or whoever reads the cut fails unless it is one row long (Squeeze of that axis).
    """
    _, starts, ends, axes_in, steps = [*node.inputs, None, None][:5]
    assert starts is not None and ends is not None
    axes = _axes(over, node, starts, axes_in)
    if len(axes) != 1:
        raise NotOverTime(Refusal("Slice cuts more than one axis at bounds that vary", node))
    rank = over.rank(data)
    axis = axes[0] % rank
    start, end = (index_of(value, over.view, over.types) for value in (starts, ends))
    if start is None or not start.never_negative:
        raise NotOverTime(Refusal("the start of Slice does not count up from zero or more", node))
    step = constant(steps, over.view.opset) if steps is not None else None
    if steps is not None and (step is None or int(step.reshape(-1)[0]) < 1):
        raise NotOverTime(Refusal("the step of Slice is not a positive constant", node))
    one_row = steps is None and end == Index(start.first + 1, start.stride) and in_range(over, data, start, axis)
    if not one_row and not fails_unless_one_row(over, node, axis, rank):
        raise NotOverTime(Refusal("Slice may cut past the end of the tensor, where it gives no row", node))
    return _rows(over, data, starts, axis)


def _rows(over: OverTime, data: ir.Value, starts: ir.Value, axis: int) -> ir.Value:
    """The start has shape [1], so reading at it keeps the axis."""
    rank = over.types[starts].rank
    if rank != 1:
        raise NotOverTime(Refusal("the start of Slice is no vector", starts.producer()))
    return read_rows(over, data, starts, axis, 1)


def in_range(over: OverTime, data: ir.Value, index: Index, axis: int) -> bool:
    """Whether every iteration's index lies inside the axis, for certain."""
    shape = over.types[data].shape
    extent = shape[axis] if shape is not None else None
    count = over.trip.static
    if not isinstance(extent, int) or count is None:
        return False
    return count == 0 or index.first + index.stride * (count - 1) < extent


def fails_unless_one_row(over: OverTime, node: ir.Node, axis: int, rank: int) -> bool:
    """Whether every reader of the cut drops its axis with Squeeze, which fails unless the extent is 1."""
    cut = node.outputs[0]
    if cut.is_graph_output() or not is_used(cut):
        return False
    return all(_squeezes(over, usage.node, axis, rank) for usage in cut.uses())


def _squeezes(over: OverTime, reader: ir.Node, axis: int, rank: int) -> bool:
    if reader.op_type != "Squeeze" or reader.domain not in ("", "ai.onnx"):
        return False
    if "axes" in reader.attributes and not reader.attributes["axes"].is_ref():
        axes = list(reader.attributes["axes"].as_ints())
    else:
        array = constant(reader.inputs[1], over.view.opset) if len(reader.inputs) > 1 else None
        axes = [] if array is None else [int(x) for x in array.reshape(-1)]
    return axis in [x % rank for x in axes]


RULES: dict[str, Rule] = {"Gather": gather, "GatherElements": gather_elements, "Slice": slice_}

"""Rows that a loop writes into a tensor one by one become a scan output, written in one go.

``out[i] = v`` exports as a ScatterND on a carried tensor, which copies the whole tensor in every iteration.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.passes.stack.stacking import (
    detach,
    exchange,
    fill,
    first_found,
    is_fixed,
    is_positive,
    is_static,
    may_run_zero_times,
    only_returned,
    with_rows_of,
    without_axis,
)
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import has_subgraphs, maker, source
from looplift.patterns.graph.view import Carry, View
from looplift.patterns.loops.index import Index, backwards, index_by_trips
from looplift.patterns.loops.rows.grids import slice_write
from looplift.patterns.loops.trip import Counted, trip_of

OLDEST = 11
"""Opset of ScatterND and Range."""


@dataclasses.dataclass(frozen=True)
class StackScatters:
    """Replaces rows written at ``first + stride * iteration`` of a carried tensor by a scan output.

    Legal if
    1. the carry is updated by a ScatterND (no reduction) that writes one row (the indices have one element), or one
       slice along another axis (`patterns.loops.rows.grids`);
    2. the index in iteration k of T is ``first + stride * k``, or ``T + first + stride * k``, with constants
       (`patterns.loops.index`), and each row is written once: the stride is not 0, and the index is negative in all
       iterations (then it counts from the end) or in none;
    3. the body reads the tensor otherwise at most for its shape, which the writes do not change;
    4. the opset is 11 or later.

    The rows are then written by one ScatterND outside, at the same places: an index out of range fails as before.
    A slice without elements is written nowhere, in the loop or outside, whatever its index.
    Where the tensor has, for certain, as many rows as iterations run and all are written, it is the stack itself.
    Rows of the wrong shape fail in both. Preserves bits: values are only stored elsewhere.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such tensor of the model in place; whether there was one."""
        return rewrite_loops(model, lambda view, types: _stack_one(view, types, journal))


@dataclasses.dataclass(frozen=True)
class RowWrites:
    """A carry of which one row is written per iteration: at `index` along `axis`.

    `row` has axes of extent 1 that the row itself has not: `extra`, to be taken out one after the other. Rows that are
    `elementwise` have an index for each element, and none where they have no elements.
    """

    carry: Carry
    scatter: ir.Node
    row: ir.Value
    extra: tuple[int, ...]
    axis: int
    index: Index
    elementwise: bool
    shape_reads: tuple[tuple[ir.Node, int], ...]


def row_writes_of(view: View, carry: Carry, types: Types) -> RowWrites | Refusal | None:
    """How the body writes rows of the carry; None if no ScatterND updates it."""
    node = source(carry.updated).producer()
    if not is_standard(node, "ScatterND") or node.graph is not view.body:
        return None
    if node.inputs[0] is not carry.previous or len(node.inputs) != 3:
        return None
    if node.attributes.get_string("reduction", "none") != "none":
        return Refusal("ScatterND combines what it writes with what was there", node)
    if not only_returned(carry.updated) or carry.previous.is_graph_output():
        return Refusal(f"the body reads '{carry.updated.name}' after writing to it", node)
    indices, row = node.inputs[1], node.inputs[2]
    shape, written = types[indices].shape, types[carry.previous].shape
    if row is None or indices is None or not shape:
        return Refusal("more than one row may be written per iteration", node)
    axis, extra, index = 0, (0,) * (len(shape) - 1), index_by_trips(indices, view, types)
    elementwise = any(dim != 1 for dim in shape)
    if elementwise:
        slices = slice_write(indices, written, view, types) if written is not None else None
        if slices is None:
            return Refusal("more than one row may be written per iteration", node)
        axis, extra, index = slices.axis, (slices.axis,), slices.index
    if index is None or not _writes_each_row_once(index, view):
        return Refusal("the index is not known to be a row of its own in every iteration", node)
    reads = tuple((user, k) for user, k in carry.previous.uses() if (user, k) != (node, 0))
    for user, k in reads:
        if not _reads_shape_only(user, k):
            return Refusal(f"the body reads '{carry.previous.name}', whose rows it writes", user)
    return RowWrites(carry, node, row, extra, axis, index, elementwise, reads)


def _writes_each_row_once(index: Index, view: View) -> bool:
    lowest, highest = index.lowest(view), index.highest(view)
    of_one_sign = (lowest is not None and lowest >= 0) or (highest is not None and highest < 0)
    return index.stride != 0 and of_one_sign


def _reads_shape_only(node: ir.Node, position: int) -> bool:
    """Whether what the node computes from this input depends, as far as it is used, on the input's shape only."""
    if not is_standard(node) or position != 0 or has_subgraphs(node):
        return False
    if has(node, Trait.ASKS_SHAPE):
        return True
    if not has(node, Trait.SHAPE_FOLLOWS) or node.outputs[0].is_graph_output():
        return False
    return all(_reads_shape_only(user, k) for user, k in node.outputs[0].uses())


def _stack_one(view: View, types: Types, journal: Journal) -> ir.Node | None:
    if view.opset < OLDEST:  # as Scan-8 is, whose tensors have a batch axis
        return None
    inner = types_inside(view, types)
    writes = first_found(view, lambda carry: row_writes_of(view, carry, inner), journal)
    return None if writes is None else _rewrite(view, writes, inner, journal)


def _rewrite(view: View, writes: RowWrites, types: Types, journal: Journal) -> ir.Node:
    carry, axis = writes.carry, writes.axis
    initial, guard = types[carry.initial].shape, may_run_zero_times(view, types)
    trip = trip_of(view, types)
    from_the_end = not isinstance(trip, Refusal) and backwards(writes.index, trip)
    in_order = writes.index == Index(0, 1) or from_the_end
    in_all_rows = in_order and _rows_are_iterations(view, carry.initial, axis, types)
    for user, k in writes.shape_reads:
        user.replace_input_with(k, carry.initial)
    element, row = writes.row, types[writes.row]
    for place in writes.extra:
        element, row = without_axis(view, element, row, place, types)
    hole = detach(carry)
    (stack,) = exchange(view, carry, [(element, row)])
    # Types of values that the rewrite removed must not outlive them: what is written sees the model alone.
    emit = Emitter(view.opset, Types())
    rows = stack.value
    # ScatterND refuses rows of another shape than the tensor's; so must what stands for it.
    fits = initial is not None and row.shape == initial[:axis] + initial[axis + 1 :]
    covered = in_all_rows and fits and is_fixed(row)
    if guard and not (fits and is_static(row)):
        rows = with_rows_of(emit, rows, _row_shape(emit, carry.initial, axis))
    rank = len(initial or ())
    if covered:
        result = emit.move_axis(emit.flip(rows) if from_the_end else rows, rank, 0, axis)
    else:
        target = emit.move_axis(carry.initial, rank, axis, 0) if axis else carry.initial
        count = emit.extent(stack.value, 0)
        if writes.elementwise and not is_positive(row):
            # The loop looks at no index of a row without elements: neither may this.
            none = emit.op("Equal", [emit.op("Size", [rows]), emit.const(0)])
            count = emit.op("Where", [none, emit.const(0), count])
            rows = emit.op("Slice", [rows, emit.const([0]), emit.unsqueeze(count, [0]), emit.const([0])])
        result = emit.op("ScatterND", [target, _indices(emit, count, writes.index), rows])
        result = emit.move_axis(result, rank, 0, axis) if axis else result
    fill(hole, emit, result)
    journal.did(stack.view.node, f"made the rows written to '{carry.previous.name}' a scan output")
    return stack.view.node


def _row_shape(emit: Emitter, tensor: ir.Value, axis: int) -> ir.Value:
    """The extents of a tensor without those of one axis."""
    shape = emit.op("Shape", [tensor])
    behind = emit.slice(shape, axis + 1, INT64_MAX, 0)
    return emit.op("Concat", [emit.slice(shape, 0, axis, 0), behind], {"axis": 0}) if axis else behind


def _indices(emit: Emitter, count: ir.Value, index: Index) -> ir.Value:
    """The rows that `count` iterations wrote: first, first + stride, ... as int64 of shape [count, 1]."""
    start, end = emit.const(index.first), emit.op("Mul", [count, emit.const(index.stride)])
    if index.stride == 1:
        end = count
    if index.trips:
        start = emit.op("Add", [count, start])
    if index.trips or index.first:
        end = emit.op("Add", [end, start])
    return emit.unsqueeze(emit.op("Range", [start, end, emit.const(index.stride)]), [1])


def _rows_are_iterations(view: View, initial: ir.Value, axis: int, types: Types) -> bool:
    """Whether the tensor has as many rows along the axis as iterations run, for certain."""
    trip, shape = trip_of(view, types), types[initial].shape
    if isinstance(trip, Refusal) or not shape:
        return False
    if shape[axis] is not None and shape[axis] == trip.extent:
        return True
    # A tensor made with M rows: making it fails if M is negative, so M iterations run.
    if not isinstance(trip, Counted) or trip.condition is not None:
        return False
    return _number_of_rows(initial, axis, types) is source(trip.max_trip)


def _number_of_rows(value: ir.Value, axis: int, types: Types) -> ir.Value | None:
    """The scalar that ConstantOfShape is given as the number of rows, if the graph shows it."""
    made = maker(source(value), "ConstantOfShape")
    shape = made.inputs[0] if made is not None else None
    joined = _made(shape, "Concat")
    parts = list(joined.inputs) if joined is not None else [shape]
    if axis >= len(parts) or any(types[part].shape != (1,) for part in parts[: axis + 1]):
        return None
    entry = _made(parts[axis], "Unsqueeze")
    number = entry.inputs[0] if entry is not None else None
    return source(number) if number is not None and types[number].rank == 0 else None


def _made(value: ir.Value | None, op_type: str) -> ir.Node | None:
    return None if value is None else maker(source(value), op_type)

"""Tensors that a loop grows by Concat become scan outputs.

``acc = Concat(acc, e)`` copies everything gathered so far in every iteration; a scan output copies each row once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.passes.stack.chosen import compute_always, kept_in_branches, speculated
from looplift.passes.stack.stacking import (
    can_join,
    detach,
    exchange,
    fill,
    first_found,
    join_rows,
    may_run_zero_times,
    only_returned,
    with_rows_of,
    without_axis,
)
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import TensorType, Types, infer_node
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry, LoopView, View
from looplift.patterns.loops.rows.appends import Appended, Path, branches
from looplift.patterns.loops.speculation import Speculation

OLDEST = 10
"""Opset from which a slice may have a step, which reversing needs."""


@dataclasses.dataclass(frozen=True)
class StackConcats:
    """Replaces a tensor that a Loop grows along an axis by a scan output, joined to the initial value outside.

    Legal if
    1. the carry is updated by a Concat that has it once, as the first input or as the last, and the body reads it
       nowhere else; or by choice, in one branch of an If (or of Ifs in one another) whose other branches return it, and
       what is appended can be computed where it is not chosen, as the conditions inside branches can
       (`patterns.loops.speculation`);
    2. the ranks of the initial value and of what is appended are known and equal;
    3. what is appended has the same extent along the axis in every iteration (proven from the types; the other
       extents Concat itself demands to be equal, and a scan output does too: an error stays an error);
    4. where more than one element is appended, the extents are known to be positive or the opset is 14, which can
       reshape to extents of zero; the opset is 10 or later.

    With zero iterations the initial value comes back, whatever the shape of the rows would have been.
    What is appended by choice is stacked in every iteration, and what was chosen is taken out of the stack by Compress.
    Preserves bits: values are only stored elsewhere.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such tensor of the model in place; whether there was one."""
        return rewrite_loops(model, lambda view, types: _stack_one(view, types, journal))


@dataclasses.dataclass(frozen=True)
class Growth:
    """A carry that grows: `pieces` are concatenated to it along `axis`, in front or behind.

    `piece` is the type of them all, joined; `path` leads to the choice by which it grows, `speculation` out of it.
    """

    carry: Carry
    pieces: tuple[ir.Value, ...]
    piece: TensorType
    axis: int
    in_front: bool
    path: Path
    speculation: Speculation


def growth_of(view: LoopView, carry: Carry, types: Types) -> Growth | Refusal | None:
    """How the carry grows by Concat; None if no Concat updates it."""
    update = _update_of(view, carry)
    if update is None:
        return None
    node = update.concat
    places = [k for k, value in enumerate(node.inputs) if value is carry.previous]
    if len(places) != 1 or len(node.inputs) < 2:
        return None
    if len(carry.previous.uses()) != 1 + len(update.path) or carry.previous.is_graph_output():
        return Refusal(f"the body reads '{carry.previous.name}', which it concatenates to, elsewhere too", node)
    if not all(map(only_returned, update.results)):
        return Refusal(f"the body reads the concatenated '{carry.updated.name}' again", node)
    if places[0] not in (0, len(node.inputs) - 1):
        return Refusal(f"'{carry.previous.name}' grows on both sides", node)
    pieces = tuple(value for value in node.inputs if value is not None and value is not carry.previous)
    always = speculated(view, [Appended(value, update.path) for value in pieces], types)
    if isinstance(always, Refusal):
        return always
    types = always.types
    piece, rank = _joined_type(pieces, node, types, view.opset), types[carry.initial].rank
    axis = node.attributes.get_int("axis", None)
    if axis is None:
        return Refusal("the axis of Concat is not known", node)
    if rank is None or piece.rank != rank or not -rank <= axis < rank:
        return Refusal("the ranks of what is concatenated are not known", node)
    axis %= rank
    if not can_join(piece, axis, view.opset):
        return Refusal("the extent by which the tensor grows is not known to be the same in every iteration", node)
    return Growth(carry, pieces, piece, axis, places[0] != 0, update.path, always)


@dataclasses.dataclass(frozen=True)
class _Update:
    """The Concat that updates a carry, the branches that it stands in, and what body and branches return of it.

    The other branches return the carry: each by one copy.
    """

    concat: ir.Node
    path: Path
    results: tuple[ir.Value, ...]


def _update_of(view: LoopView, carry: Carry) -> _Update | None:
    result, graph, path, results = carry.updated, view.body, Path(), [carry.updated]
    while (node := source(result).producer()) is not None and node.graph is graph and is_standard(node):
        k = source(result).index()
        if node.op_type == "Concat":
            return _Update(node, path, tuple(results))
        if node.op_type != "If" or k is None:
            return None
        growing = [(taken, branch) for taken, branch in branches(node) if not _returns(branch, k, carry)]
        if len(growing) != 1:
            return None
        taken, graph = growing[0]
        path, result = (*path, (node, taken)), graph.outputs[k]
        results.append(result)
    return None


def _returns(branch: ir.Graph, k: int, carry: Carry) -> bool:
    """Whether the branch returns a copy of the carry there, which it does not read."""
    result = branch.outputs[k]
    node = result.producer()
    copies = node is not None and node.op_type == "Identity" and node.inputs[0] is carry.previous
    return copies and not result.uses() and sum(output is result for output in branch.outputs) == 1


def _joined_type(pieces: tuple[ir.Value, ...], concat: ir.Node, types: Types, opset: int) -> TensorType:
    if len(pieces) == 1:
        return types[pieces[0]]
    probe = ir.node("Concat", inputs=list(pieces), attributes=dict(concat.attributes))
    fact = infer_node(probe, types, opset)[0]
    for k in range(len(pieces)):
        probe.replace_input_with(k, None)
    return fact


def _stack_one(view: View, types: Types, journal: Journal) -> ir.Node | None:
    if not isinstance(view, LoopView) or view.opset < OLDEST:
        return None
    inner = types_inside(view, types)

    def find(carry: Carry) -> Growth | Refusal | None:
        growth = growth_of(view, carry, inner)
        return (isinstance(growth, Growth) and kept_in_branches(growth.speculation, journal)) or growth

    growth = first_found(view, find, journal)
    return None if growth is None else _rewrite(view, growth, inner, journal)


def _rewrite(view: LoopView, growth: Growth, types: Types, journal: Journal) -> ir.Node:
    axis, initial = growth.axis, types[growth.carry.initial]
    rank, guard = len(initial.shape or ()), may_run_zero_times(view, types)
    chosen = [Appended(value, growth.path) for value in growth.pieces]
    always = compute_always(view, growth.carry, chosen, growth.speculation)
    element, row, single = _piece(always.view, growth, always.values, growth.speculation.types)
    hole = detach(always.carry)
    flag = TensorType(ir.DataType.BOOL, ())
    stack, *tests = exchange(
        always.view, always.carry, [(element, row), *((value, flag) for value in always.flags[:1])]
    )
    # Types of values that the rewrite removed must not outlive them: what is written sees the model alone.
    emit = Emitter(view.opset, Types())
    rows = emit.op("Compress", [stack.value, tests[0].value], {"axis": 0}) if tests else stack.value
    rows = emit.flip(rows) if growth.in_front else rows
    others = _without(initial.shape or (), axis)
    settled = others == _without(growth.piece.shape or (), axis) and all(isinstance(dim, int) for dim in others)
    if guard and not settled:
        rows = with_rows_of(emit, rows, _row_shape(emit, growth, rank, single=single))
    tail = emit.move_axis(rows, rank, 0, axis) if single else join_rows(emit, rows, row, axis)
    if settled and (initial.shape or ())[axis] == 0:
        result = tail
    else:
        ends = [growth.carry.initial, tail]
        result = emit.op("Concat", ends[::-1] if growth.in_front else ends, {"axis": axis})
    fill(hole, emit, result)
    journal.did(stack.view.node, f"made the concatenated '{growth.carry.previous.name}' a scan output")
    return stack.view.node


def _piece(
    view: LoopView, growth: Growth, pieces: Sequence[ir.Value], types: Types
) -> tuple[ir.Value, TensorType, bool]:
    """What to stack per iteration, its type, and whether an axis of extent 1 was taken out of it."""
    value, fact = pieces[0], growth.piece
    if len(pieces) > 1:
        node = ir.node("Concat", inputs=pieces, attributes={"axis": growth.axis})
        node.outputs[0].type = value.type
        view.body.append(node)
        value = node.outputs[0]
    if (fact.shape or ())[growth.axis] != 1:
        return value, fact, False
    return *without_axis(view, value, fact, growth.axis, types), True


def _without(shape: tuple[object, ...], axis: int) -> tuple[object, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _row_shape(emit: Emitter, growth: Growth, rank: int, *, single: bool) -> ir.Value:
    """The shape of one row, with the initial value's extents on the other axes: 1-D int64."""
    axis, extent = growth.axis, (growth.piece.shape or ())[growth.axis]
    shape = emit.op("Shape", [growth.carry.initial])
    parts = [emit.slice(shape, 0, axis, 0)] if axis else []
    if not single:
        # Used for a stack without rows only, where a symbol may stand for any number.
        parts.append(emit.const([extent if isinstance(extent, int) else 1]))
    if axis + 1 < rank:
        parts.append(emit.slice(shape, axis + 1, INT64_MAX, 0))
    if not parts:
        return emit.const([])
    return parts[0] if len(parts) == 1 else emit.op("Concat", parts, {"axis": 0})

"""Sequences that a loop appends to become scan outputs.

Appending to a sequence copies it in every engine we know: 10,000 appends take ONNX Runtime 0.7 s. A scan output
takes one copy per row, and it is what the recurrence ops can make.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.passes.stack.chosen import compute_always, kept_in_branches, speculated
from looplift.passes.stack.stacking import (
    can_join,
    exchange,
    first_found,
    insert_after,
    is_fixed,
    is_positive,
    is_static,
    join_rows,
    may_run_zero_times,
    with_rows_of,
)
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import is_used
from looplift.patterns.graph.view import Carry, LoopView, View
from looplift.patterns.loops.rows.appends import Appends, appends_of, is_sequence
from looplift.patterns.loops.speculation import Speculation

READERS = frozenset({"ConcatFromSequence", "SequenceAt", "SequenceLength"})


@dataclasses.dataclass(frozen=True)
class StackSequences:
    """Replaces a sequence that a Loop grows by a scan output.

    Legal if
    1. the carry starts as SequenceEmpty or SequenceConstruct and is only inserted into, always at the end or always
       at the front (`patterns.loops.rows.appends`), the body reads of it at most its length;
    2. an element that is inserted by choice (in branches of Ifs) is computed of nodes that can't fail where it is not
       chosen (`patterns.loops.speculation`), nor can the conditions inside branches, and the body reads no length;
    3. the final sequence is read only by ConcatFromSequence, SequenceAt with a scalar index, and SequenceLength,
       and is no output of a graph;
    4. all elements have one shape: proven from the types, or demanded by a ConcatFromSequence with ``new_axis=1``
       right beside the loop, which fails otherwise (so does the scan output: an error stays an error) unless elements
       are left out;
    5. the rank is known where an axis other than the first is meant, the shape where rows are joined;
    6. several appends per iteration, and joins along an axis of more than one element, have positive extents, or the
       opset is 14, which can reshape to extents of zero.

    Elements that are inserted by choice are stacked in every iteration, beside the choice, and those that were chosen
    are taken out of the stack by Compress. Preserves bits: values are only stored elsewhere. One error becomes a
    result: concatenating a sequence of no elements fails in ONNX, a scan output of zero rows does not. The journal
    says so.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such sequence of the model in place; whether there was one."""
        return rewrite_loops(model, lambda view, types: _stack_one(view, types, journal))


@dataclasses.dataclass(frozen=True)
class _Plan:
    appends: Appends
    speculation: Speculation
    facts: tuple[TensorType, ...]
    readers: tuple[ir.Node, ...]

    @property
    def row(self) -> TensorType:
        """What is known of every element: they have one shape."""
        return next((fact for fact in self.facts if is_static(fact)), self.facts[0])

    @property
    def settled(self) -> bool:
        """Whether the elements' shape is known in numbers, and the same for those the sequence starts with."""
        return all(is_static(fact) and fact.shape == self.facts[0].shape for fact in self.facts)


def _stack_one(view: View, types: Types, journal: Journal) -> ir.Node | None:
    """Rewrites the first sequence carry that can be; gives the rebuilt loop."""
    if not isinstance(view, LoopView):
        return None
    inner = types_inside(view, types)

    def find(carry: Carry) -> _Plan | Refusal | None:
        plan = _plan(view, carry, inner) if is_sequence(carry.initial) else None
        return (isinstance(plan, _Plan) and kept_in_branches(plan.speculation, journal)) or plan

    plan = first_found(view, find, journal)
    return None if plan is None else _rewrite(view, plan, inner, journal)


def _plan(view: LoopView, carry: Carry, types: Types) -> _Plan | Refusal:
    appends = appends_of(view, carry)
    if isinstance(appends, Refusal):
        return appends
    assert carry.final is not None
    if carry.final.is_graph_output():
        return Refusal(f"the sequence '{carry.final.name}' is itself an output of the graph", view.node)
    uses = carry.final.uses()
    readers = tuple(node for node, _ in uses)
    for node in readers:
        if node.op_type not in READERS or not is_standard(node):
            return Refusal("the sequence is read by an op that has no counterpart on a tensor", node)
    always = speculated(view, appends.elements, types)
    if isinstance(always, Refusal):
        return always
    elements = (element.value for element in appends.elements)
    facts = tuple(always.types[value] for value in (*appends.head, *elements))
    plan = _Plan(appends, always, facts, readers)
    if not _one_shape(view, facts, () if appends.chosen else readers):
        told = ", ".join(dict.fromkeys(map(str, facts)))
        return Refusal(f"the elements of '{carry.final.name}' may differ in length: each is {told}", view.node)
    if len(appends.elements) > 1 and view.opset < 14 and not is_positive(plan.row):
        return Refusal("several appends per iteration need a Reshape of opset 14", view.node)
    refusals = (_reader_refusal(node, plan, types, view.opset) for node in readers)
    return next((refusal for refusal in refusals if refusal is not None), plan)


def _one_shape(view: LoopView, facts: tuple[TensorType, ...], readers: tuple[ir.Node, ...]) -> bool:
    if all(is_fixed(fact) and fact.shape == facts[0].shape for fact in facts):
        return True
    return any(_stacks(node) and node.graph is view.node.graph and is_used(node.outputs[0]) for node in readers)


def _stacks(node: ir.Node) -> bool:
    return node.op_type == "ConcatFromSequence" and node.attributes.get_int("new_axis", 0) == 1


def _reader_refusal(node: ir.Node, plan: _Plan, types: Types, opset: int) -> Refusal | None:
    row = plan.row
    if node.op_type == "SequenceAt" and not _is_scalar(node.inputs[1], types, opset):
        return Refusal("the index is not known to be a scalar", node)
    if node.op_type != "ConcatFromSequence":
        return None
    if has_references(node) or "axis" not in node.attributes:
        return Refusal("the axis is not known", node)
    axis, new = node.attributes.get_int("axis", 0), node.attributes.get_int("new_axis", 0)
    if new and axis == 0:
        return None
    rank = None if row.rank is None else row.rank + new
    if rank is None or not -rank <= axis < rank:
        return Refusal("the rank of the elements is not known, or the axis is out of range", node)
    if not new and not can_join(row, axis, opset):
        return Refusal("the extents of the elements are not known to be the same, or opset 14 is needed", node)
    return None


def _is_scalar(value: ir.Value | None, types: Types, opset: int) -> bool:
    folded = constant(value, opset)
    return folded.ndim == 0 if folded is not None else types[value].rank == 0


def _rewrite(view: LoopView, plan: _Plan, types: Types, journal: Journal) -> ir.Node:
    appends, row = plan.appends, plan.row
    final = appends.carry.final
    assert final is not None
    # Types of values that the rewrite removes must not outlive them: what is written sees the model alone.
    emit = Emitter(view.opset, Types())
    guard = may_run_zero_times(view, types)
    _replace_lengths(view, appends)
    always = compute_always(view, appends.carry, appends.elements, plan.speculation)
    # The readers give up the sequence before the loop does.
    anchors = [(node, list(node.inputs)) for node in plan.readers]
    for node, _ in anchors:
        node.replace_input_with(0, None)
    flag = TensorType(ir.DataType.BOOL, ())
    facts = plan.facts[len(appends.head) :]
    stored = [*zip(always.values, facts, strict=True), *((value, flag) for value in always.flags)]
    stacks = exchange(always.view, always.carry, stored)
    loop, values = stacks[0].view.node, [stack.value for stack in stacks]
    rows, chosen = values[: len(facts)], values[len(facts) :]
    stack = _assemble(emit, rows, chosen, appends, guard=guard and not plan.settled)
    insert_after(emit, loop)
    for node, inputs in anchors:
        _convert(node, inputs, stack, row, view.opset)
    name = final.name or appends.carry.previous.name
    journal.did(loop, f"made the sequence '{name}' a scan output (concatenating it no longer fails when it is empty)")
    return loop


def _replace_lengths(view: LoopView, appends: Appends) -> None:
    """Length before an iteration: iteration number times elements per iteration, plus what it starts with."""
    for node in appends.lengths:
        emit = Emitter(view.opset, Types())
        number = emit.op("Reshape", [view.iteration, emit.const([])])
        if len(appends.elements) != 1:
            number = emit.op("Mul", [number, emit.const(len(appends.elements))])
        if appends.head:
            number = emit.op("Add", [number, emit.const(len(appends.head))])
        emit.insert_before(node)
        replace_value(node.outputs[0], number)
        node.replace_input_with(0, None)


def _assemble(
    emit: Emitter, stacks: list[ir.Value], chosen: list[ir.Value], appends: Appends, *, guard: bool
) -> ir.Value:
    """All elements in order as one tensor ``[total, *row]``; by choice only those that were chosen."""
    stack, flags = stacks[0], chosen[:1]
    if len(chosen) > 1:
        side = emit.op("Concat", [emit.unsqueeze(value, [1]) for value in chosen], {"axis": 1})
        flags = [emit.op("Reshape", [side, emit.const([-1])])]
    if len(stacks) > 1:
        # [n, *row] each, laid side by side as [n, k, *row], then n and k become one axis.
        side = emit.op("Concat", [emit.unsqueeze(value, [1]) for value in stacks], {"axis": 1})
        shape = emit.op("Shape", [stack])
        total = emit.op("Mul", [emit.slice(shape, 0, 1, 0), emit.const([len(stacks)])])
        target = emit.op("Concat", [total, emit.slice(shape, 1, (1 << 63) - 1, 0)], {"axis": 0})
        allow: dict[str, ir.Attr | int | list[int]] = {"allowzero": 1} if emit.opset >= 14 else {}
        stack = emit.op("Reshape", [side, target], allow)
    if flags:
        stack = emit.op("Compress", [stack, *flags], {"axis": 0})
    if appends.in_front:
        stack = emit.flip(stack)
    if not appends.head:
        return stack
    if guard:
        stack = with_rows_of(emit, stack, emit.op("Shape", [appends.head[0]]))
    head = [emit.unsqueeze(value, [0]) for value in appends.head]
    return emit.op("Concat", [stack, *head] if appends.in_front else [*head, stack], {"axis": 0})


def _convert(node: ir.Node, inputs: list[ir.Value | None], stack: ir.Value, row: TensorType, opset: int) -> None:
    """Replaces a reader of the sequence by its counterpart on the stack."""
    emit = Emitter(opset, Types())
    if node.op_type == "SequenceLength":
        result = emit.extent(stack, 0)
    elif node.op_type == "SequenceAt":
        result = emit.op("Gather", [stack, inputs[1]], {"axis": 0})
    else:
        axis, new = node.attributes.get_int("axis", 0), node.attributes.get_int("new_axis", 0)
        if new:
            result = stack if axis == 0 else emit.move_axis(stack, (row.rank or 0) + 1, 0, axis % ((row.rank or 0) + 1))
        else:
            result = join_rows(emit, stack, row, axis % (row.rank or 1))
    emit.insert_before(node)
    replace_value(node.outputs[0], result)
    graph = node.graph
    if graph is not None:
        graph.remove(node, safe=True)

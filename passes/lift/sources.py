"""The stacks of a loop's own moving parts: iteration number, scan elements, states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import not_negative, to_scalar, to_vector
from looplift.passes.recurrences.additions import all_additions, of_iterations
from looplift.passes.recurrences.cells import CellSeries
from looplift.passes.recurrences.cells import all_steps as all_cell_steps
from looplift.passes.recurrences.nested import all_steps, by_iteration, outer_states
from looplift.passes.recurrences.nodes import add_step, linear_recurrence, new_node, prefix_sum
from looplift.passes.recurrences.resets import all_states
from looplift.passes.recurrences.running_flag import counted
from looplift.passes.recurrences.running_flag import flags as flags_of
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.own_nodes import flag
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.shapes import advice
from looplift.patterns.graph.speculatable import broadcast_surely
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry, LoopView, ScanInput, View
from looplift.patterns.loops.evolution import (
    Additions,
    AddStep,
    CellState,
    Continued,
    Evolution,
    LinearRecurrence,
    PrefixSum,
    Resets,
    RunningFlag,
)
from looplift.patterns.loops.trip import Scanned, Trip
from looplift.patterns.recurrences.recurrence import RecurrenceProof


class MovingParts:
    """What moves in one loop, as stacks outside it: iteration number, scan elements, states of its carries.

    A carry's node is made when its first stack or final value is asked for, one for the states before each step
    and one for those after, as needed; what nobody asks for is not computed.
    """

    def __init__(
        self,
        view: View,
        trip: Trip,
        answers: Mapping[int, RecurrenceProof | Refusal],
        emit: Emitter,
        overwritten: Set[int],
    ) -> None:
        self._view, self._trip, self._answers, self._emit = view, trip, answers, emit
        self._is_overwritten = overwritten
        self._nodes: dict[tuple[int, bool], ir.Node] = {}
        self._busy: set[int] = set()
        self._overwritten: dict[int, ir.Value] = {}
        self._cells: dict[int, CellSeries] = {}
        self._with_resets: dict[int, ir.Value] = {}
        self._count: ir.Value | None = None

    @property
    def nodes(self) -> Sequence[tuple[RecurrenceProof, ir.Node]]:
        """The recurrence nodes made so far, with the proof of each."""
        found = [(self._answers[index], node) for (index, _), node in self._nodes.items()]
        states = [(answer, self._cell_of(index)) for index, answer in self._answers.items()]
        made = [
            (answer, self._cells[id(state.node)].node)
            for answer, state in states
            if state and id(state.node) in self._cells
        ]
        found += made
        return [(proof, node) for proof, node in found if isinstance(proof, RecurrenceProof)]

    def stack(self, value: ir.Value, over: OverTime) -> ir.Value | None:
        """The stack of a body input or of a carry's updated value; None if it is neither."""
        view = self._view
        if isinstance(view, LoopView):
            if value is view.iteration:
                return self._iterations(over)
            if value is view.condition_in:
                return self._cond_inputs(over)
        for item in view.scan_inputs:
            if value is item.element:
                return self._scan_input(item, over)
        for carry in view.carries:
            if value is carry.previous:
                return self._states(carry, over, previous=True)
            cell = self._cell_of(carry.index)
            if cell is not None and value.producer() is cell.node:
                return self._cell(carry, cell, over).stack(value.index() or 0, over, cell.node)
            if cell is None and source(value) is source(carry.updated) and self._is_recurrence(carry):
                return self._states(carry, over, previous=False)
            inner = self._inner(carry)
            if inner is not None and any(value is rows for rows in inner.node.outputs[1:]):
                node = self._node(carry, over, previous=flag(inner.node, "emit_previous"))
                return by_iteration(node.outputs[1], inner, over)
        return None

    def may_grow(self, value: ir.Value) -> bool:
        """Whether the value is a state that the first step may give another shape, so that without one it has not the
        shape that the body says."""
        value = source(value)
        return any(source(carry.updated) is value and self._may_grow(carry) for carry in self._view.carries)

    def _may_grow(self, carry: Carry) -> bool:
        proof = self._answers[carry.index]
        if not isinstance(proof, RecurrenceProof) or not isinstance(proof.evolution, AddStep):
            return False
        read = [carry.initial, *(term.value for term in proof.evolution.steps)]
        return not broadcast_surely([self._emit.type_of(value).shape for value in read if value is not None])

    def final(self, carry: Carry, over: OverTime) -> ir.Value:
        """The carry's value after the last iteration, or its initial value if there is none."""
        if carry.index in self._is_overwritten:
            return self._emit.op("Gather", [self._with_initial(carry, over), self._emit.const(-1)], {"axis": 0})
        cell = self._cell_of(carry.index)
        if cell is not None:
            return self._cell(carry, cell, over).finals[cell.place]
        if isinstance(self._evolution(carry), Resets):
            return self._emit.op("Gather", [self._reset_states(carry, over), self._emit.const(-1)], {"axis": 0})
        made = [self._nodes[key] for key in ((carry.index, True), (carry.index, False)) if key in self._nodes]
        state = (made[0] if made else self._node(carry, over, previous=False)).outputs[0]
        evolution = self._evolution(carry)
        return flags_of(state, evolution, self._emit) if isinstance(evolution, RunningFlag) else state

    def _evolution(self, carry: Carry) -> Evolution | None:
        proof = self._answers[carry.index]
        return proof.evolution if isinstance(proof, RecurrenceProof) else None

    def trip_count(self, emit: Emitter) -> ir.Value:
        """The number of iterations, an int64 scalar, written once."""
        if self._count is None:
            self._count = self._make_count(emit)
        return self._count

    def _is_recurrence(self, carry: Carry) -> bool:
        return isinstance(self._answers[carry.index], RecurrenceProof)

    def _make_count(self, emit: Emitter) -> ir.Value:
        trip = self._trip
        if trip.static is not None:
            return emit.const(trip.static)
        if isinstance(trip, Scanned):
            return emit.extent(trip.over.outer, self._scan_axis(trip.over, emit))
        return not_negative(emit, trip.max_trip, trip.condition)

    def _scan_axis(self, item: ScanInput, emit: Emitter) -> int:
        if self._view.batched:
            return 1
        if item.axis < 0:
            if item.outer.shape is None:
                raise Refused(Refusal(f"the number of axes of '{item.outer.name}' is not known", self._view.node))
            return item.axis + len(item.outer.shape)
        return item.axis

    def _iterations(self, over: OverTime) -> ir.Value:
        """0, 1, 2, ... as int64, with the rank that the body gives its iteration number.

        A Range to a negative M would be empty too; but ONNX Runtime makes one Slice of a Gather of a Range, and then M
        counts from the end.
        """
        emit, rank = self._emit, over.rank(self._view.body.inputs[0])
        if self._trip.static is not None and self._trip.static <= 1024:
            stack = emit.const(np.arange(self._trip.static, dtype=np.int64))
        elif emit.opset >= 11:
            stack = emit.op("Range", [emit.const(0), self.trip_count(emit), emit.const(1)])
        else:
            inputs = [self._limit(over), self._condition(over), emit.const(0), emit.const(1)]
            stack = emit.add(new_node("AddStep", inputs, previous=True)).outputs[1]
        return emit.unsqueeze(stack, [1] if rank else [])

    def _cond_inputs(self, over: OverTime) -> ir.Value:
        """The cond of every iteration: true, or the iteration would not run."""
        emit = self._emit
        shape = [to_vector(emit, self.trip_count(emit))]
        shape += [emit.const([1])] * over.rank(self._view.body.inputs[1])
        extents = emit.op("Concat", shape, {"axis": 0})
        return emit.op("Expand", [emit.const(np.ones((), np.bool_)), extents])

    def _scan_input(self, item: ScanInput, over: OverTime) -> ir.Value:
        emit = self._emit
        axis = self._scan_axis(item, emit)
        stack = item.outer
        if axis:
            rank = over.rank(item.element) + 1 + (over.lead - 1 if self._view.batched else 0)
            stack = emit.move_axis(stack, rank, axis, 0)
        return self.reverse(stack, over) if item.reverse else stack

    def reverse(self, stack: ir.Value, over: OverTime) -> ir.Value:
        """A stack read backwards in time."""
        if self._emit.opset >= 10:
            return self._emit.flip(stack)
        emit = self._emit
        last = emit.op("Sub", [self.trip_count(emit), emit.const(1)])
        inputs = [self.trip_count(emit), None, last, emit.const(-1)]
        index = emit.add(new_node("AddStep", inputs, previous=True)).outputs[1]
        return emit.op("Gather", [stack, index], {"axis": 0})

    def previous_states(self, carry: Carry, over: OverTime) -> ir.Value:
        """The states before each step as they are. Where the first one has another shape, the model fails too."""
        cell = self._cell_of(carry.index)
        if cell is not None:
            self._cell(carry, cell, over)
        if cell is not None or carry.index in self._is_overwritten:
            return self._emit.slice(self._with_initial(carry, over), 0, -1, 0)
        return self._rows(carry, over, previous=True)

    def _states(self, carry: Carry, over: OverTime, *, previous: bool) -> ir.Value:
        if not previous:
            return self._rows(carry, over, previous=False)
        if isinstance(self._view, LoopView) and not over.types[carry.previous].same_shape(over.types[carry.initial]):
            # A result of such states can have one shape all the same, but there is no stack of them.
            raise Refused(_may_change(carry, over))
        return self.previous_states(carry, over)

    def _reset_states(self, carry: Carry, over: OverTime) -> ir.Value:
        """The initial state and that after each iteration, of a state with resets."""
        evolution = self._evolution(carry)
        assert isinstance(evolution, Resets)
        if carry.index not in self._with_resets:
            with self._once(carry):
                first = self._emit.unsqueeze(carry.initial, [0])
                states = all_states(carry, evolution, over)
            self._with_resets[carry.index] = self._emit.op("Concat", [first, states], {"axis": 0})
        return self._with_resets[carry.index]

    def _rows(self, carry: Carry, over: OverTime, *, previous: bool) -> ir.Value:
        if isinstance(self._evolution(carry), Resets):
            states = self._reset_states(carry, over)
            return self._emit.slice(states, 0, -1, 0) if previous else self._emit.slice(states, 1, INT64_MAX, 0)
        rows, evolution = self._node(carry, over, previous=previous).outputs[1], self._evolution(carry)
        if isinstance(evolution, RunningFlag):
            return flags_of(rows, evolution, self._emit)
        if isinstance(evolution, Continued):
            return outer_states(rows, evolution, over, previous=previous)
        if isinstance(evolution, Additions):
            return of_iterations(rows, evolution, over, previous=previous)
        return rows

    def _cell_of(self, index: int) -> CellState | None:
        """The cell that the carry is a state of, if it is one."""
        proof = self._answers[index]
        found = proof.evolution if isinstance(proof, RecurrenceProof) else None
        return found if isinstance(found, CellState) else None

    def _cell(self, carry: Carry, state: CellState, over: OverTime) -> CellSeries:
        if id(state.node) not in self._cells:
            with self._once(carry):
                states = [self._cell_of(each.index) for each in state.carries]
                proven = [each for each in states if each is not None]
                if len(proven) < len(states):
                    raise Refused(Refusal(f"another state of {state.node.op_type} is no recurrence", state.node))
                self._cells[id(state.node)] = all_cell_steps(proven, over)
        return self._cells[id(state.node)]

    def _inner(self, carry: Carry) -> Continued | None:
        """The inner recurrence that carries the state on, if it is one."""
        proof = self._answers[carry.index]
        found = proof.evolution if isinstance(proof, RecurrenceProof) else None
        return found if isinstance(found, Continued) else None

    def _with_initial(self, carry: Carry, over: OverTime) -> ir.Value:
        """Initial value and every updated one, stacked; their shapes must be the same for certain."""
        if carry.index not in self._overwritten:
            if not over.types[carry.initial].same_shape(over.types[carry.updated]) or self._view.batched:
                raise Refused(_may_change(carry, over))
            with self._once(carry):
                first = self._emit.unsqueeze(carry.initial, [0])
                stacked = self._emit.op("Concat", [first, over.stack(carry.updated)], {"axis": 0})
            self._overwritten[carry.index] = stacked
        return self._overwritten[carry.index]

    def _node(self, carry: Carry, over: OverTime, *, previous: bool) -> ir.Node:
        key = (carry.index, previous)
        if key not in self._nodes:
            with self._once(carry):
                self._nodes[key] = self._make(carry, over, previous)
        return self._nodes[key]

    def _make(self, carry: Carry, over: OverTime, previous: bool) -> ir.Node:
        proof = self._answers[carry.index]
        if isinstance(proof, Refusal):
            raise Refused(proof)
        if isinstance(proof.evolution, AddStep):
            return add_step(proof.carry, proof.evolution, over, self._limit(over), self._condition(over), previous)
        if isinstance(proof.evolution, Continued):
            return all_steps(proof.carry, proof.evolution, over, previous)
        if isinstance(proof.evolution, Additions):
            return all_additions(proof.carry, proof.evolution, over, previous)
        if isinstance(proof.evolution, RunningFlag):
            return counted(proof.carry, proof.evolution, over, previous)
        if isinstance(proof.evolution, PrefixSum):
            return prefix_sum(proof.carry, proof.evolution, over, previous)
        assert isinstance(proof.evolution, LinearRecurrence), "cells have a node of their own"
        return linear_recurrence(proof.carry, proof.evolution, over, previous)

    def _once(self, carry: Carry) -> _Guard:
        """Two carries that need each other's states have no order in which to compute them."""
        if carry.index in self._busy:
            name = carry.previous.name
            raise Refused(Refusal(f"'{name}' and another carried value depend on each other", self._view.node))
        return _Guard(self._busy, carry.index)

    def _limit(self, over: OverTime) -> ir.Value:
        if isinstance(self._view, LoopView):
            assert self._view.max_trip is not None
            return self._view.max_trip
        return self.trip_count(over.emit)

    def _condition(self, over: OverTime) -> ir.Value | None:
        """The cond as a scalar: ONNX Runtime rejects the definition's Loop for a cond declared as one element."""
        condition = None if isinstance(self._trip, Scanned) else self._trip.condition
        if condition is None or over.types[condition].rank == 0:
            return condition
        return to_scalar(over.emit, condition)


class _Guard:
    """Marks a carry as being worked on."""

    def __init__(self, busy: set[int], index: int) -> None:
        self._busy, self._index = busy, index

    def __enter__(self) -> None:
        self._busy.add(self._index)

    def __exit__(self, *_: object) -> None:
        self._busy.discard(self._index)


def _may_change(carry: Carry, over: OverTime) -> Refusal:
    """That a state may not keep the shape that it begins with, and which extents would have to be equal."""
    begins = over.types[carry.initial]
    first = over.types.with_value(carry.previous, begins).one_iteration(over.view, {})[carry.updated]
    more = advice([begins.shape, first.shape])
    told = f"'{carry.previous.name}' may change its shape in the first iteration{more}"
    return Refusal(told, over.view.node, unequal=more != "")

"""Nodes of ``ai.looplift`` for the carries of one loop, and the stacks of the loop's own moving parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.emit import Emitter
from looplift.passes.over_time import OverTime
from looplift.patterns.evolution import AddStep, Evolution, LinearRecurrence, Overwritten, PrefixSum, Term, Unknown
from looplift.patterns.proof import Refusal, Refused
from looplift.patterns.trip import Scanned, Trip
from looplift.patterns.values import source
from looplift.patterns.view import Carry, LoopView, ScanInput, View
from looplift.runtime.ops import DOMAIN

EMIT_PREVIOUS = "emit_previous"


class MovingParts:
    """What moves in one loop, as stacks outside it: iteration number, scan elements, states of its carries.

    A carry's node is made when its first stack or final value is asked for, one for the states before each step
    and one for those after, as needed; what nobody asks for is not computed.
    """

    def __init__(self, view: View, trip: Trip, evolutions: Mapping[int, Evolution], emit: Emitter) -> None:
        self._view, self._trip, self._evolutions, self._emit = view, trip, evolutions, emit
        self._nodes: dict[tuple[int, bool], ir.Node] = {}
        self._busy: set[int] = set()
        self._overwritten: dict[int, ir.Value] = {}
        self._count: ir.Value | None = None

    @property
    def nodes(self) -> Sequence[tuple[Carry, ir.Node]]:
        """The recurrence nodes made so far, with the carry of each."""
        return [(self._view.carries[index], node) for (index, _), node in self._nodes.items()]

    def stack(self, value: ir.Value, over: OverTime) -> ir.Value | None:
        """The stack of a body input or of a carry's updated value; None if it is neither."""
        view = self._view
        if isinstance(view, LoopView):
            if value is view.iteration:
                return self._iterations(over)
            if value is view.condition_in:
                raise Refused(Refusal("the cond input is used as a value", view.node))
        for item in view.scan_inputs:
            if value is item.element:
                return self._scan_input(item, over)
        for carry in view.carries:
            if value is carry.previous:
                return self._states(carry, over, previous=True)
            if source(value) is source(carry.updated) and self._is_recurrence(carry):
                return self._states(carry, over, previous=False)
        return None

    def final(self, carry: Carry, over: OverTime) -> ir.Value:
        """The carry's value after the last iteration, or its initial value if there is none."""
        if isinstance(self._evolutions[carry.index], Overwritten):
            return self._emit.op("Gather", [self._with_initial(carry, over), self._emit.const(-1)], {"axis": 0})
        for previous in (True, False):
            if (carry.index, previous) in self._nodes:
                return self._nodes[carry.index, previous].outputs[0]
        return self._node(carry, over, previous=False).outputs[0]

    def trip_count(self, emit: Emitter) -> ir.Value:
        """The number of iterations, an int64 scalar, written once."""
        if self._count is None:
            self._count = self._make_count(emit)
        return self._count

    def _is_recurrence(self, carry: Carry) -> bool:
        return isinstance(self._evolutions[carry.index], (AddStep, PrefixSum, LinearRecurrence))

    def _make_count(self, emit: Emitter) -> ir.Value:
        trip = self._trip
        if trip.static is not None:
            return emit.const(trip.static)
        if isinstance(trip, Scanned):
            return emit.extent(trip.over.outer, self._scan_axis(trip.over, emit))
        limit = emit.op("Reshape", [trip.max_trip, emit.const(np.zeros(0, np.int64))])
        zero = emit.const(0)
        runs = emit.op("Greater", [limit, zero])
        if trip.condition is not None:
            condition = emit.op("Reshape", [trip.condition, emit.const(np.zeros(0, np.int64))])
            runs = emit.op("And", [runs, condition])
        return emit.op("Where", [runs, limit, zero])

    def _scan_axis(self, item: ScanInput, emit: Emitter) -> int:
        if self._view.batched:
            return 1
        if item.axis < 0:
            if item.outer.shape is None:
                raise Refused(Refusal(f"the number of axes of '{item.outer.name}' is not known", self._view.node))
            return item.axis + len(item.outer.shape)
        return item.axis

    def _iterations(self, over: OverTime) -> ir.Value:
        """0, 1, 2, ... as int64, with the rank that the body gives its iteration number."""
        emit, rank = self._emit, over.rank(self._view.body.inputs[0])
        if self._trip.static is not None and self._trip.static <= 1024:
            stack = emit.const(np.arange(self._trip.static, dtype=np.int64))
        elif emit.opset >= 11:
            stack = emit.op("Range", [emit.const(0), self.trip_count(emit), emit.const(1)])
        else:
            inputs = [self._limit(over), self._condition(), emit.const(0), emit.const(1)]
            stack = emit.add(_recurrence("AddStep", inputs, previous=True)).outputs[1]
        return emit.unsqueeze(stack, [1] if rank else [])

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
        index = emit.add(_recurrence("AddStep", inputs, previous=True)).outputs[1]
        return emit.op("Gather", [stack, index], {"axis": 0})

    def _states(self, carry: Carry, over: OverTime, *, previous: bool) -> ir.Value:
        evolution = self._evolutions[carry.index]
        if isinstance(evolution, Overwritten) and previous:
            return self._emit.slice(self._with_initial(carry, over), 0, -1, 0)
        return self._node(carry, over, previous=previous).outputs[1]

    def _with_initial(self, carry: Carry, over: OverTime) -> ir.Value:
        """Initial value and every updated one, stacked; their shapes must be the same for certain."""
        if carry.index not in self._overwritten:
            if not over.types[carry.initial].same_shape(over.types[carry.updated]) or self._view.batched:
                refusal = Refusal(
                    f"'{carry.previous.name}' may change its shape in the first iteration", self._view.node
                )
                raise Refused(refusal)
            with self._once(carry):
                first = self._emit.unsqueeze(carry.initial, [0])
                stacked = self._emit.op("Concat", [first, over.stack(carry.updated)], {"axis": 0})
            self._overwritten[carry.index] = stacked
        return self._overwritten[carry.index]

    def _node(self, carry: Carry, over: OverTime, *, previous: bool) -> ir.Node:
        key = (carry.index, previous)
        if key not in self._nodes:
            with self._once(carry):
                self._nodes[key] = self._emit.add(self._make(carry, over, previous))
        return self._nodes[key]

    def _once(self, carry: Carry) -> _Guard:
        """Two carries that need each other's states have no order in which to compute them."""
        if carry.index in self._busy:
            name = carry.previous.name
            raise Refused(Refusal(f"'{name}' and another carried value depend on each other", self._view.node))
        return _Guard(self._busy, carry.index)

    def _make(self, carry: Carry, over: OverTime, previous: bool) -> ir.Node:
        evolution = self._evolutions[carry.index]
        rank = over.types[carry.previous].rank
        if isinstance(evolution, Unknown):
            raise Refused(evolution.refusal)
        if isinstance(evolution, AddStep):
            step = self._total([self._signed(over.outside(_value(t)), t) for t in evolution.steps])
            inputs = [self._limit(over), self._condition(), carry.initial, step]
            node = _recurrence("AddStep", inputs, previous=previous)
        elif isinstance(evolution, PrefixSum):
            self._keeps_shape(carry, over)
            addends = self._total([self._signed(self._aligned(t, over, rank), t) for t in evolution.addends])
            node = _recurrence("PrefixSum", [carry.initial, addends], previous=previous)
        elif isinstance(evolution, LinearRecurrence):
            self._keeps_shape(carry, over)
            node = self._linear(carry, evolution, over, rank, previous)
        else:
            raise Refused(Refusal(f"'{carry.previous.name}' never changes", self._view.node))
        dtype = over.types[carry.initial].dtype
        for output in node.outputs:
            output.type = None if dtype is None else ir.TensorType(dtype)
        return node

    def _linear(
        self, carry: Carry, evolution: LinearRecurrence, over: OverTime, rank: int | None, previous: bool
    ) -> ir.Node:
        factor, addends = evolution.factor, evolution.addends
        invariant_a = factor.value is None or not over.varies(factor.value)
        invariant_b = all(not over.varies(_value(term)) for term in addends)
        if invariant_a and invariant_b and over.lead > 1:
            raise Refused(Refusal("neither factor nor addend varies over time and batch", self._view.node))
        if factor.value is None:
            a = self._number(carry, over, -1)
        else:
            a = self._signed(self._series(factor, over, rank, invariant_a), factor)
        if addends:
            b = self._total([self._signed(self._series(t, over, rank, invariant_b), t) for t in addends])
        else:
            # x + (-0.0) is x for every x, -0.0 among them; for integers the zero has no sign.
            b = self._number(carry, over, -0.0)
        if invariant_a and invariant_b:
            a, invariant_a = self._over_time(a, over), False
        node = _recurrence("LinearRecurrence", [carry.initial, a, b], previous=previous)
        node.attributes.add(ir.AttrInt64("a_invariant", int(invariant_a)))
        node.attributes.add(ir.AttrInt64("b_invariant", int(invariant_b)))
        return node

    def _series(self, term: Term, over: OverTime, rank: int | None, invariant: bool) -> ir.Value:
        return over.outside(_value(term)) if invariant else self._aligned(term, over, rank)

    def _over_time(self, value: ir.Value, over: OverTime) -> ir.Value:
        """An invariant value repeated along a new time axis."""
        emit = over.emit
        count = emit.op("Reshape", [over.trip_count(), emit.const([1])])
        shape = emit.op("Concat", [count, emit.op("Shape", [value])], {"axis": 0})
        return emit.op("Expand", [value, shape])

    def _number(self, carry: Carry, over: OverTime, number: float) -> ir.Value:
        dtype = over.types[carry.initial].dtype
        if dtype is None:
            raise Refused(Refusal(f"the element type of '{carry.previous.name}' is not known", self._view.node))
        tensor = ir.tensor(np.array(number).astype(dtype.numpy()), dtype=dtype)
        return over.emit.tensor(tensor)

    def _keeps_shape(self, carry: Carry, over: OverTime) -> None:
        """PrefixSum and LinearRecurrence, like Scan, want a state whose shape no iteration changes."""
        fact = over.types[carry.previous]
        if isinstance(self._view, LoopView) and (fact.shape is None or None in fact.shape):
            text = f"whether '{carry.previous.name}' keeps its shape is not known ({over.types[carry.initial]})"
            raise Refused(Refusal(text, self._view.node))

    def _aligned(self, term: Term, over: OverTime, rank: int | None) -> ir.Value:
        """A term's stack; behind a batch axis its elements need as many axes as the state's."""
        value = _value(term)
        if over.lead == 1:
            return over.stack(value)
        if rank is None:
            raise Refused(Refusal("the number of axes of the state is not known", self._view.node))
        return over.operand(value, rank - 1) if over.varies(value) else over.stack(value)

    def _signed(self, value: ir.Value, term: Term) -> ir.Value:
        if not term.negated:
            return value
        if value.dtype is not None and not value.dtype.is_signed():
            zero = self._emit.const(np.zeros((), value.dtype.numpy()))
            return self._emit.op("Sub", [zero, value])
        return self._emit.op("Neg", [value])

    def _total(self, values: Sequence[ir.Value]) -> ir.Value:
        """The terms' sum; several only where additions may be joined."""
        total = values[0]
        for value in values[1:]:
            total = self._emit.op("Add", [total, value])
        return total

    def _limit(self, over: OverTime) -> ir.Value:
        if isinstance(self._view, LoopView):
            assert self._view.max_trip is not None
            return self._view.max_trip
        return self.trip_count(over.emit)

    def _condition(self) -> ir.Value | None:
        return None if isinstance(self._trip, Scanned) else self._trip.condition


class _Guard:
    """Marks a carry as being worked on."""

    def __init__(self, busy: set[int], index: int) -> None:
        self._busy, self._index = busy, index

    def __enter__(self) -> None:
        self._busy.add(self._index)

    def __exit__(self, *_: object) -> None:
        self._busy.discard(self._index)


def _value(term: Term) -> ir.Value:
    assert term.value is not None
    return term.value


def _recurrence(op_type: str, inputs: Sequence[ir.Value | None], *, previous: bool) -> ir.Node:
    return ir.Node(DOMAIN, op_type, inputs, [ir.AttrInt64(EMIT_PREVIOUS, int(previous))], num_outputs=2)

"""AddStep, ``v = v + step``, in standard operators.

* Integers have a closed form, ``v + k * step``: they wrap, so the order of additions does not show.
* float and double add up in CumSum (opset 11), which adds in order on ONNX Runtime's CPU provider.
* A wide state, another float type or an older opset runs a Scan without inputs of its own (opset 9).
* A few iterations are written out where CumSum is not at hand.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import not_negative, to_vector
from looplift.passes.recurrences.forms import cost
from looplift.passes.recurrences.forms.call import Call, Choice, Form, Results, absorbs, size
from looplift.passes.recurrences.forms.pieces import (
    Count,
    choose_at_run_time,
    last,
    last_or,
    no_grown_rows,
    no_rows,
    one_if_any,
    repeat,
    some,
)
from looplift.passes.recurrences.forms.running_sum import SUMMED, running_sum
from looplift.passes.recurrences.forms.scan import guarded, is_larger, scan_over, ticks
from looplift.passes.recurrences.forms.unrolled import may_be_written_out, unrolled
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.types import TensorType

INITIAL, STEP = 2, 3


def choose(call: Call) -> Choice:
    """The form that is right for this node, or why there is none."""
    state = call.facts[INITIAL]
    count = _static_count(call)
    few = count if may_be_written_out(count, state.dtype) else None
    keeps = absorbs(state, call.facts[STEP])
    if state.dtype is None:
        return call.refusal("needs the element type of its state, which is not known")
    if call.previous and not keeps:
        return call.refusal("can't stack the states before each step, since the first may have another shape")
    if count == 0:
        return _written_out(call, 0)
    if call.opset < 9:
        return _written_out(call, few) if few is not None else call.refusal("needs opset 9")
    if state.dtype.is_integer():
        if not keeps and call.opset < 11:
            return call.refusal("needs opset 11, since the first step may change the shape of the state")
        return _Closed(call, keeps)
    return _choose_for_floats(call, state, few, keeps)


def _choose_for_floats(call: Call, state: TensorType, few: int | None, keeps: bool) -> Choice:
    sums = state.dtype in SUMMED and call.opset >= 11
    scans = keeps and state.shape is not None
    elements = size(state) if keeps else None
    widest = cost.WIDEST_SUM if call.wants_rows else cost.WIDEST_SUM_FOR_LAST
    if sums and elements is not None and elements <= widest:
        return _Summed(call, keeps)
    if few is not None:
        return _written_out(call, few)
    if sums and (not scans or (call.wants_rows and elements is None)):
        return _Summed(call, keeps)
    if not scans:
        needed = "opset 11 and float or double" if state.dtype in SUMMED else "float or double"
        return call.refusal(f"needs {needed} unless the state is known to keep its shape")
    if sums and elements is None:
        return _measured(call, state, widest)
    return _scanned(call, state)


def _static_count(call: Call) -> int | None:
    runs = True if call.node.inputs[1] is None else call.number(1)
    limit = call.number(0)
    if runs is False or (limit is not None and limit <= 0):
        return 0
    return int(limit) if runs is True and limit is not None else None


def _count(call: Call, emit: Emitter) -> Count:
    static = _static_count(call)
    if static is not None:
        return Count(emit.const(static), static)
    condition = None if call.number(1) is True else call.node.inputs[1]
    return Count(not_negative(emit, call.input(0), condition), None)


def _add(call: Call, emit: Emitter, state: ir.Value) -> ir.Value:
    return emit.op("Add", [state, call.input(STEP)])


def _written_out(call: Call, count: int) -> Form:
    initial = call.input(INITIAL)
    return unrolled(call, initial, count, lambda emit, state, _: _add(call, emit, state), lambda e: _no_rows(call, e))


def _no_rows(call: Call, emit: Emitter) -> ir.Value:
    """The rows of no iteration; that the first addition may then fail is no matter."""
    initial, step = call.input(INITIAL), call.input(STEP)
    if call.previous or absorbs(call.facts[INITIAL], call.facts[STEP]):
        return no_rows(emit, initial)
    return no_grown_rows(emit, initial, step, (call.facts[INITIAL].rank, call.facts[STEP].rank))


def _if_any(call: Call, emit: Emitter, count: Count, runs: Form) -> Results:
    """A form that may fail where no iteration runs, behind a test; the state then has its old shape."""

    def runs_not(inner: Emitter) -> Results:
        rows = _no_rows(call, inner) if call.wants_rows else None
        return Results(inner.op("Identity", [call.input(INITIAL)]) if call.wants_final else None, rows)

    return choose_at_run_time(emit, some(emit, count.value), runs, runs_not)


def _scanned(call: Call, state: TensorType) -> Form:
    def scan(emit: Emitter) -> Results:
        series = [ticks(emit, _count(call, emit))]
        return scan_over(
            call, call.input(INITIAL), state, series, lambda inner, previous, _: _add(call, inner, previous)
        )(emit)

    return guarded(call, call.input(INITIAL), lambda emit: _count(call, emit), scan)


def _measured(call: Call, state: TensorType, widest: int) -> Form:
    """Whether the state is wide is seen when the model runs."""

    def form(emit: Emitter) -> Results:
        wide = is_larger(emit, call.input(INITIAL), widest)
        return choose_at_run_time(emit, wide, _scanned(call, state), _Summed(call, keeps=True))

    return form


class _Summed:
    """By CumSum over ``v, step, step, ...``.

    A state that keeps its shape may be a row itself. One that the first step may broadcast starts the sum as
    ``v + step``; after that the step broadcasts to the state.
    """

    def __init__(self, call: Call, keeps: bool) -> None:
        self._call, self._keeps = call, keeps

    def __call__(self, emit: Emitter) -> Results:
        call, count = self._call, _count(self._call, emit)
        initial, step = call.input(INITIAL), call.input(STEP)
        if not self._keeps and not count.surely_runs:
            return self._if_it_runs(emit, count)
        elements = size(call.facts[INITIAL])
        small = elements is not None and elements <= cost.WIDEST_COPIED
        if self._keeps and not count.surely_runs and (small or not call.wants_rows):
            return self._cut_from_all(emit, count)
        rows = self._rows(emit, count, initial if call.previous else _add(call, emit, initial))
        final = None
        if call.wants_final and self._keeps:
            final = last_or(emit, initial, rows, count, step if call.previous else None)
        elif call.wants_final:
            final = last(emit, rows)
        return Results(final, rows if call.wants_rows else None)

    def _cut_from_all(self, emit: Emitter, count: Count) -> Results:
        """Sums all states, the initial one among them; cutting the rows costs a copy, and spares a test for no rows."""
        call, initial = self._call, self._call.input(INITIAL)
        like = None if call.facts[INITIAL].shape == () else initial
        more = repeat(emit, call.input(STEP), count.value, like)
        states = running_sum(emit, [emit.unsqueeze(initial, [0]), more])
        rows = None
        if call.wants_rows:
            rows = emit.slice(states, 0, -1, 0) if call.previous else emit.slice(states, 1, INT64_MAX, 0)
        return Results(last(emit, states) if call.wants_final else None, rows)

    def _rows(self, emit: Emitter, count: Count, first: ir.Value) -> ir.Value:
        """As many rows as iterations, the first of them given."""
        like = None if self._keeps and self._call.facts[INITIAL].shape == () else first
        if count.static is not None and count.surely_runs:
            head, rest = emit.unsqueeze(first, [0]), emit.const([count.static - 1])
        else:
            vector = to_vector(emit, count.value)
            one = one_if_any(emit, vector)
            rest = emit.op("Sub", [vector, one])
            head = repeat(emit, first, one, like)
        return running_sum(emit, [head, repeat(emit, self._call.input(STEP), rest, like)])

    def _if_it_runs(self, emit: Emitter, count: Count) -> Results:
        """For a state whose shape the first step may change, and that has its old shape if there is none."""
        call, initial = self._call, self._call.input(INITIAL)

        def runs(inner: Emitter) -> Results:
            rows = self._rows(inner, count, _add(call, inner, initial))
            return Results(last(inner, rows) if call.wants_final else None, rows if call.wants_rows else None)

        return _if_any(call, emit, count, runs)


class _Closed:
    """Integers: ``v + k * step`` for every k at once."""

    def __init__(self, call: Call, keeps: bool) -> None:
        self._call, self._keeps = call, keeps

    def __call__(self, emit: Emitter) -> Results:
        call, count = self._call, _count(self._call, emit)

        def runs(inner: Emitter) -> Results:
            rows = self._at(inner, self._by_rows(inner, self._steps(inner, count))) if call.wants_rows else None
            return Results(self._at(inner, count.value) if call.wants_final else None, rows)

        return runs(emit) if self._keeps or count.surely_runs else _if_any(call, emit, count, runs)

    def _at(self, emit: Emitter, k: ir.Value) -> ir.Value:
        """The state after k steps; k wraps to the element type, as the sum does."""
        dtype = self._call.facts[INITIAL].dtype
        if dtype != ir.DataType.INT64:
            k = emit.op("Cast", [k], {"to": ir.AttrInt64("to", int(dtype or 0))})
        moved = emit.op("Mul", [k, self._call.input(STEP)])
        return emit.op("Add", [self._call.input(INITIAL), moved])

    def _steps(self, emit: Emitter, count: Count) -> ir.Value:
        """How many steps each row is away from the start: 0, 1, ... or 1, 2, ..."""
        start = 0 if self._call.previous else 1
        if emit.opset >= 11:
            end = count.value if start == 0 else emit.op("Add", [count.value, emit.const(1)])
            return emit.op("Range", [emit.const(start), end, emit.const(1)])
        ones = emit.op("ConstantOfShape", [to_vector(emit, count.value)], {"value": _one()})
        steps = emit.squeeze(emit.op("NonZero", [ones]), [0])
        return steps if start == 0 else emit.op("Add", [steps, emit.const(1)])

    def _by_rows(self, emit: Emitter, steps: ir.Value) -> ir.Value:
        """The steps with an axis of extent 1 for each axis of a row."""
        state, step = self._call.facts[INITIAL], self._call.facts[STEP]
        if state.rank is not None and step.rank is not None:
            return emit.unsqueeze(steps, range(1, 1 + max(state.rank, step.rank)))
        row = emit.op("Shape", [_add(self._call, emit, self._call.input(INITIAL))])
        axes = emit.op("ConstantOfShape", [emit.op("Shape", [row])], {"value": _one()})
        shape = emit.op("Concat", [emit.op("Shape", [steps]), axes], {"axis": 0})
        return emit.op("Reshape", [steps, shape])


def _one() -> ir.Attr:
    return ir.AttrTensor("value", ir.tensor(np.ones(1, np.int64)))

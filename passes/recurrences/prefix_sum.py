"""PrefixSum, ``v = v + x[t]``, in standard operators.

* CumSum (opset 11) over the state and the series: float, double, and integers, which wrap in int64 as they should.
* A wide state, another float type or an older opset runs a Scan whose body adds (opset 9).
* A few steps are written out where CumSum is not at hand.
"""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms import cost
from looplift.passes.recurrences.forms.call import Call, Choice, Form, Results, absorbs, size
from looplift.passes.recurrences.forms.pieces import last, no_rows
from looplift.passes.recurrences.forms.running_sum import SUMMED, running_sum
from looplift.passes.recurrences.forms.scan import guarded, scan_over
from looplift.passes.recurrences.forms.series import as_rows, element, length, static_length
from looplift.passes.recurrences.forms.unrolled import may_be_written_out, row_at, unrolled
from looplift.patterns.graph.constants import INT64_MAX

INITIAL, SERIES = 0, 1


def choose(call: Call) -> Choice:
    """The form that is right for this node, or why there is none."""
    state, steps = call.facts[INITIAL], static_length(call.facts[SERIES])
    if state.dtype is None:
        return call.refusal("needs the element type of its state, which is not known")
    sums = call.opset >= 11 and (state.dtype in SUMMED or state.dtype.is_integer())
    elements = size(state)
    if sums and elements is not None and elements <= cost.WIDEST_SUM:
        return _summed(call)
    if steps is not None and may_be_written_out(steps, state.dtype):
        return _written_out(call, steps)
    if sums and (elements is None or state.shape is None):
        return _summed(call)
    if call.opset < 9:
        return call.refusal("needs opset 9")
    if state.shape is None:
        return call.refusal("needs opset 11, or the rank of its state, which is not known")
    return _scanned(call)


def _written_out(call: Call, steps: int) -> Form:
    initial, series = call.input(INITIAL), call.input(SERIES)

    def step(emit: Emitter, state: ir.Value, time: int) -> ir.Value:
        return emit.op("Add", [state, row_at(emit, series, time)])

    return unrolled(call, initial, steps, step, lambda emit: no_rows(emit, initial))


def _summed(call: Call) -> Form:
    """By CumSum, behind a test where elements may not fit the state: nothing may fail if there is no step."""
    form, initial, series = _Summed(call), call.input(INITIAL), call.facts[SERIES]
    if absorbs(call.facts[INITIAL], element(series)):
        return form
    return guarded(call, initial, lambda emit: length(emit, call.input(SERIES), series), form)


def _scanned(call: Call) -> Form:
    initial, series, fact = call.input(INITIAL), call.input(SERIES), call.facts[SERIES]
    scan = scan_over(
        call,
        initial,
        call.facts[INITIAL],
        [(series, element(fact))],
        lambda inner, previous, elements: inner.op("Add", [previous, elements[0]]),
    )
    return guarded(call, initial, lambda emit: length(emit, series, fact), scan)


class _Summed:
    """By CumSum over ``v, x[0], x[1], ...``, or over ``..., x[T-1], v`` from the end."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self, emit: Emitter) -> Results:
        call, reverse = self._call, self._call.flag("reverse")
        initial = emit.unsqueeze(call.input(INITIAL), [0])
        series = as_rows(emit, call, SERIES, INITIAL)
        dtype = call.facts[INITIAL].dtype
        narrow = dtype not in SUMMED
        if narrow:
            initial, series = (_cast(emit, value, ir.DataType.INT64) for value in (initial, series))
        states = running_sum(emit, [series, initial] if reverse else [initial, series], backwards=reverse)
        if narrow:
            assert dtype is not None
            states = _cast(emit, states, dtype)
        final = rows = None
        if call.wants_final:
            final = emit.op("Gather", [states, emit.const(0)], {"axis": 0}) if reverse else last(emit, states)
        if call.wants_rows:
            starts_later = call.previous == reverse  # there is one state more than rows, the first or the last in time
            rows = emit.slice(states, 1, INT64_MAX, 0) if starts_later else emit.slice(states, 0, -1, 0)
        return Results(final, rows)


def _cast(emit: Emitter, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    return emit.op("Cast", [value], {"to": ir.AttrInt64("to", int(dtype))})

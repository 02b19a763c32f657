"""LinearRecurrence, ``v = a[t] * v + b[t]``, in standard operators: a Scan whose body is one Mul and one Add.

No standard operator does this in order. A few steps are written out before opset 9, which has no such Scan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms.call import Call, Choice, Form
from looplift.passes.recurrences.forms.pieces import Count, no_rows
from looplift.passes.recurrences.forms.scan import Step, guarded, scan_over
from looplift.passes.recurrences.forms.series import element, length, static_length
from looplift.passes.recurrences.forms.unrolled import may_be_written_out, row_at, unrolled

INITIAL, FACTOR, TERM = 0, 1, 2
INVARIANT = {FACTOR: "a_invariant", TERM: "b_invariant"}


def choose(call: Call) -> Choice:
    """The form that is right for this node, or why there is none."""
    state, series = call.facts[INITIAL], _series(call)
    if state.dtype is None:
        return call.refusal("needs the element type of its state, which is not known")
    steps = next((n for k in series if (n := static_length(call.facts[k])) is not None), None)
    if steps is not None and (call.opset < 9 or steps == 0) and may_be_written_out(steps, state.dtype):
        return _written_out(call, steps)
    if call.opset < 9:
        return call.refusal("needs opset 9")
    if state.shape is None:
        return call.refusal("needs the rank of its state, which is not known")
    return _scanned(call)


def _series(call: Call) -> list[int]:
    """The inputs that have a time axis."""
    return [index for index, flag in INVARIANT.items() if not call.flag(flag)]


def _written_out(call: Call, steps: int) -> Form:
    initial, series = call.input(INITIAL), _series(call)

    def step(emit: Emitter, state: ir.Value, time: int) -> ir.Value:
        now = {k: row_at(emit, call.input(k), time) if k in series else call.input(k) for k in INVARIANT}
        return _updated(call, emit, state, now)

    return unrolled(call, initial, steps, step, lambda emit: no_rows(emit, initial))


def _scanned(call: Call) -> Form:
    initial, series = call.input(INITIAL), _series(call)
    read = [(call.input(k), element(call.facts[k])) for k in series]
    scan = scan_over(call, initial, call.facts[INITIAL], read, _step(call, series))

    def count(emit: Emitter) -> Count:
        return length(emit, call.input(series[0]), call.facts[series[0]])

    return guarded(call, initial, count, scan)


def _step(call: Call, series: list[int]) -> Step:
    def step(inner: Emitter, previous: ir.Value, elements: Sequence[ir.Value]) -> ir.Value:
        now = {k: call.input(k) for k in INVARIANT} | dict(zip(series, elements, strict=True))
        return _updated(call, inner, previous, now)

    return step


def _updated(call: Call, emit: Emitter, state: ir.Value, now: Mapping[int, ir.Value]) -> ir.Value:
    """``a * v + b``; a b of -0.0 (0 for integers) changes no sum, and where only the factor is given it is that."""
    moved = emit.op("Mul", [now[FACTOR], state])
    term = call.number(TERM) if call.facts[TERM].shape == () else None
    if term == 0 and (isinstance(term, int) or math.copysign(1, term) < 0):
        return moved
    return emit.op("Add", [moved, now[TERM]])

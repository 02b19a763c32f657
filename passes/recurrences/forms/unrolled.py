"""A recurrence of a few iterations, written out: any shape, any opset, but no float16.

ONNX Runtime computes float16 in float32 where it has no kernel, and then rounds a chain of nodes only at its end. The
state of a loop is rounded every time it goes round.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms.call import Call, Form, Results
from looplift.passes.recurrences.forms.cost import UNROLLED

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

StepAt = Callable[[Emitter, ir.Value, int], ir.Value]
"""Writes the step at a time: the updated state of the previous one."""


def unrolled(call: Call, initial: ir.Value, count: int, step: StepAt, no_rows: Callable[[Emitter], ir.Value]) -> Form:
    """The steps one after the other.

    Args:
        call: gives the flags and which outputs are wanted.
        initial: the state before the first step.
        count: how many steps.
        step: one of them.
        no_rows: writes the rows where there are none.
    """

    def form(emit: Emitter) -> Results:
        times = range(count - 1, -1, -1) if call.flag("reverse") else range(count)
        state, rows = initial, {}
        for time in times:
            updated = step(emit, state, time)
            rows[time] = state if call.previous else updated
            state = updated
        final = state if count else emit.op("Identity", [initial])
        return Results(final if call.wants_final else None, _stack(emit, rows) if call.wants_rows else None)

    def _stack(emit: Emitter, rows: dict[int, ir.Value]) -> ir.Value:
        if not rows:
            return no_rows(emit)
        stacked = [emit.unsqueeze(rows[time], [0]) for time in sorted(rows)]
        return emit.op("Concat", stacked, {"axis": 0})

    return form


def may_be_written_out(count: int | None, dtype: ir.DataType | None) -> bool:
    """Whether so many iterations, if that is known, may become a chain of nodes."""
    return count is not None and (count == 0 or (count <= UNROLLED and dtype not in HALVES))


def row_at(emit: Emitter, series: ir.Value, time: int) -> ir.Value:
    """The element of a series, time first, at a time."""
    return emit.op("Gather", [series, emit.const(time)], {"axis": 0})

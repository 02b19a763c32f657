"""Recurrences over a series: what PrefixSum and LinearRecurrence share on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import Array
from looplift.runtime.ops.element_types import NUMBERS
from looplift.runtime.ops.memory import allocate

Advance = Callable[[Array, Array, Sequence[Array]], None]
"""(rows [n, *state], the state before them, each series [n, *state]; n >= 1) -> None: fills the rows in order."""

BLOCK_ROWS = 256
"""Rows computed at once where only the last state is wanted."""


@dataclasses.dataclass(frozen=True)
class Series:
    """One input that is read step by step: its name, its value, and whether it lacks the time axis."""

    name: str
    value: Array | None
    invariant: bool = False


def run_over_time(
    op: str,
    initial: Array | None,
    series: Sequence[Series],
    attributes: Mapping[str, Any],
    wanted: Sequence[bool],
    advance: Advance,
) -> tuple[Array | None, ...]:
    """Runs a recurrence whose state keeps its shape, as the Loop over time that defines ``op`` does.

    Args:
        op: op type, for messages.
        initial: the state before the first step.
        series: what the steps read; an element broadcasts to the state.
        attributes: ``emit_previous`` and ``reverse`` (time runs backwards, rows stay at their time), default 0.
        wanted: whether v_final and scan_output are used.
        advance: the recurrence.

    Returns:
        v_final with the state's shape and scan_output, [time, *state]; None if unused.

    Raises:
        LoopliftError: a missing input, types that differ, shapes that do not fit, rows that do not fit in memory.
    """
    values = _values(op, initial, series)
    time = _time(op, series, values[1:])
    shape = values[0].shape
    # a rank of one at least, since numpy makes rows of a one-dimensional array scalars, which can't be written to
    state = values[0].reshape(shape or (1,))
    want_final, want_rows = (*wanted, False)[:2]
    if time == 0:  # elements that nothing reads may have any shape
        return (
            values[0].copy() if want_final else None,
            np.empty((0, *shape), state.dtype) if want_rows else None,
        )
    steps = [_by_time(op, one, value, time, state) for one, value in zip(series, values[1:], strict=True)]
    if attributes.get("reverse", 0):
        steps = [step[::-1] for step in steps]
    rows = final = None
    with np.errstate(all="ignore"):  # overflow to infinity and inf - inf are results here, not faults
        if want_rows:
            rows = allocate((time, *state.shape), state.dtype, f"{op}: scan_output")
            in_order = rows[::-1] if attributes.get("reverse", 0) else rows
            last = _fill(in_order, state, steps, bool(attributes.get("emit_previous", 0)), advance)
            final = last if want_final else None
        elif want_final:
            final = _last(state, steps, advance)
    return (
        None if final is None else final.reshape(shape),
        None if rows is None else rows.reshape(time, *shape),
    )


def _values(op: str, initial: Array | None, series: Sequence[Series]) -> list[Array]:
    """The state and the series, which must all be there and of one number type."""
    values = []
    for name, value in [("v_initial", initial), *((one.name, one.value) for one in series)]:
        if value is None:
            raise LoopliftError(f"{op}: {name} must be given")
        values.append(value)
    types = sorted({value.dtype for value in values}, key=str)
    if len(types) > 1 or types[0] not in NUMBERS:
        raise LoopliftError(f"{op}: all inputs must be of one number type, not {', '.join(map(str, types))}")
    return values


def _time(op: str, series: Sequence[Series], values: Sequence[Array]) -> int:
    """The number of steps, on which all series with a time axis must agree."""
    lengths: dict[str, int] = {}
    for one, value in zip(series, values, strict=True):
        if not one.invariant:
            if value.ndim == 0:
                raise LoopliftError(f"{op}: {one.name} is a scalar, but time must be its first axis")
            lengths[one.name] = value.shape[0]
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{name} has {length} steps" for name, length in lengths.items())
        raise LoopliftError(f"{op}: all series must have the same length: {found or 'no input has a time axis'}")
    return next(iter(lengths.values()))


def _by_time(op: str, series: Series, value: Array, time: int, state: Array) -> Array:
    """A view of a series as [time, *state]; an element that is larger than the state is an error."""
    element = value.shape if series.invariant else value.shape[1:]
    padding = (1,) * (state.ndim - len(element))
    try:
        return np.broadcast_to(value.reshape(1 if series.invariant else time, *padding, *element), (time, *state.shape))
    except ValueError:
        raise LoopliftError(
            f"{op}: an element of {series.name} has shape {list(element)}, which does not broadcast to the state's "
            f"{list(state.shape)}: the state may not change its shape"
        ) from None


def _fill(rows: Array, state: Array, steps: Sequence[Array], emit_previous: bool, advance: Advance) -> Array:
    """Fills the rows, at least one, and returns the last state, a new array."""
    if not emit_previous:
        advance(rows, state, steps)
        return np.array(rows[-1])
    rows[0] = state
    if len(rows) > 1:
        advance(rows[1:], state, [step[:-1] for step in steps])
    return _last(rows[-1], [step[-1:] for step in steps], advance)


def _last(state: Array, steps: Sequence[Array], advance: Advance) -> Array:
    """The state after all steps, a new array."""
    block = np.empty((min(BLOCK_ROWS, len(steps[0])), *state.shape), state.dtype)
    state = state.copy()
    for begin in range(0, len(steps[0]), BLOCK_ROWS):
        now = [step[begin : begin + BLOCK_ROWS] for step in steps]
        advance(block[: len(now[0])], state, now)
        state[...] = block[len(now[0]) - 1]
    return state

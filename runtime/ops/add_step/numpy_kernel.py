"""AddStep on the host: bit for bit what adding in order gives, without being sequential in the trip count."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import Array
from looplift.runtime.ops.add_step.segments import Trajectory, column_pieces, final_state
from looplift.runtime.ops.compiled import add_rows, run_compiled
from looplift.runtime.ops.element_types import NUMBERS
from looplift.runtime.ops.memory import allocate

# The choices between the ways of filling rows, by measurement.
FEW_STEPS = 1024
"""Up to this many steps, adding them is faster than finding the pieces of the trajectory."""

NARROW = 4
"""Up to this many columns are written one by one, piece by piece; more are added row by row."""

SECTION_ELEMENTS = 8000
"""What one numpy call should add over all sections: fewer and the call costs more than its work."""

BLOCK_ROWS = 16
"""Rows of every section that are made before they are copied out."""

CHUNK = 65536
"""Elements of a column written at once: they and the ramp they are made from stay in the cache."""


def add_step(
    inputs: Sequence[Array | None], attributes: Mapping[str, Any], wanted: Sequence[bool]
) -> tuple[Array | None, ...]:
    """Runs ``v = v + step`` as the Loop that defines AddStep does.

    Args:
        inputs: M (int64, one element), cond (bool, one element, or None for true), v_initial and step (one number
            type, shapes that broadcast).
        attributes: ``emit_previous``, default 0.
        wanted: whether v_final and scan_output are used.

    Returns:
        v_final with the state's shape and scan_output with one row per iteration, [n, *shape]; None if unused.

    Raises:
        LoopliftError: a wrong type or shape, or a scan output that does not fit in memory.
    """
    count, initial, step = _read(inputs)
    emit_previous = bool(attributes.get("emit_previous", 0))
    want_final, want_rows = (*wanted, False)[:2]
    if count == 0:
        return (initial.copy() if want_final else None), (_no_rows(initial, step, emit_previous) if want_rows else None)
    shape = _broadcast_shape(initial, step)
    rows = final = None
    with np.errstate(all="ignore"):  # overflow to infinity and inf - inf are results here, not faults
        if want_rows and emit_previous and shape != initial.shape:
            rows = _row_before_growth(initial, shape, count)
            return (np.asarray(initial + step) if want_final else None), rows
        state, added = (np.broadcast_to(value, shape).reshape(-1) for value in (initial, step))
        if want_rows:
            rows = allocate((count, state.size), initial.dtype, "AddStep: scan_output")
            _fill(rows, state, added, first=0 if emit_previous else 1)
        if want_final:
            final = _final(rows, state, added, count, emit_previous).reshape(shape)
    return final, None if rows is None else rows.reshape(count, *shape)


def _read(inputs: Sequence[Array | None]) -> tuple[int, Array, Array]:
    """The number of iterations, v_initial and step."""
    limit, condition, initial, step = inputs
    if limit is None or initial is None or step is None:
        raise LoopliftError("AddStep: M, v_initial and step must be given")
    if limit.dtype != np.int64 or limit.size != 1:
        raise LoopliftError(f"AddStep: M must be one int64, not {limit.dtype} of shape {list(limit.shape)}")
    if condition is not None and (condition.dtype != np.bool_ or condition.size != 1):
        raise LoopliftError(f"AddStep: cond must be one bool, not {condition.dtype} of shape {list(condition.shape)}")
    if initial.dtype != step.dtype or initial.dtype not in NUMBERS:
        raise LoopliftError(f"AddStep: v_initial ({initial.dtype}) and step ({step.dtype}) must be of one number type")
    runs = condition is None or bool(condition.item())
    return max(int(limit.item()), 0) if runs else 0, initial, step


def _no_rows(initial: Array, step: Array, emit_previous: bool) -> Array:
    """The scan output of zero iterations: no rows, of the shape that the first would have.

    What was never added is no error: where the first addition would fail, rows have the extents of v_initial.
    """
    if emit_previous:
        return np.empty((0, *initial.shape), initial.dtype)
    pairs = itertools.zip_longest(reversed(initial.shape), reversed(step.shape), fillvalue=1)
    row = [grown if own == 1 else own for own, grown in pairs]
    return np.empty((0, *reversed(row)), initial.dtype)


def _row_before_growth(initial: Array, shape: tuple[int, ...], count: int) -> Array:
    """The previous states of a state that the first iteration broadcasts to ``shape``: only one row can be stacked."""
    if count == 1:
        return np.array(initial, ndmin=initial.ndim + 1)
    raise LoopliftError(
        f"AddStep: the state grows from {list(initial.shape)} to {list(shape)} in the first iteration, so its previous "
        "states can't be stacked: expand v_initial before the loop"
    )


def _broadcast_shape(initial: Array, step: Array) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(initial.shape, step.shape)
    except ValueError:
        raise LoopliftError(
            f"AddStep: v_initial {list(initial.shape)} and step {list(step.shape)} do not broadcast"
        ) from None


def _final(rows: Array | None, state: Array, step: Array, count: int, emit_previous: bool) -> Array:
    """State ``count``, [columns], from the last row where there are rows."""
    if rows is not None:
        last: Array = rows[-1]
        return np.add(last, step) if emit_previous else last.copy()
    if count > FEW_STEPS:
        return final_state(state, step, count)
    for _ in range(count):
        state = state + step
    return state


def _fill(rows: Array, state: Array, step: Array, first: int) -> None:
    """Writes the states from index ``first`` (0 or 1) on into ``rows``, [count, columns]."""
    count, columns = rows.shape
    if columns == 0:
        return
    if columns <= NARROW and count > FEW_STEPS:
        for out, start, addend in zip(rows.T, state, step, strict=True):
            _fill_column(out, start, addend, first)
        return
    rows[0] = state + step if first else state
    if count == 1 or run_compiled(add_rows, rows[1:], rows[0], step[np.newaxis]):
        return
    sections = SECTION_ELEMENTS // columns
    if sections <= 1 or count <= FEW_STEPS:
        _add_rows(rows, step)
    else:
        _fill_sections(rows, Trajectory.of(state, step, count), step, first, sections)


def _fill_sections(rows: Array, trajectory: Trajectory, step: Array, first: int, sections: int) -> None:
    """Adds in all sections of the rows at once: each starts from its exact state, so they need not wait in line.

    Some rows of each are made in a block that stays in the cache, since adding from row to row of ``rows`` would touch
    another page for every section.
    """
    count, columns = rows.shape
    length = -(-count // min(sections, count))
    sections = count // length
    by_section = rows[: sections * length].reshape(sections, length, columns)
    block = np.empty((min(BLOCK_ROWS, length), sections, columns), rows.dtype)
    block[0], every_step = trajectory.every(length, first, sections), np.tile(step, (sections, 1))
    for begin in range(0, length, BLOCK_ROWS):
        made = block[: length - begin]
        _add_rows(made, every_step)
        by_section[:, begin : begin + BLOCK_ROWS] = made.transpose(1, 0, 2)
        np.add(made[-1], every_step, out=block[0])
    _add_rows(rows[sections * length - 1 :], step)


def _add_rows(rows: Array, step: Array) -> None:
    """Fills ``rows`` from its first row on."""
    for previous, row in itertools.pairwise(rows):
        np.add(previous, step, out=row)


def _fill_column(out: Array, initial: Any, step: Any, first: int) -> None:
    """Writes the states from ``first`` on into ``out``, [count], piece by piece as bit patterns."""
    patterns = out.view(f"u{out.itemsize}")
    number = patterns.dtype.type
    modulus = 1 << 8 * out.itemsize
    index = np.arange(min(CHUNK, out.size)).astype(patterns.dtype)
    for start, end, bits, delta in column_pieces(initial, step, first + out.size - 1):
        begin = max(start, first)
        ramp = index[: end - begin] * number(delta % modulus)
        for state in range(begin, end, CHUNK):
            chunk = patterns[state - first : min(state + CHUNK, end) - first]
            np.add(ramp[: chunk.size], number((bits + (state - start) * delta) % modulus), out=chunk)

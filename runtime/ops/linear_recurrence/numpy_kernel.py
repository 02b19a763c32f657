"""LinearRecurrence on the host: in order of time, all columns at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.ops import Array
from looplift.runtime.ops.compiled import multiply_and_add_rows, run_compiled
from looplift.runtime.ops.time_axis import Series, run_over_time

FEW_COLUMNS = 3
"""Up to this many columns, numpy's scalars one by one are faster than two numpy calls per row (by measurement)."""


def linear_recurrence(
    inputs: Sequence[Array | None], attributes: Mapping[str, Any], wanted: Sequence[bool]
) -> tuple[Array | None, ...]:
    """Runs ``v = a[t] * v + b[t]``; inputs v_initial, a and b, attributes and results as ``run_over_time`` says.

    The attributes ``a_invariant`` and ``b_invariant`` say that a or b has no time axis.
    """
    initial, a, b = inputs
    series = [
        Series("a", a, bool(attributes.get("a_invariant", 0))),
        Series("b", b, bool(attributes.get("b_invariant", 0))),
    ]
    return run_over_time("LinearRecurrence", initial, series, attributes, wanted, _advance)


def _advance(rows: Array, state: Array, steps: Sequence[Array]) -> None:
    if run_compiled(multiply_and_add_rows, rows, state, *steps):
        return
    if state.size <= FEW_COLUMNS:
        columns = [values.reshape(len(rows), state.size).T for values in (rows, *steps)]
        for out, start, factors, terms in zip(columns[0], state.flat, *columns[1:], strict=True):
            _advance_column(out, start, factors, terms)
        return
    previous = state
    for factor, term, row in zip(*steps, rows, strict=True):
        np.multiply(factor, previous, out=row)
        np.add(row, term, out=row)
        previous = row


def _advance_column(out: Array, state: Any, factors: Array, terms: Array) -> None:
    for time, (factor, term) in enumerate(zip(factors, terms, strict=True)):
        state = factor * state + term
        out[time] = state

"""PrefixSum on the host: in order of time, all columns at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.ops import Array
from looplift.runtime.ops.compiled import AT_ONCE, add_rows, run_compiled
from looplift.runtime.ops.time_axis import Series, run_over_time

NARROW = 128
"""Up to this many columns, one ``accumulate`` beats one numpy call per row (by measurement)."""


def prefix_sum(
    inputs: Sequence[Array | None], attributes: Mapping[str, Any], wanted: Sequence[bool]
) -> tuple[Array | None, ...]:
    """Runs ``v = v + x[t]``; inputs v_initial and x, attributes and results as ``run_over_time`` says."""
    initial, x = inputs
    return run_over_time("PrefixSum", initial, [Series("x", x)], attributes, wanted, _advance)


def _advance(rows: Array, state: Array, steps: Sequence[Array]) -> None:
    (x,) = steps
    if run_compiled(add_rows, rows, state, x):
        return
    np.add(state, x[0], out=rows[0])
    if state.size > NARROW:
        for now in range(1, len(rows)):
            np.add(rows[now - 1], x[now], out=rows[now])
        return
    block = max(AT_ONCE // max(state.size, 1), 1)
    for begin in range(1, len(rows), block):
        part = rows[begin - 1 : begin + block]
        part[1:] = x[begin : begin + block]
        np.add.accumulate(part, axis=0, out=part)  # adds in order, unlike reduce, which adds in pairs

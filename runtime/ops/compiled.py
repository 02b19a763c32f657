"""The loops over rows as machine code, where numba is installed (the extra ``compiled``).

numpy needs a call for every row, which takes longer than the row where that is short. numba compiles the loops as they
are written: in order of time, and each operation rounded by itself, since it neither reorders nor fuses unless asked
to (fastmath). That is checked once, on values where it would show; a build that does not keep to it is not used.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from looplift.runtime.ops import Array
from looplift.runtime.ops.element_types import INTEGERS

WORTH = 1 << 16
"""Elements from which on it is worth while: the first call of a process imports numba, which takes a second."""

AT_ONCE = 1 << 24
"""Elements that are computed in one call, in some tenths of a second: Python hears of Ctrl-C between calls only."""

TYPES = INTEGERS | {np.dtype(np.float32), np.dtype(np.float64)}
"""The element types that numba computes with as numpy does."""

Loop = Callable[..., None]
"""(rows [time, columns], the state before them [columns], each series [time or 1, columns]) -> None: fills the rows."""


def add_rows(rows: Array, state: Array, addends: Array) -> None:
    """``v = v + addends[t]``."""
    for column in range(rows.shape[1]):
        rows[0, column] = state[column] + addends[0, column]
    for time in range(1, rows.shape[0]):
        now = time if addends.shape[0] > 1 else 0
        for column in range(rows.shape[1]):
            rows[time, column] = rows[time - 1, column] + addends[now, column]


def multiply_and_add_rows(rows: Array, state: Array, factors: Array, terms: Array) -> None:
    """``v = factors[t] * v + terms[t]``."""
    for column in range(rows.shape[1]):
        rows[0, column] = factors[0, column] * state[column] + terms[0, column]
    for time in range(1, rows.shape[0]):
        factor_now, term_now = time if factors.shape[0] > 1 else 0, time if terms.shape[0] > 1 else 0
        for column in range(rows.shape[1]):
            rows[time, column] = factors[factor_now, column] * rows[time - 1, column] + terms[term_now, column]


def run_compiled(loop: Loop, rows: Array, state: Array, *series: Array) -> bool:
    """Fills the rows by a compiled loop.

    Args:
        loop: one of this module's.
        rows: [time, *state], at least one; its columns lie side by side.
        state: the state before them.
        series: what the steps read, [time, *state], or [1, *state] if always the same.

    Returns:
        False, with nothing done, where that is not possible or not worth while.
    """
    if rows.size < WORTH or rows.dtype not in TYPES:
        return False
    build = _builds().get(loop)
    if build is None:
        return False
    columns = [one[: 1 if one.strides[0] == 0 else None].reshape(-1, state.size) for one in series]
    filled, before = rows.reshape(-1, state.size), state.reshape(-1)
    block = max(AT_ONCE // state.size, 1)
    for begin in range(0, len(filled), block):
        now = filled[begin : begin + block]
        build(now, before, *(one[begin : begin + block] if len(one) > 1 else one for one in columns))
        before = now[-1]
    return True


def numba_is_installed() -> bool:
    """Whether there is a numba (that it works is seen when it is used)."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def _builds() -> Mapping[Loop, Loop]:
    """The compiled form of each loop; none without numba."""
    if not numba_is_installed():
        return {}
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError as error:  # it wants another numpy, say
        warnings.warn(f"numba can't be used, so rows are computed by numpy: {error}", RuntimeWarning, stacklevel=2)
        return {}
    if numba.config.DISABLE_JIT:
        return {}
    builds = {loop: _build(numba, loop) for loop in (add_rows, multiply_and_add_rows)}
    return builds if all(_is_exact(builds, kind) for kind in (np.float32, np.float64)) else {}


def _build(numba: Any, loop: Loop) -> Loop:
    try:
        built: Loop = numba.njit(error_model="numpy", cache=True)(loop)
    except RuntimeError:  # there is no folder that the machine code could be kept in
        built = numba.njit(error_model="numpy")(loop)
    return built


def _is_exact(builds: Mapping[Loop, Loop], dtype: type[np.float32 | np.float64]) -> bool:
    """Whether products are rounded before they are added to, and subnormal numbers stay."""
    limits = np.finfo(dtype)
    epsilon, tiny = float(limits.eps), float(limits.smallest_subnormal)
    odd = 1 + epsilon
    factors = np.array([[odd, 0.5]] * 2, dtype)
    terms = np.array([[-(1 + 2 * epsilon), tiny]] * 2, dtype)
    state = np.array([odd, 4 * tiny], dtype)
    expected = np.empty_like(terms)
    for row, before in ((0, state), (1, expected[0])):
        np.multiply(factors[row], before, out=expected[row])
        np.add(expected[row], terms[row], out=expected[row])
    sums, found = np.empty_like(terms), np.empty_like(terms)
    builds[multiply_and_add_rows](found, state, factors, terms)
    builds[add_rows](sums, state, terms)
    added = np.stack([state + terms[0], (state + terms[0]) + terms[1]])
    return found.tobytes() == expected.tobytes() and sums.tobytes() == added.tobytes()

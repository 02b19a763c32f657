"""Run-time side of Loop: limits, iteration numbers, and the rows of scan outputs."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.values import Array, Value, truth
from looplift.runtime.ops.memory import allocate

Progress = Callable[[str, int, int | None], None]
_FIRST_ROWS = 256
MOST_ITERATIONS = 1 << 45
"""Iterations after which a loop counts as one that never ends: a million a second take a year."""
_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class LoopPlan:
    """What is known of a Loop before it runs.

    Attributes:
        never_ends: the body's condition can't end the loop.
        condition_rank, index_rank: the ranks that the body declares for its first two inputs.
    """

    name: str
    never_ends: bool
    condition_rank: int
    index_rank: int
    max_iterations: int | None
    progress: Progress | None

    def limit(self, m: Array | None, condition: Array | None) -> int | None:
        """How many iterations may run; None if only the condition ends the loop.

        Raises:
            LoopliftError: M or the condition has not one element, or nothing ever ends the loop, or not in years.
        """
        if condition is not None and not truth(condition):
            return 0
        if m is not None:
            if m.size != 1:
                raise LoopliftError(f"the trip count M has shape {list(m.shape)}; it must have one element")
            count = max(0, int(m.reshape(())))
            if self.never_ends and self.max_iterations is None and count > MOST_ITERATIONS:
                years = f"{count / 1e6 / 3600 / 24 / 365:,.0f} years"
                raise LoopliftError(
                    f"M is {count:,} and no condition ends the loop: with a million iterations a second it would run "
                    f"for {years}; give max_iterations to run it so often"
                )
            return count
        if self.never_ends and self.max_iterations is None:
            raise LoopliftError("nothing ever ends this loop; give max_iterations to run it so often")
        return self.max_iterations if self.never_ends else None

    def first_condition(self) -> Array:
        """The body's condition input in iteration 0, of the rank that the body declares."""
        return np.ones((1,) * self.condition_rank, dtype=bool)

    def capacity(self, limit: int | None) -> int:
        """How many rows to make at first where the condition may end the loop early."""
        return _FIRST_ROWS if limit is None else min(limit, _FIRST_ROWS)

    def counted(self, limit: int | None) -> Iterable[int]:
        """The iteration numbers.

        Raises:
            LoopliftError: in the iteration past `max_iterations`.
        """
        numbers: Iterable[int] = itertools.count() if limit is None else range(limit)
        if self.max_iterations is not None and (limit is None or limit > self.max_iterations):
            numbers = self._bounded(self.max_iterations)
        return numbers if self.progress is None else reporting(numbers, self.progress, self.name, limit)

    def indexed(self, limit: int | None) -> Iterable[tuple[int, Any]]:
        """The iteration numbers, each with the int64 value that the body sees."""
        return zip(self.counted(limit), _index_values(limit, (1,) * self.index_rank), strict=False)

    def _bounded(self, most: int) -> Iterator[int]:
        yield from range(most)
        raise LoopliftError(f"more than max_iterations={most} iterations")


def _index_values(limit: int | None, shape: tuple[int, ...]) -> Iterator[Any]:
    """Iteration numbers as int64, made a block at a time."""
    for start in itertools.count(0, _BLOCK):
        stop = start + _BLOCK if limit is None else min(limit, start + _BLOCK)
        yield from np.arange(start, stop, dtype=np.int64).reshape(-1, *shape)
        if stop == limit:
            return


def reporting(numbers: Iterable[int], progress: Progress, name: str, limit: int | None) -> Iterator[int]:
    """The same numbers, telling `progress` about ten times a second where the loop stands."""
    due = time.monotonic() + 0.1
    for k in numbers:
        if time.monotonic() >= due:
            progress(name, k, limit)
            due = time.monotonic() + 0.1
        yield k


def elements_of(*columns: Sequence[Value]) -> Iterator[tuple[int, tuple[Value, ...]]]:
    """Sequences walked side by side, numbered.

    Raises:
        LoopliftError: their lengths differ.
    """
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise LoopliftError(f"the sequences have different lengths: {lengths}")
    return enumerate(zip(*columns, strict=True))


class Budget:
    """Memory that the scan outputs of one loop take together."""

    def __init__(self) -> None:
        self._taken = 0

    def make(self, count: int, row: Array, name: str) -> Array:
        """Room for `count` rows like `row`.

        Raises:
            LoopliftError: it does not fit in memory beside the other scan outputs.
        """
        what = f"the rows of scan output '{name}'"
        self._taken += count * row.nbytes
        allocate((self._taken,), np.dtype(np.uint8), what)  # only asks: nothing of it is touched
        return allocate((count, *row.shape), row.dtype, what)


def make_rows(rows: Array | None, k: int, row: Array, capacity: int, budget: Budget, name: str) -> Array:
    """Room for the rows of a scan output, made when its first row is known.

    Raises:
        LoopliftError: the row's shape differs from those before it, or the rows do not fit in memory.
    """
    if rows is not None:
        raise LoopliftError(
            f"scan output '{name}' changes its shape from {list(rows.shape[1:])} to {list(row.shape)} in iteration {k}"
        )
    return budget.make(capacity, row, name)


def grow_rows(rows: Array, budget: Budget, name: str) -> Array:
    """Twice the room, with the rows so far.

    Raises:
        LoopliftError: it does not fit in memory.
    """
    grown = budget.make(2 * len(rows), rows[0], name)
    grown[: len(rows)] = rows
    return grown


def finish_rows(rows: Array, count: int) -> Array:
    """The first `count` rows, without holding much more memory than they need."""
    if count == len(rows):
        return rows
    return rows[:count] if 2 * count > len(rows) else rows[:count].copy()


def check_dtype(rows: Array, row: Array, name: str) -> None:
    """Raises:
    LoopliftError: a row of a scan output has another dtype than those before it.
    """
    if rows.dtype != row.dtype:
        raise LoopliftError(f"scan output '{name}' changes its dtype from {rows.dtype} to {row.dtype}")

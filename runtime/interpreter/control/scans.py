"""Run-time side of Scan: axes, directions, batches (Scan-8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.control.loops import Progress, reporting
from looplift.runtime.interpreter.values import Array


@dataclasses.dataclass(frozen=True)
class Axes:
    """How a Scan reads its inputs and writes its outputs: an axis and a direction (1: backward) each."""

    states: int
    input_axes: tuple[int, ...]
    input_directions: tuple[int, ...]
    output_axes: tuple[int, ...]
    output_directions: tuple[int, ...]

    @classmethod
    def read(
        cls,
        attributes: Mapping[str, Any],
        *,
        inputs: int,
        body_inputs: int,
        body_outputs: int,
        outputs: int,
        batched: bool,
    ) -> Axes:
        """Read the attributes of a node and check the numbers of its inputs and outputs.

        Raises:
            LoopliftError: they do not fit together.
        """
        count = attributes.get("num_scan_inputs")
        if count is None or not 0 < count <= inputs:
            raise LoopliftError(f"num_scan_inputs is {count}, of {inputs} inputs")
        states = inputs - count
        if body_inputs != inputs or body_outputs != outputs or body_outputs < states:
            raise LoopliftError(
                f"the body has {body_inputs} inputs and {body_outputs} outputs, the node {inputs} and {outputs}, "
                f"{states} of them states"
            )
        stacked = outputs - states
        directions = "directions" if batched else "scan_input_directions"
        axes = cls(
            states,
            _numbers(attributes, "scan_input_axes", count),
            _numbers(attributes, directions, count),
            _numbers(attributes, "scan_output_axes", stacked),
            _numbers(attributes, "scan_output_directions", stacked),
        )
        if not {*axes.input_directions, *axes.output_directions} <= {0, 1}:
            raise LoopliftError("a direction must be 0 (forward) or 1 (backward)")
        return axes


def _numbers(attributes: Mapping[str, Any], name: str, count: int) -> tuple[int, ...]:
    given = tuple(attributes.get(name) or (0,) * count)
    if len(given) != count:
        raise LoopliftError(f"{name} has {len(given)} entries, {count} are needed")
    return given


def _axis(axis: int, rank: int, what: str) -> int:
    if not -rank <= axis < rank:
        raise LoopliftError(f"{what} axis {axis} is out of range for rank {rank}")
    return axis % rank


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """What is known of a Scan before it runs."""

    name: str
    axes: Axes
    progress: Progress | None

    def time_first(self, inputs: Sequence[Array]) -> tuple[int, tuple[Array, ...]]:
        """The trip count, and the scan inputs in the order in which they are read, the scan axis first.

        Raises:
            LoopliftError: an axis is out of range or the lengths differ.
        """
        views = []
        for x, axis, backward in zip(inputs, self.axes.input_axes, self.axes.input_directions, strict=True):
            view = _move_axis(x, _axis(axis, x.ndim, "scan input"), 0)
            views.append(view[::-1] if backward else view)
        lengths = {len(view) for view in views}
        if len(lengths) != 1:
            raise LoopliftError(f"the scan inputs have different lengths: {[len(view) for view in views]}")
        return lengths.pop(), tuple(views)

    def elements(self, limit: int, views: Sequence[Array]) -> Iterator[tuple[int, tuple[Array, ...]]]:
        """The iteration numbers, each with the elements of the scan inputs."""
        numbers: Iterable[int] = range(limit)
        if self.progress is not None:
            numbers = reporting(numbers, self.progress, self.name, limit)
        return zip(numbers, zip(*map(_rows, views), strict=True), strict=True)

    def finish(self, results: Sequence[Any]) -> tuple[Any, ...]:
        """The node's outputs: the states, and the rows on the output axes in the output directions.

        Raises:
            LoopliftError: an axis is out of range.
        """
        done = list(results[: self.axes.states])
        axes = zip(results[self.axes.states :], self.axes.output_axes, self.axes.output_directions, strict=True)
        for rows, axis, backward in axes:
            if rows is None:
                done.append(None)
                continue
            ordered = rows[::-1] if backward else rows
            done.append(_move_axis(ordered, 0, _axis(axis, rows.ndim, "scan output")))
        return tuple(done)


def _move_axis(x: Array, start: int, end: int) -> Array:
    """The array itself where its axes stay: a view would be copied when it leaves the session."""
    return x if start == end else np.moveaxis(x, start, end)


def _rows(x: Array) -> Iterable[Array]:
    """The elements along the first axis; iterating a vector of strings would give bare strings."""
    return (x[k, ...] for k in range(len(x))) if x.dtype == object and x.ndim == 1 else x


def keep_shape(old: Array, new: Array) -> None:
    """Raises:
    LoopliftError: always, a Scan's state may not change its shape.
    """
    raise LoopliftError(f"a state changes its shape from {list(old.shape)} to {list(new.shape)}")


@dataclasses.dataclass(frozen=True)
class Batches:
    """Scan-8: a Scan over each batch entry, with its own length; scan outputs are padded with zeros."""

    axes: Axes

    def __call__(
        self, scan: Callable[..., tuple[Any, ...]], lengths: Array | None, inputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Run `scan` for each batch entry on inputs with a leading batch axis, captures after them, and stack.

        Raises:
            LoopliftError: the batch sizes differ, or a length is longer than the input.
        """
        count = self.axes.states + len(self.axes.input_axes)
        batched, captured = inputs[:count], inputs[count:]
        if any(x.ndim < 1 + (n >= self.axes.states) for n, x in enumerate(batched)):
            raise LoopliftError("every input needs a batch axis, and every scan input a sequence axis after it")
        sizes = {len(x) for x in batched}
        if len(sizes) != 1:
            raise LoopliftError(f"the inputs have different batch sizes: {[len(x) for x in batched]}")
        size = sizes.pop()
        if size == 0:
            raise LoopliftError("the batch is empty")
        times = {x.shape[1] for x in batched[self.axes.states :]}
        if len(times) != 1:
            raise LoopliftError(f"the scan inputs have different lengths: {sorted(times)}")
        longest = times.pop()
        steps = [longest] * size if lengths is None else [int(n) for n in np.ravel(lengths)]
        if len(steps) != size or any(not 0 <= n <= longest for n in steps):
            raise LoopliftError(f"sequence_lens {steps} does not fit {size} sequences of length {longest}")
        entries = [
            scan(*[x[b] if n < self.axes.states else x[b][: steps[b]] for n, x in enumerate(batched)], *captured)
            for b in range(size)
        ]
        return tuple(
            _stack(column, None if n < self.axes.states else longest)
            for n, column in enumerate(zip(*entries, strict=True))
        )


def _stack(column: Sequence[Array | None], length: int | None) -> Array | None:
    """One array of the batch entries; scan outputs, which have a length, are padded with zeros to it."""
    first = column[0]
    if first is None:
        return None
    shapes = [x.shape if length is None else (length, *x.shape[1:]) for x in column if x is not None]
    if len(set(shapes)) != 1:
        raise LoopliftError(f"the batch entries give different shapes: {sorted(set(shapes))}")
    stacked = np.zeros((len(column), *shapes[0]), dtype=first.dtype)
    for b, x in enumerate(column):
        if x is not None:
            stacked[b][tuple(slice(n) for n in x.shape)] = x
    return stacked

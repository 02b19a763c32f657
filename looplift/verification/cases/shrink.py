"""A smaller counterexample: fewest iterations, smallest dims, simplest numbers on which two models still differ."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift.verification.cases.made_up import Feeds, unknown_dims
from looplift.verification.compare import Array, is_float

_TRIES = 1000
"""Runs at most."""

_SINGLE_ELEMENTS = 32
"""Elements of an input that are made simpler one by one, after those in blocks."""


def shrink(
    feeds: Feeds,
    inputs: Sequence[ir.Value],
    counted: frozenset[str],
    differ: Callable[[Feeds], bool],
    seconds: float,
) -> Feeds:
    """The smallest inputs found; those given if there are none smaller.

    Greedy: each change is kept if the models still differ, until none is kept any more or the time is over.

    Args:
        feeds: inputs on which the models differ.
        inputs: the models' inputs, which say which dims belong together, and which inputs have a default.
        counted: names of the inputs that decide how often loops run.
        differ: whether the models differ on some inputs, in the way they did.
        seconds: no further run begins after this time.
    """
    return _Shrinker(feeds, inputs, counted, differ, seconds).run()


class _Shrinker:
    def __init__(
        self,
        feeds: Feeds,
        inputs: Sequence[ir.Value],
        counted: frozenset[str],
        differ: Callable[[Feeds], bool],
        seconds: float,
    ) -> None:
        self._feeds = feeds
        self._inputs = {value.name or "": value for value in inputs}
        self._counted = [name for name in feeds if name in counted]
        self._differ = differ
        self._deadline = time.monotonic() + seconds
        self._tries = 0

    def run(self) -> Feeds:
        steps = (self._leave_out, self._fewer_iterations, self._shorter_lists, self._smaller_dims, self._simpler_values)
        while self._goes_on and any([step() for step in steps]):
            pass
        return self._feeds

    @property
    def _goes_on(self) -> bool:
        return self._tries < _TRIES and time.monotonic() < self._deadline

    def _accepts(self, changes: Mapping[str, Any]) -> bool:
        """Makes the changes if the models still differ then."""
        if not self._goes_on or all(_same(self._feeds[name], value) for name, value in changes.items()):
            return False
        self._tries += 1
        feeds = self._feeds | dict(changes)
        if self._differ(feeds):
            self._feeds = feeds
            return True
        return False

    def _leave_out(self) -> bool:
        """Inputs that have a default, and optional ones."""
        changed = False
        for name, value in list(self._feeds.items()):
            port = self._inputs.get(name)
            if port is not None and port.is_initializer() and self._goes_on:
                self._tries += 1
                rest = {other: each for other, each in self._feeds.items() if other != name}
                if self._differ(rest):
                    self._feeds, changed = rest, True
            elif port is not None and value is not None and isinstance(port.type, ir.OptionalType):
                changed |= self._accepts({name: None})
        return changed

    def _fewer_iterations(self) -> bool:
        changed = False
        for name in (name for name in self._counted if name in self._feeds):
            array = self._feeds[name]
            if isinstance(array, np.ndarray) and array.size == 1 and _is_number(array):
                changed |= self._smaller_number(name, ())
        return changed

    def _shorter_lists(self) -> bool:
        return any([self._shorter(name) for name, value in self._feeds.items() if isinstance(value, list | tuple)])

    def _shorter(self, name: str) -> bool:
        def kept(cut: Callable[[int], slice]) -> bool:
            return self._least(len(self._feeds[name]), lambda k: self._accepts({name: list(self._feeds[name][cut(k)])}))

        changed = any([kept(lambda k: slice(k)), kept(lambda k: slice(-k, None))])
        zeros = [np.full_like(each, _zero(each)) for each in self._feeds[name] if isinstance(each, np.ndarray)]
        return (len(zeros) == len(self._feeds[name]) and self._accepts({name: zeros})) or changed

    def _smaller_dims(self) -> bool:
        """All dims of one size at a time, then each: the first rows are kept, else the last ones."""
        places = self._places()
        sizes: dict[int, list[str]] = {}
        for key in places:
            sizes.setdefault(self._size(places[key]), []).append(key)
        groups = [group for group in sizes.values() if len(group) > 1] + [[key] for key in places]
        changed = False
        for group in groups:
            cut = [place for key in group for place in places[key]]
            changed |= any([self._smaller(cut, from_end=from_end) for from_end in (False, True)])
        return changed

    def _smaller(self, places: Sequence[tuple[str, int]], *, from_end: bool) -> bool:
        return self._least(self._size(places), lambda k: self._accepts(self._cut(places, k, from_end)))

    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """Input and axis of each unknown dim."""
        places: dict[str, list[tuple[str, int]]] = {}
        for name, value in self._feeds.items():
            if isinstance(value, np.ndarray) and name in self._inputs:
                for axis, key in enumerate(unknown_dims(self._inputs[name], value.ndim)):
                    if isinstance(key, str):
                        places.setdefault(key, []).append((name, axis))
        return places

    def _size(self, places: Sequence[tuple[str, int]]) -> int:
        return max((int(self._feeds[name].shape[axis]) for name, axis in places), default=0)

    def _cut(self, places: Sequence[tuple[str, int]], size: int, from_end: bool) -> dict[str, Array]:
        changes: dict[str, Array] = {}
        for name, axis in places:
            array = changes[name] if name in changes else self._feeds[name]
            first = max(array.shape[axis] - size, 0) if from_end else 0
            changes[name] = np.ascontiguousarray(
                np.take(array, range(first, min(first + size, array.shape[axis])), axis)
            )
        return changes

    @staticmethod
    def _least(size: int, accepts: Callable[[int], bool]) -> bool:
        """Looks for the smallest size that is accepted: 1, 2 and 3, then by halves. Returns whether one was."""
        for small in range(1, min(size, 4)):
            if accepts(small):
                return True
        low, high = 3, size
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if accepts(middle) else (middle, high)
        return 3 < high < size

    def _simpler_values(self) -> bool:
        changed = False
        for name, value in list(self._feeds.items()):
            if isinstance(value, np.ndarray) and name not in self._counted and value.size:
                changed |= self._accepts({name: np.full_like(value, _zero(value))}) or self._simpler_elements(name)
        return changed

    def _simpler_elements(self, name: str) -> bool:
        """Sets blocks of elements to zero, half of them at first, then makes the ones that are left simpler."""
        changed = False
        block = self._feeds[name].size
        while block > 1 and self._goes_on:
            block = (block + 1) // 2
            for first in range(0, self._feeds[name].size, block):
                array = self._feeds[name].copy()
                array.reshape(-1)[first : first + block] = _zero(array)
                changed |= self._accepts({name: array})
        array = self._feeds[name]
        if not _is_number(array):
            return changed
        left = [place for place in np.ndindex(array.shape) if not _same(array[place], array.dtype.type(0))]
        return any([self._smaller_number(name, place) for place in left[:_SINGLE_ELEMENTS]]) or changed

    def _smaller_number(self, name: str, place: tuple[int, ...]) -> bool:
        """Makes one element simpler: 0, 1, few digits; then as near to zero as can be."""

        def accepts(number: float) -> bool:
            array = self._feeds[name].copy()
            array[place or (0,) * array.ndim] = number
            return self._accepts({name: array})

        number = self._feeds[name][place or (0,) * self._feeds[name].ndim].item()
        for simple in _simpler(number):
            if accepts(simple):
                number = simple
                break
        else:
            simple = number
        if isinstance(number, int) or (np.isfinite(number) and number == int(number)):
            sign, size = (-1, -int(number)) if number < 0 else (1, int(number))
            return self._least(size, lambda k: accepts(sign * k)) or simple is not number
        return False


def _simpler(number: float) -> Iterator[float]:
    """Simpler numbers than one, the simplest first."""
    for simple in (0, 1, -1, 2):
        if simple == number and not (number == 0 and np.signbit(number)):
            return
        yield simple
    if isinstance(number, float) and np.isfinite(number):
        yield math.copysign(math.ceil(abs(number)), number)
        yield from (round(number, digits) for digits in range(3))


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "iu" or is_float(array.dtype)


def _zero(array: Array) -> Any:
    return "" if array.dtype.kind in "OU" else array.dtype.type(0)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic) and isinstance(other, np.ndarray | np.generic):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and (one.tolist() == other.tolist() if one.dtype.kind == "O" else one.tobytes() == other.tobytes())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other

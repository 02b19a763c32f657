"""Inputs made up for a model: shapes that agree, trip counts that matter, floats that hurt.

All follow from a seed, and from what became of the cases before. Three things vary from case to case, see `plans`: the
sizes of unknown dims (a symbolic dim has one size in the whole case), the values of the inputs that decide how
often loops run (see `trips`), and the kind of the other values.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from looplift.doors import MOST_AXES
from looplift.runtime.errors import LoopliftError
from looplift.verification.cases.plans import Plan, Planner, Queue
from looplift.verification.cases.thresholds import Number, Thresholds, candidates, thresholds
from looplift.verification.cases.trips import trip_inputs
from looplift.verification.compare import Array, is_float
from looplift.verification.floats import floats, telling_floats

Feeds = dict[str, Any]

LARGEST_TENSOR = 1 << 26
"""Elements; an input with a larger fixed shape has to be given."""

_LARGEST_FREE = 1 << 18
"""Elements that an input with unknown dims may get; beyond, its unknown dims shrink to 1."""

_LARGEST_LENGTH = 64
"""Elements of a list, and largest number in a shape that is an input."""

_SCOUTING = 2.0
"""Seconds for finding sizes with which the original runs, where it failed from the beginning."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of inputs and, in words, how it was made."""

    label: str
    feeds: Feeds


class Cases:
    """Endlessly many cases for a pair of models.

    Args:
        models: the original and, where there is one, the rewritten one; the inputs are the first's.
        seed: all cases follow from it, and from what is learned.
        runs: tells whether the original gives a result; used to find sizes that agree where the first cases fail.
        endless: whether floats that decide how often loops run may get values with which they never end.

    Raises:
        LoopliftError: an input is too large, or of a type that can't be made up (maps, sparse tensors).
    """

    def __init__(
        self,
        models: Sequence[ir.Model],
        *,
        seed: int = 0,
        runs: Callable[[Feeds], bool] | None = None,
        endless: bool = True,
    ) -> None:
        self._maker = _Maker(models[0], trip_inputs(models[0]), models)
        self._planner = self._maker.planner(seed, endless=endless)
        self._seed = seed
        self._runs = runs
        self._numbers = itertools.count()
        self._plans: dict[str, Plan] = {}

    def __iter__(self) -> Iterator[Case]:
        return self

    def __next__(self) -> Case:
        if self._runs is not None and self._planner.stuck:
            self._scout(self._runs)
            self._runs = None
        number = next(self._numbers)
        plan = self._planner.plan(number)
        case = Case(plan.label, self._maker.feeds(plan, np.random.default_rng((self._seed, number))))
        self._plans[case.label] = plan
        return case

    def learn(self, case: Case, *, ran: bool, seconds: float = 0.0) -> None:
        """To be told what became of a case: whether the original gave a result, how long all engines took."""
        plan = self._plans.pop(case.label, None)
        if plan is not None:
            self._planner.learn(plan, ran=ran, seconds=seconds)

    def _scout(self, runs: Callable[[Feeds], bool]) -> None:
        rng, deadline = np.random.default_rng((self._seed, 3)), time.monotonic() + _SCOUTING
        self._planner.scout(lambda plan: time.monotonic() < deadline and runs(self._maker.feeds(plan, rng)))


def generate(model: ir.Model, *, seed: int = 0) -> Iterator[Case]:
    """Endlessly many cases for a model's inputs; see `Cases`."""
    return iter(Cases([model], seed=seed))


def make_one(model: ir.Model, *, dims: Mapping[str, int], size: int, count: int, seed: int = 0) -> Feeds:
    """One set of plain inputs.

    Args:
        model: whose inputs.
        dims: sizes of symbolic dims; one without a symbol is called ``INPUT axis K``.
        size: of the other unknown dims.
        count: what inputs that decide how often loops run are.
        seed: the values follow from it.

    Raises:
        LoopliftError: no input has such a dim; an input is too large, or of a type that can't be made up.
    """
    maker = _Maker(model, trip_inputs(model), ())
    if unknown := sorted(dims.keys() - maker.keys.keys()):
        there = ", ".join(sorted(maker.keys)) or "none"
        raise LoopliftError(f"no input has a dim {unknown[0]!r}; there are: {there}")
    sizes = dict.fromkeys(maker.keys, size) | dict(dims)
    plan = Plan(0, "plain", sizes, dict.fromkeys(maker.counted, count), count != 0)
    return maker.feeds(plan, np.random.default_rng(seed), dims)


class _Maker:
    """Makes the arrays of a plan for a model's inputs."""

    def __init__(self, model: ir.Model, counted: frozenset[str], models: Sequence[ir.Model]) -> None:
        self._inputs = {value.name or "": value for value in model.graph.inputs}
        self._defaults = model.graph.initializers
        self.counted = [name for name in self._inputs if name in counted]
        self._thresholds: Thresholds = thresholds(models or [model], counted)
        self._queues: dict[tuple[str, str, bool], Queue[Number]] = {}
        self.keys: dict[str, list[str]] = {}
        for name, value in self._inputs.items():
            for key in _keys(value, name in counted):
                self.keys.setdefault(key, []).append(name)

    def planner(self, seed: int, *, endless: bool) -> Planner:
        """What plans the cases."""
        dtypes = {name: _numpy(dtype) for name in self.counted if (dtype := self._inputs[name].dtype) is not None}
        numbers = {name: is_float(kind) for name, kind in dtypes.items() if is_float(kind) or kind.kind in "iu"}
        return Planner(self.keys, numbers, self._thresholds, seed, endless=endless)

    def feeds(self, plan: Plan, rng: np.random.Generator, given: Container[str] = ()) -> Feeds:
        """The inputs; dims that are ``given`` keep their size even if an input gets large."""
        sizes = dict(plan.sizes)
        names = [name for name in self._inputs if plan.override or name not in self._defaults]
        shapes = {name: self._dims(name, rng) for name in names}
        for name, shape in shapes.items():
            if name in self.counted and rng.random() < 0.75 and plan.dim is None:
                sizes |= {
                    key: 1 for key in shape if isinstance(key, str) and self.keys[key] == [name] and key not in given
                }
            _shrink(name, shape, sizes, given)
        made = _Sized(plan, sizes, rng)
        return {
            name: self._make(
                name, self._inputs[name].type, tuple(sizes[d] if isinstance(d, str) else d for d in shape), made
            )
            for name, shape in shapes.items()
        }

    def _dims(self, name: str, rng: np.random.Generator) -> list[int | str]:
        value = self._inputs[name]
        if value.shape is not None and len(value.shape) > MOST_AXES:
            raise LoopliftError(
                f"can't make up input {name!r} of {len(value.shape)} axes; numpy has {MOST_AXES} at most"
            )
        return unknown_dims(value, 0 if name in self.counted else int(rng.choice((1, 0, 2))))

    def _make(self, name: str, kind: ir.TypeProtocol | None, shape: tuple[int, ...], made: _Sized) -> Any:
        if isinstance(kind, ir.OptionalType):
            return None if made.rng.random() < 0.3 else self._make(name, kind.elem_type, shape, made)
        if isinstance(kind, ir.SequenceType):
            length = min(made.sizes[f"{name} length"], _LARGEST_LENGTH)
            return [self._make(name, kind.elem_type, shape, made) for _ in range(length)]
        if not isinstance(kind, ir.TensorType):
            raise LoopliftError(f"can't make up input {name!r} of type {kind}: give inputs")
        dtype = kind.dtype
        if name in self.counted:
            return self._trips(name, dtype, shape, made)
        return self._values(name, dtype, shape, made)

    def _trips(self, name: str, dtype: ir.DataType, shape: tuple[int, ...], made: _Sized) -> Array:
        kind = _numpy(dtype)
        if kind == np.bool_:
            return np.full(shape, made.plan.flag)
        if name not in made.plan.counts or (made.plan.free and is_float(kind)):
            return self._values(name, dtype, shape, made)
        return _fitting(np.full(shape, made.plan.counts[name]), kind)

    def _values(self, name: str, dtype: ir.DataType, shape: tuple[int, ...], made: _Sized) -> Array:
        rng, kind = made.rng, made.plan.kind
        if dtype == ir.DataType.STRING:
            return np.asarray(
                rng.choice(np.array(["", "a", "loop", "lift", "\u00e9"], dtype=object), size=shape), object
            )
        array = _numpy(dtype)
        if array == np.bool_:
            share = {"small": 0.0, "ties": 1.0}.get(kind, 0.5)
            return np.asarray(rng.random(shape) < share)
        if array.kind == "c":
            part = ir.DataType.FLOAT if array.itemsize == 8 else ir.DataType.DOUBLE
            return np.asarray(self._values(name, part, (*shape, 2), made).view(array)).reshape(shape)
        if is_float(array):
            return self._floats(name, array, shape, made)
        return self._integers(name, dtype, array, shape, made)

    def _floats(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], made: _Sized) -> Array:
        kind, rng = made.plan.kind, made.rng
        plain = functools.partial(floats, shape, dtype)
        if kind == "special":  # one after the other, for there may be few elements; in later cases not all inputs
            if made.drawn and rng.random() < 0.4 and not made.plan.free:
                return plain("plain", rng)
            queue = self._queue(name, "special", dtype, shape)
            return self._placed(queue, plain(kind, rng), 1.0 if made.drawn else 0.7, rng)
        if kind == "near":
            share = 1.0 if shape == () or rng.random() < 0.2 else 0.5
            return self._placed(self._queue(name, "near", dtype, shape), plain("plain", rng), share, rng)
        return plain(kind, rng)

    def _integers(
        self, name: str, dtype: ir.DataType, array: np.dtype[Any], shape: tuple[int, ...], made: _Sized
    ) -> Array:
        """Plain ones are 0 to 2, small ones 0 or 1; lengths go up to the unknown dims' size; indices stay in range."""
        kind, rng = made.plan.kind, made.rng
        least, greatest = int(dtype.min), int(dtype.max)
        if kind == "special" and not (made.drawn and name in {*self._thresholds.indices, *self._thresholds.sizing}):
            pool = (least, least + 1, greatest, greatest - 1, 0, 1)
            return np.asarray(rng.choice(np.array(pool, dtype=object), size=shape)).astype(array)
        if name in self._thresholds.indices:
            return self._indices(name, array, shape, made)
        largest = max(made.sizes.values(), default=2)
        ranges = {"plain": (0, 2), "ties": (-4, 8), "bits": (least, greatest), "lengths": (largest // 2, largest)}
        low, high = (min(max(end, least), greatest) for end in ranges.get(kind, (0, 1)))
        drawn = rng.integers(low, high, shape, np.uint64 if least == 0 else np.int64, True)
        numbers = np.asarray(drawn).astype(array)
        sizing = name in self._thresholds.sizing
        if kind == "log" and not sizing:
            signs = rng.choice((-1, 1), shape) if least < 0 else 1
            return _fitting(np.floor(2 ** rng.uniform(0, 24, shape)) * signs, array)
        if kind == "near":
            queue = self._queue(name, "near", array, shape)
            return self._placed(queue, numbers, 1.0 if shape == () else 0.5, rng, _LARGEST_LENGTH if sizing else None)
        return numbers

    def _indices(self, name: str, array: np.dtype[Any], shape: tuple[int, ...], made: _Sized) -> Array:
        """Within the axes that they point into, from either end in half of the cases; the ends more often."""
        extents = [made.sizes.get(e, 1) if isinstance(e, str) else e for e in self._thresholds.indices[name]]
        extent = max(min(extents or [min((s for s in made.sizes.values() if s > 0), default=2)]), 1)
        low = -extent if made.rng.random() < 0.5 and array.kind == "i" else 0
        numbers = made.rng.integers(low, extent, shape)
        ends = made.rng.choice((low, extent - 1, max(low, -1), 0), shape)
        return _fitting(np.where(made.rng.random(shape) < 0.4, ends, numbers), array)

    def _queue(self, name: str, kind: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Queue[Number]:
        key = (name, kind, shape == ())
        if key not in self._queues:
            ranks = self._thresholds.values[name]
            whole = not is_float(dtype)
            numbers = candidates(ranks, None if whole else dtype)
            if kind == "special":
                numbers = telling_floats(dtype, list(self._inputs).index(name))
            elif shape == () and not whole:  # no other element can be special
                strong = candidates(ranks[:2], dtype)
                rows = itertools.zip_longest(strong[::2], strong[1::2], telling_floats(dtype))
                mixed = [number for row in rows for number in row if number is not None]
                numbers = list(dict.fromkeys([*mixed, *numbers]))
            self._queues[key] = Queue(numbers)
        return self._queues[key]

    def _placed(
        self, queue: Queue[Number], numbers: Array, share: float, rng: np.random.Generator, limit: int | None = None
    ) -> Array:
        """Candidates at random places, about so many of all; such that fit into the dtype."""
        flat = numbers.reshape(-1).copy()
        places = rng.permutation(flat.size)[: math.ceil(share * flat.size)]
        taken = [queue.next() for _ in range(min(len(places), len(queue)))]
        for place, number in zip(places, itertools.cycle(taken or [0])):
            if taken and (limit is None or abs(number) <= limit):
                flat[place] = _fitting(np.asarray(number), flat.dtype)
        return np.asarray(flat.reshape(numbers.shape))


@dataclasses.dataclass(frozen=True)
class _Sized:
    """A plan, the sizes that came of it, and the source of the values."""

    plan: Plan
    sizes: Mapping[str, int]
    rng: np.random.Generator

    @property
    def drawn(self) -> bool:
        """Whether the plan is one of those drawn at random."""
        return self.plan.drawn


def _keys(value: ir.Value, counts: bool) -> list[str]:
    """The unknown dims of an input, by their symbol or place; the length of a list is one too."""
    kind = value.type
    while isinstance(kind, ir.OptionalType):
        kind = kind.elem_type
    lengths = [f"{value.name} length"] if isinstance(kind, ir.SequenceType) else []
    return lengths + [dim for dim in unknown_dims(value, 0 if counts else 2) if isinstance(dim, str)]


def unknown_dims(value: ir.Value, rank: int) -> list[int | str]:
    """The dims of an input; an unknown one is a key: its symbol, or its place if it has none.

    Args:
        value: the input.
        rank: how many there are if that is not declared.
    """
    dims: Sequence[int | ir.SymbolicDim] = [ir.SymbolicDim(None)] * rank if value.shape is None else list(value.shape)
    return [
        dim if isinstance(dim, int) else str(dim.value) if dim.value is not None else f"{value.name} axis {axis}"
        for axis, dim in enumerate(dims)
    ]


def _shrink(name: str, shape: Sequence[int | str], sizes: dict[str, int], given: Container[str]) -> None:
    """Makes unknown dims that are not given 1, the leading ones first, until the input is not too large."""

    def elements() -> int:
        return math.prod(sizes[dim] if isinstance(dim, str) else dim for dim in shape)

    for key in (dim for dim in shape if isinstance(dim, str) and dim not in given):
        if elements() > _LARGEST_FREE:
            sizes[key] = 1
    if elements() > LARGEST_TENSOR:
        raise LoopliftError(f"input {name!r} of shape {list(shape)} is too large to make up: give inputs")


def _fitting(numbers: Array, kind: np.dtype[Any]) -> Array:
    """The numbers in another dtype, those that don't fit at its nearer end."""
    if not is_float(kind):
        limits = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]
        numbers = np.clip(numbers, limits.min, limits.max)
    with np.errstate(all="ignore"):
        return np.asarray(np.asarray(numbers).astype(kind))


def _numpy(dtype: ir.DataType) -> np.dtype[Any]:
    return np.dtype(dtype.numpy())

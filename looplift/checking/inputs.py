"""Inputs made up for a model: shapes that agree, trip counts that matter, floats that hurt.

The first cases are chosen, the later ones random; all follow from the seed. Three things vary from case to case:
the sizes of unknown dims (a symbolic dim has one size in the whole case), the values of the inputs that decide how
often loops run (see `trips`), and the kind of the other values.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from looplift.checking.compare import Array, is_float
from looplift.checking.trips import trip_inputs
from looplift.runtime.errors import LoopliftError

Feeds = dict[str, Any]

COUNTS = (2, 1, 0, -1, 17, 300)
SIZES = (2, 3, 1, 17, 4, 0)
LARGE_SIZE = 1000
KINDS = ("plain", "special", "ties", "bits", "small", "lengths")

LARGEST_TENSOR = 1 << 26
"""Elements; an input with a larger fixed shape has to be given."""

_LARGEST_FREE = 1 << 18
"""Elements that an input with unknown dims may get; beyond, its unknown dims shrink to 1."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of inputs and, in words, how it was made."""

    label: str
    feeds: Feeds


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What one case is made of; ``uniform``: all unknown dims have the same size, all trip inputs the same value."""

    number: int
    kind: str
    size: int
    count: int
    uniform: bool
    override: bool

    @property
    def label(self) -> str:
        sizes = f"unknown dims {self.size}" if self.uniform else "mixed dims"
        counts = f"trip count {self.count}" if self.uniform else "mixed trip counts"
        return f"case {self.number}: {self.kind} values, {sizes}, {counts}"


def generate(model: ir.Model, *, seed: int = 0) -> Iterator[Case]:
    """Endlessly many cases for a model's inputs.

    Raises:
        LoopliftError: an input is too large, or of a type that can't be made up (maps, sparse tensors).
    """
    counted = trip_inputs(model)
    for plan in _plans(seed):
        rng = np.random.default_rng((seed, plan.number))
        yield Case(plan.label, _make_feeds(model, counted, plan, rng))


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
    counted, plan, rng = trip_inputs(model), _Plan(0, "plain", size, count, True, False), np.random.default_rng(seed)
    known = {dim for value in model.graph.inputs for dim in _dims(value, False, rng) if isinstance(dim, str)}
    if unknown := sorted(dims.keys() - known):
        raise LoopliftError(f"no input has a dim {unknown[0]!r}; there are: {', '.join(sorted(known)) or 'none'}")
    return _make_feeds(model, counted, plan, rng, dims)


def _plans(seed: int) -> Iterator[_Plan]:
    number = itertools.count()
    for index, count in enumerate(COUNTS):
        yield _Plan(next(number), "plain", SIZES[index % 2], count, uniform=True, override=False)
    for kind, count in itertools.product(KINDS[1:], (17, 2)):
        yield _Plan(next(number), kind, 3, count, uniform=True, override=False)
    for size in SIZES[2:]:
        yield _Plan(next(number), "plain", size, 3, uniform=True, override=False)
    for kind in ("lengths", "plain"):
        yield _Plan(next(number), kind, LARGE_SIZE, 3, uniform=True, override=False)
    for index in number:
        rng = np.random.default_rng((seed, index, 1))
        kind, size, count = rng.choice(KINDS), rng.choice(SIZES), rng.choice(COUNTS)
        uniform, override = bool(rng.random() < 0.4), bool(rng.random() < 0.4)
        yield _Plan(index, str(kind), int(size), int(count), uniform, override)


def _make_feeds(
    model: ir.Model,
    counted: frozenset[str],
    plan: _Plan,
    rng: np.random.Generator,
    given: Mapping[str, int] = MappingProxyType({}),
) -> Feeds:
    values = [
        value for value in model.graph.inputs if plan.override or (value.name or "") not in model.graph.initializers
    ]
    shapes = _shapes(values, counted, plan, rng, given)
    return {
        value.name or "": _make(value.type, value, shapes[value.name or ""], value.name in counted, plan, rng)
        for value in values
    }


def _make(
    kind: ir.TypeProtocol | None,
    value: ir.Value,
    shape: tuple[int, ...],
    counts: bool,
    plan: _Plan,
    rng: np.random.Generator,
) -> Any:
    if isinstance(kind, ir.OptionalType):
        return None if rng.random() < 0.3 else _make(kind.elem_type, value, shape, counts, plan, rng)
    if isinstance(kind, ir.SequenceType):
        length = min(plan.size, 17) if plan.uniform else int(rng.integers(0, 4))
        return [_make(kind.elem_type, value, shape, counts, plan, rng) for _ in range(length)]
    if not isinstance(kind, ir.TensorType):
        raise LoopliftError(f"can't make up input {value.name!r} of type {kind}: give inputs")
    if counts:
        return _trip_values(shape, kind.dtype, plan, rng)
    return _values(shape, kind.dtype, plan, rng)


def _shapes(
    values: Sequence[ir.Value],
    counted: frozenset[str],
    plan: _Plan,
    rng: np.random.Generator,
    given: Mapping[str, int],
) -> dict[str, tuple[int, ...]]:
    """A shape for each input; a symbolic dim has one size in all of them, the given one if there is one."""
    sizes = dict(given)
    dims = {value.name or "": _dims(value, value.name in counted, rng) for value in values}
    for name, shape in dims.items():
        for key in (dim for dim in shape if isinstance(dim, str)):
            if key not in sizes:
                scalar_like = name in counted and rng.random() < 0.75
                sizes[key] = 1 if scalar_like else plan.size if plan.uniform else int(rng.choice(SIZES))
    for name, shape in dims.items():
        _shrink(name, shape, sizes, given)
    return {name: tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape) for name, shape in dims.items()}


def _dims(value: ir.Value, counts: bool, rng: np.random.Generator) -> list[int | str]:
    """The dims of an input; an unknown one is a key: its symbol, or its place if it has none."""
    if value.shape is None:
        rank = 0 if counts else int(rng.choice((1, 0, 2)))
        return [f"{value.name} axis {axis}" for axis in range(rank)]
    return [
        dim if isinstance(dim, int) else str(dim.value) if dim.value is not None else f"{value.name} axis {axis}"
        for axis, dim in enumerate(value.shape)
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


def _trip_values(shape: tuple[int, ...], dtype: ir.DataType, plan: _Plan, rng: np.random.Generator) -> Array:
    kind = _numpy(dtype)
    if kind == np.bool_:
        return np.full(shape, plan.count != 0 if plan.uniform else rng.random() < 0.8)
    choices: tuple[float, ...] = COUNTS
    if is_float(kind):
        choices = (*COUNTS, 0.5, 0.1, 0.25, -1.5, 1.1)
    if not (is_float(kind) or kind.kind in "iu"):
        return _values(shape, dtype, plan, rng)
    numbers = np.full(shape, plan.count if plan.uniform else rng.choice(choices))
    return np.asarray(_fitting(numbers, kind))


def _fitting(numbers: Array, kind: np.dtype[Any]) -> Array:
    """The numbers in another dtype, those that don't fit at its nearer end."""
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        numbers = np.clip(numbers, limits.min, limits.max)
    return numbers.astype(kind)


def _numpy(dtype: ir.DataType) -> np.dtype[Any]:
    return np.dtype(dtype.numpy())


def _values(shape: tuple[int, ...], dtype: ir.DataType, plan: _Plan, rng: np.random.Generator) -> Array:
    if dtype == ir.DataType.STRING:
        return np.asarray(rng.choice(np.array(["", "a", "loop", "lift", "\u00e9"], dtype=object), size=shape), object)
    array = _numpy(dtype)
    if array == np.bool_:
        share = {"small": 0.0, "ties": 1.0}.get(plan.kind, 0.5)
        return np.asarray(rng.random(shape) < share)
    if array.kind == "c":
        part = ir.DataType.FLOAT if array.itemsize == 8 else ir.DataType.DOUBLE
        return np.asarray(_values((*shape, 2), part, plan, rng).view(array)).reshape(shape)
    if is_float(array):
        return _floats(shape, array, plan.kind, rng)
    return _integers(shape, dtype, array, plan, rng)


def _floats(shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, rng: np.random.Generator) -> Array:
    with np.errstate(all="ignore"):
        if kind == "bits":
            return _random_bits(shape, dtype, rng)
        if kind == "special":
            return np.asarray(rng.choice(special_floats(dtype), size=shape))
        if kind == "ties":
            return np.asarray(rng.choice(tie_floats(dtype), size=shape))
        spread = 3.0 if kind == "plain" else 0.1
        return np.asarray(np.asarray(rng.normal(0.0, spread, shape)).astype(dtype))


def special_floats(dtype: np.dtype[Any]) -> Array:
    """Zeros, ones, subnormals, the ends of the range, infinities and NaN, as far as the dtype has them."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    least, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    wide = [0.0, -0.0, 1.0, -1.0, 0.1, least, -least, 3 * least, normal, -normal, np.inf, -np.inf, np.nan]
    ends = np.array([info.max, info.min], dtype)
    return np.concatenate([np.array(wide, np.float64).astype(dtype), ends])


def tie_floats(dtype: np.dtype[Any]) -> Array:
    """Numbers whose sums lie halfway between two representable ones, or just beside."""
    eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    numbers = [1.0, 1.0 + eps, 1.0 + 2 * eps, eps / 2, -eps / 2, eps / 4, 1.5 * eps, 2.0 - eps, 1.0 / eps, -1.0 - eps]
    return np.array(numbers, np.float64).astype(dtype)


def _random_bits(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    raw = np.frombuffer(rng.bytes(math.prod(shape) * dtype.itemsize), np.uint8).copy()
    return np.asarray(raw.view(dtype).reshape(shape))


def _integers(
    shape: tuple[int, ...], dtype: ir.DataType, array: np.dtype[Any], plan: _Plan, rng: np.random.Generator
) -> Array:
    """Plain ones are 0 to 2 and small ones 0 or 1, since many are indices; lengths go up to the unknown dims' size."""
    least, greatest = int(dtype.min), int(dtype.max)
    if plan.kind == "special":
        pool = (least, least + 1, greatest, greatest - 1, 0, 1)
        return np.asarray(rng.choice(np.array(pool, dtype=object), size=shape)).astype(array)
    ranges: Mapping[str, tuple[int, int]] = {
        "plain": (0, 2),
        "ties": (-4, 8),
        "bits": (least, greatest),
        "lengths": (plan.size // 2, plan.size),
    }
    low, high = (min(max(end, least), greatest) for end in ranges.get(plan.kind, (0, 1)))
    numbers = rng.integers(low, high, shape, np.uint64 if least == 0 else np.int64, True)
    return np.asarray(numbers).astype(array)

"""Whether two results are the same bits, and how far apart they are if not."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Value = Any
"""A tensor (array), a sequence (list of values) or an absent optional (None)."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Of one output.

    Attributes:
        equal: same kind, dtype, shape and bits; any NaN equals any NaN.
        ulp: largest distance in units in the last place (for integers: in value); 0 if equal or not comparable.
        dtype: the expected one.
        message: what differs first; empty if equal.
        share: the largest distance of what `Tolerance.last_bits` took as equal, of the largest element's magnitude.
    """

    equal: bool
    ulp: int = 0
    dtype: str = ""
    message: str = ""
    share: float = 0.0


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What counts as equal.

    Attributes:
        ulp: largest distance of two elements in units in the last place (for integers: in value).
        shape_of_empty: False takes two tensors without elements as equal if rank and first dim agree: engines fill in
            unknown dims of an empty scan output as they like.
        zero_is_unknown: in a tensor without rows, a further dim that was 0, or all further dims if there were none, may
            have become known: that is what an engine gives for the rows of a scan output of which nothing tells it more
            when the loop runs no iteration.
        rank: that the original declares; rows do not become known beyond it.
        last_bits: the model computes over time what engines add in an order of their own, or approximate: elements may
            be `LAST_BITS` units of the type's precision apart, of the largest element's magnitude.
        spread: with `last_bits`: and no further apart than `SPREADS` times this, for each element of a tensor; for a
            sequence a list.
        half: with `last_bits`: they come from float16, or bfloat16, that may be rounded or not, whatever their type.
        numbers: False leaves the elements out: they are random.
        shapes: False leaves the shapes out, too.
    """

    ulp: int = 0
    shape_of_empty: bool = True
    zero_is_unknown: bool = False
    rank: int | None = None
    last_bits: bool = False
    spread: Any = None
    half: bool = False
    numbers: bool = True
    shapes: bool = True

    def accepts_empty(self, expected: tuple[int, ...], got: tuple[int, ...]) -> bool:
        """Whether these different shapes of tensors without elements count as equal."""
        if self.zero_is_unknown and self._known_since(expected, got):
            return True
        return not self.shape_of_empty and len(expected) == len(got) and expected[:1] == got[:1]

    def _known_since(self, expected: tuple[int, ...], got: tuple[int, ...]) -> bool:
        rows = expected.index(0) + 1  # up to the axis of which there are none
        if expected[:rows] != got[:rows]:
            return False
        if len(expected) == len(got):
            return all(one in (0, other) for one, other in zip(expected[rows:], got[rows:], strict=True))
        return len(expected) == rows and self.rank in (None, len(got))


EXACT = Tolerance()

LAST_BITS = 4096
"""Units: a sum of n products, added in another order, is off by at most about n of them, and far less as a rule."""

LARGEST_SHARE = 2**-5
"""Of the largest element's magnitude; of float16, 4096 units are more than everything."""

SPREADS = 2.0
"""Two results may each be off by what is found for one, in opposite directions."""


def compare(expected: Value, got: Value, tolerance: Tolerance = EXACT) -> Comparison:
    """Compares what the original gave with what the rewritten model gave."""
    if isinstance(expected, list | tuple):
        return _compare_sequences(list(expected), got, tolerance)
    if expected is None or got is None or isinstance(got, list | tuple):
        one_is_absent = expected is None or got is None
        same = (expected is None and got is None) or (one_is_absent and not tolerance.shapes)
        return Comparison(same, message="" if same else f"{_describe(expected)} became {_describe(got)}")
    return _compare_tensors(np.asarray(expected), np.asarray(got), tolerance)


def _compare_sequences(expected: list[Value], got: Value, tolerance: Tolerance) -> Comparison:
    if isinstance(got, list | tuple) and not tolerance.shapes:
        return Comparison(True)
    if not isinstance(got, list | tuple) or len(got) != len(expected):
        return Comparison(False, message=f"{_describe(expected)} became {_describe(got)}")
    result = Comparison(True)
    for index, (one, other) in enumerate(zip(expected, got, strict=True)):
        if isinstance(spread := tolerance.spread, list):
            spread = spread[index] if index < len(spread) else 0.0
        item = compare(one, other, dataclasses.replace(tolerance, spread=spread))
        if not item.equal:
            item = dataclasses.replace(item, message=f"element {index}: {item.message}")
        result = _worse(result, item)
    return result


def _worse(first: Comparison, second: Comparison) -> Comparison:
    worse = second if first.equal else first
    message = worse.message or first.message or second.message
    ulp, share = max(first.ulp, second.ulp), max(first.share, second.share)
    return dataclasses.replace(worse, ulp=ulp, dtype=first.dtype or second.dtype, message=message, share=share)


def _describe(value: Value) -> str:
    if value is None:
        return "an absent optional"
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}"
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}"


def _compare_tensors(expected: Array, got: Array, tolerance: Tolerance) -> Comparison:
    dtype = str(expected.dtype)
    if expected.dtype != got.dtype and not (_is_text(expected) and _is_text(got)):
        return Comparison(False, 0, dtype, f"dtype {expected.dtype} became {got.dtype}")
    if not tolerance.shapes:
        return Comparison(True)
    if expected.shape != got.shape:
        if expected.size == got.size == 0 and tolerance.accepts_empty(expected.shape, got.shape):
            return Comparison(True, 0, dtype)
        return Comparison(False, 0, dtype, f"shape {list(expected.shape)} became {list(got.shape)}")
    if not tolerance.numbers:
        return Comparison(True)
    differing = differs(expected, got)
    if not differing.any():
        return Comparison(True, 0, dtype)
    ulp = ulp_distance(expected, got)
    if _comparable(expected, got) and ulp <= tolerance.ulp:
        return Comparison(True, ulp, dtype)
    if tolerance.last_bits and is_float(expected.dtype):
        share = _share(_widened(expected), _widened(got), expected.dtype, tolerance)
        if share is not None:
            return Comparison(True, ulp, dtype, "only last bits differ", share)
    first = tuple(int(k) for k in np.argwhere(differing)[0])
    message = (
        f"{int(differing.sum())} of {expected.size} elements differ, first at {list(first)}: "
        f"{expected[first]!r} became {got[first]!r}"
    )
    return Comparison(False, ulp, dtype, message)


def _comparable(expected: Array, got: Array) -> bool:
    """Whether `ulp_distance` covers every element."""
    if is_float(expected.dtype):
        return bool(np.array_equal(np.isnan(_widened(expected)), np.isnan(_widened(got))))
    return expected.dtype.kind in "iu"


def _share(expected: Array, got: Array, dtype: np.dtype[Any], tolerance: Tolerance) -> float | None:
    """How far apart two results are, if they can come from the same sums added in different orders; None if not."""
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    precision = float(limits.eps)
    finite = np.isfinite(expected) & np.isfinite(got)
    largest = float(np.abs(expected[finite]).max(initial=0.0))
    bound: Any = (LARGEST_SHARE if tolerance.half else min(LAST_BITS * precision, LARGEST_SHARE)) * largest
    spread = tolerance.spread
    if spread is not None:
        if np.shape(spread) not in ((), expected.shape):
            return None
        bound = np.minimum(bound, SPREADS * np.asarray(spread))
    # Near the largest number one order may overflow where another does not, or give NaN for infinity.
    huge = float(limits.max) / 1024
    overflows = (~np.isfinite(expected) | (np.abs(expected) > huge)) & (~np.isfinite(got) | (np.abs(got) > huge))
    with np.errstate(all="ignore"):
        away = np.abs(expected.astype(np.float64) - got.astype(np.float64))
        near = finite & (away <= bound)
    opposite = np.isinf(expected) & np.isinf(got) & (expected != got)
    if not np.all((near | overflows | (expected == got)) & ~opposite):
        return None
    return float(away[near].max(initial=0.0)) / largest if largest else 0.0


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "OUST"


def differs(expected: Array, got: Array) -> Array:
    """Elementwise: do the bits differ? NaN equals NaN. Same dtype and shape are taken for granted."""
    if _is_text(expected):
        return np.asarray(np.asarray(expected.astype(str) != got.astype(str)).reshape(expected.shape))
    if expected.dtype.kind == "c":
        part = np.dtype(f"f{expected.dtype.itemsize // 2}")
        pair = (*expected.shape, 2)
        one, other = (np.ascontiguousarray(array).view(part).reshape(pair) for array in (expected, got))
        return np.asarray(differs(one, other).any(axis=-1))
    different = np.asarray(_bits(expected) != _bits(got))
    if is_float(expected.dtype):
        different &= ~(np.isnan(_widened(expected)) & np.isnan(_widened(got)))
    return different


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a floating-point one, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def _bits(array: Array) -> Array:
    shape = array.shape
    return np.asarray(np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}").reshape(shape))


def _widened(array: Array) -> Array:
    return array if array.dtype.kind == "f" else np.asarray(array, np.float32)


def ulp_distance(expected: Array, got: Array) -> int:
    """The largest number of representable values that lie between two elements; pairs with a NaN are left out.

    For integers the largest difference. Same dtype and shape are taken for granted; 0 for text, bool and complex.
    """
    if is_float(expected.dtype):
        comparable = ~(np.isnan(_widened(expected)) | np.isnan(_widened(got)))
        one, other = _ordered(expected[comparable]), _ordered(got[comparable])
    elif expected.dtype.kind in "iu":
        one, other = expected.reshape(-1), got.reshape(-1)
    else:
        return 0
    if one.size == 0:
        return 0
    # The difference of two 64-bit integers needs 65 bits: the larger minus the smaller, modulo 2**64, is right.
    larger, smaller = np.maximum(one, other), np.minimum(one, other)
    return int((larger.astype(np.uint64) - smaller.astype(np.uint64)).max())


def _ordered(array: Array) -> Array:
    """Floats as integers in the order of their values; -0 and +0 are next to each other, one apart."""
    bits = _bits(array).reshape(-1).astype(np.uint64)
    sign = np.uint64(1 << (8 * array.dtype.itemsize - 1))
    magnitude = (bits & ~sign).view(np.int64)
    return np.asarray(np.where(bits & sign != 0, ~magnitude, magnitude))

"""Tensor ops where onnx's reference implementation is not what the standard says: Range, Pad, Slice, Softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.values import Array


def range_(start: Array, limit: Array, delta: Array, *, single: bool = False) -> Array:
    """start, start + delta, ... up to limit, by successive additions as the standard's function body makes them.

    The number of elements is ceil((limit - start) / delta), the difference taken in the values' own type and the
    quotient in double (in exact integers for integer types), as ONNX Runtime does.  With `single` (Range-27 on float16
    and bfloat16) everything is computed in float32 and rounded once at the end.

    Raises:
        LoopliftError: an input has several elements, or delta is zero.
    """
    dtype = start.dtype
    start, limit, delta = (np.reshape(x, ()).astype(np.float32 if single else dtype) for x in (start, limit, delta))
    if not delta:
        raise LoopliftError("delta is zero")
    count = _range_count(start, limit, delta)
    terms = np.full(max(count, 0), delta, dtype=start.dtype)
    terms[:1] = start
    return np.add.accumulate(terms, dtype=terms.dtype).astype(dtype)


def _range_count(start: Array, limit: Array, delta: Array) -> int:
    if start.dtype.kind in "iu":
        return -((int(start) - int(limit)) // int(delta))
    quotient = float(limit - start) / float(delta)
    if not math.isfinite(quotient):
        raise LoopliftError(f"the range from {start} to {limit} by {delta} has no finite number of elements")
    return math.ceil(quotient)


def pad(x: Array, pads: Sequence[int] | Array, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Array:
    """Add elements before and after each axis, or take them away where `pads` is negative.

    Args:
        pads: all counts before, then all counts after, one each for `axes`, or for every axis.
        value: what is added in mode ``constant``; by default zero, false or the empty string.

    Raises:
        LoopliftError: `pads` does not fit the axes, or takes more away than there is.
    """
    counts = [int(n) for n in np.ravel(pads)]
    which = list(range(x.ndim)) if axes is None else [int(a) for a in np.ravel(axes)]
    if len(counts) != 2 * len(which) or any(not -x.ndim <= a < x.ndim for a in which):
        raise LoopliftError(f"pads {counts} on axes {which} do not fit rank {x.ndim}")
    widths = [(0, 0)] * x.ndim
    for axis, before, after in zip(which, counts[: len(which)], counts[len(which) :], strict=True):
        widths[axis] = (before, after)
    if any(size + min(a, 0) + min(b, 0) < 0 for size, (a, b) in zip(x.shape, widths, strict=True)):
        raise LoopliftError(f"pads {counts} take more away than shape {list(x.shape)} has")
    kept = x[tuple(slice(max(-a, 0), size - max(-b, 0)) for size, (a, b) in zip(x.shape, widths, strict=True))]
    added = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode != "constant":
        return np.pad(kept, added, mode=mode)  # type: ignore[call-overload, no-any-return]
    filled = np.full([size + a + b for size, (a, b) in zip(kept.shape, added, strict=True)], _fill(x, value), x.dtype)
    filled[tuple(slice(a, a + size) for size, (a, _) in zip(kept.shape, added, strict=True))] = kept
    return filled


def _fill(x: Array, value: Any) -> Any:
    if value is None:
        return "" if x.dtype == object else np.zeros((), x.dtype)
    return np.reshape(value, ()) if isinstance(value, np.ndarray | np.generic) else np.asarray(value, x.dtype)


def zip_map(scores: Array, labels: Sequence[Any]) -> list[dict[Any, Any]]:
    """A dictionary from label to score for each row."""
    rows = np.atleast_2d(scores)
    if rows.shape[1] != len(labels):
        raise LoopliftError(f"{rows.shape[1]} scores a row for {len(labels)} labels")
    return [dict(zip(labels, row, strict=True)) for row in rows]


def slice_tensor(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    """Slice, with bounds clamped as the standard says: a backward start before the first element is the first.

    Raises:
        LoopliftError: an axis is out of range, a step is zero, or the lists differ in length.
    """
    first, last = ([int(n) for n in np.ravel(bounds)] for bounds in (starts, ends))
    which = list(range(len(first))) if axes is None else [int(n) for n in np.ravel(axes)]
    stride = [1] * len(first) if steps is None else [int(n) for n in np.ravel(steps)]
    if len({len(first), len(last), len(which), len(stride)}) != 1 or 0 in stride:
        raise LoopliftError(f"starts {first}, ends {last}, axes {which} and steps {stride} do not fit together")
    if any(not -x.ndim <= axis < x.ndim for axis in which):
        raise LoopliftError(f"axes {which} are out of range for rank {x.ndim}")
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(which, first, last, stride, strict=True):
        index[axis] = _clamped(start, end, step, x.shape[axis])
    part: Array = x[tuple(index)]
    return part


def _clamped(start: int, end: int, step: int, size: int) -> slice:
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0 or size == 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    end = min(max(end, -1), size - 1)
    return slice(min(max(start, 0), size - 1), None if end == -1 else end, step)


def flatten(x: Array, axis: int = 1) -> Array:
    """Flatten, also of tensors without elements.

    Raises:
        LoopliftError: the axis is out of range.
    """
    if not -x.ndim <= axis <= x.ndim:
        raise LoopliftError(f"axis {axis} is out of range for rank {x.ndim}")
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))


def softmax(x: Array, axis: int, *, flat: bool, log: bool) -> Array:
    """Softmax or LogSoftmax, stable, in the values' own type.

    Args:
        flat: before opset 13, over all axes from `axis` on together.

    Raises:
        LoopliftError: the axis is out of range.
    """
    if not -max(x.ndim, 1) <= axis < max(x.ndim, 1):
        raise LoopliftError(f"axis {axis} is out of range for rank {x.ndim}")
    if not x.size:
        return np.array(x)
    rows = x.reshape(math.prod(x.shape[: axis % max(x.ndim, 1)]), -1) if flat else x
    over = -1 if flat else axis
    shifted = rows - np.max(rows, axis=over, keepdims=True)
    sums = np.sum(np.exp(shifted), axis=over, keepdims=True)
    result = shifted - np.log(sums) if log else np.exp(shifted) / sums
    shaped: Array = np.array(result, dtype=x.dtype).reshape(x.shape)
    return shaped


def gather_nd(data: Array, indices: Array, batch_dims: int = 0) -> Array:
    """Slices of `data` at index tuples, which stand along the last axis of `indices`, behind `batch_dims` equal axes.

    Raises:
        LoopliftError: the batch axes differ, or the tuples are longer than `data` has axes.
    """
    depth = indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or data.shape[:batch_dims] != indices.shape[:batch_dims] or batch_dims + depth > data.ndim:
        raise LoopliftError(f"indices of shape {indices.shape} do not fit data of shape {data.shape}")
    places = indices.shape[:-1]
    batches = [
        np.arange(extent).reshape([-1 if k == axis else 1 for k in range(len(places))])
        for axis, extent in enumerate(data.shape[:batch_dims])
    ]
    numbers = [np.broadcast_to(each, places) for each in (*batches, *np.moveaxis(indices, -1, 0))]
    result: Array = data[tuple(numbers)] if numbers else np.broadcast_to(data, (*places, *data.shape))
    return np.array(result)


def mean(first: Array, *others: Array) -> Array:
    """Mean of operands that broadcast: added one by one, in their own type, then divided by their number."""
    total = first
    for other in others:
        total = total + other
    result: Array = np.asarray(total / np.asarray(1 + len(others), first.dtype), first.dtype)
    return result


def hardmax_flat(x: Array, axis: int) -> Array:
    """Hardmax before opset 13: a one at the first greatest element of all axes from `axis` on together."""
    rows = x.reshape(math.prod(x.shape[: axis % x.ndim]), -1)
    result: Array = np.zeros_like(rows)
    result[np.arange(len(rows)), np.argmax(rows, axis=1)] = 1
    shaped: Array = result.reshape(x.shape)
    return shaped

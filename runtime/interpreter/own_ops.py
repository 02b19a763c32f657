"""Sequence and optional ops, Range and Pad: small functions with the standard's semantics.

A sequence is a list that no op changes; an empty optional is None, any other optional is its element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import operators
from looplift.runtime.interpreter.values import Array, Value, as_value

if TYPE_CHECKING:
    from looplift.runtime.interpreter.call import Call


def sequence_construct(*items: Value) -> list[Value]:
    return [as_value(item) for item in items]


def _position(sequence: Sequence[Value], position: Array, most: int) -> int:
    index = int(np.reshape(position, ()))
    if not -len(sequence) <= index <= most:
        raise LoopliftError(f"position {index} is out of range for a sequence of {len(sequence)}")
    return index + len(sequence) if index < 0 else index


def sequence_insert(sequence: list[Value], item: Value, position: Array | None = None) -> list[Value]:
    index = len(sequence) if position is None else _position(sequence, position, len(sequence))
    return [*sequence[:index], as_value(item), *sequence[index:]]


def append(sequence: list[Value], item: Value) -> list[Value]:
    """The same list, longer: for a loop that alone holds it."""
    sequence.append(as_value(item))
    return sequence


def sequence_erase(sequence: list[Value], position: Array | None = None) -> list[Value]:
    index = _position(sequence, np.array(-1) if position is None else position, len(sequence) - 1)
    return sequence[:index] + sequence[index + 1 :]


def sequence_at(sequence: list[Value], position: Array) -> Value:
    return sequence[_position(sequence, position, len(sequence) - 1)]


def sequence_length(sequence: list[Value]) -> Array:
    return np.array(len(sequence), dtype=np.int64)


def concat_from_sequence(sequence: list[Value], axis: int, new_axis: int) -> Array:
    if not sequence:
        raise LoopliftError("the sequence is empty, so that the shape of its concatenation is unknown")
    result: Array = np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)
    return result


def split_to_sequence(x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Value]:
    """Parts of a tensor along an axis: of length 1, of one given length, or of given lengths."""
    if not -x.ndim <= axis < x.ndim:
        raise LoopliftError(f"axis {axis} is out of range for rank {x.ndim}")
    size = x.shape[axis]
    if split is None:
        lengths = [1] * size
    elif split.ndim == 0:
        chunk = int(split)
        if chunk <= 0:
            raise LoopliftError(f"the split length is {chunk}; it must be positive")
        lengths = [min(chunk, size - start) for start in range(0, size, chunk)]
    else:
        lengths = [int(n) for n in split]
        if sum(lengths) != size or min(lengths, default=0) < 0:
            raise LoopliftError(f"the split lengths {lengths} do not make up {size}")
    stops = np.cumsum(lengths)
    parts = [x.take(range(stop - n, stop), axis) for n, stop in zip(lengths, stops, strict=True)]
    return parts if split is not None or keepdims else [part.squeeze(axis) for part in parts]


def optional(element: Value = None) -> Value:
    return as_value(element)


def optional_has_element(element: Value = None) -> Array:
    return np.array(element is not None)


def optional_get_element(element: Value) -> Value:
    if element is None:
        raise LoopliftError("the optional has no element")
    return element


def range_(start: Array, limit: Array, delta: Array, stash: np.dtype[Any] | None = None) -> Array:
    """start, start + delta, ... up to limit, by successive additions as the standard's function body makes them.

    The number of elements is ceil((limit - start) / delta), the difference taken in the values' own type and the
    quotient in double (in exact integers for integer types), as ONNX Runtime does.  With `stash` (Range-27 on float16
    and bfloat16) everything is computed in that type and rounded once at the end.

    Raises:
        LoopliftError: an input has several elements, or delta is zero.
    """
    dtype = start.dtype
    start, limit, delta = (np.reshape(x, ()).astype(stash or dtype) for x in (start, limit, delta))
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


_PLAIN: Mapping[str, Callable[..., Any]] = {
    "SequenceConstruct": sequence_construct,
    "SequenceInsert": sequence_insert,
    "SequenceErase": sequence_erase,
    "SequenceAt": sequence_at,
    "SequenceLength": sequence_length,
    "Optional": optional,
    "OptionalHasElement": optional_has_element,
    "OptionalGetElement": optional_get_element,
}


def form(call: Call, version: int) -> str | None:
    """The expression of an op of this module; None for another op.

    Raises:
        LoopliftError: a required attribute is missing.
    """
    name = call.node.op_type
    attributes = {key: attr.value for key, attr in call.attributes.items()}
    arguments = ", ".join(call.arguments())
    if call.node.domain == "ai.onnx.ml":
        if name != "ZipMap":
            return None
        call.program.source.use(zip_map)
        labels = attributes.get("classlabels_strings") or attributes.get("classlabels_int64s") or ()
        return f"zip_map({arguments}, {list(labels)!r})"
    if operators.standard_domain(call.node.domain):
        return None
    if name == "SequenceEmpty":
        return "[]"
    if name in _PLAIN:
        call.program.source.use(_PLAIN[name], append)
        return f"{_PLAIN[name].__name__}({arguments})"
    if name == "ConcatFromSequence":
        if "axis" not in attributes:
            raise LoopliftError("the attribute 'axis' is missing")
        call.program.source.use(concat_from_sequence)
        return f"concat_from_sequence({arguments}, {attributes['axis']}, {attributes.get('new_axis', 0)})"
    if name == "SplitToSequence":
        call.program.source.use(split_to_sequence)
        axis, keepdims = attributes.get("axis", 0), attributes.get("keepdims", 1)
        return f"split_to_sequence({arguments}, axis={axis}, keepdims={keepdims})"
    if name == "Pad":
        call.program.source.use(pad)
        given = [
            f"{key}={call.program.source.bind(key, attributes[key])}"
            for key in ("pads", "value", "mode")
            if key in attributes
        ]
        return f"pad({', '.join([arguments, *given])})"
    if name == "Range":
        call.program.source.use(range_)
        half = call.inputs[0].type in ("tensor(float16)", "tensor(bfloat16)")
        stashed = version >= 27 and half and attributes.get("stash_type", 1) == 1
        return f"range_({arguments}{', np.dtype(np.float32)' if stashed else ''})"
    return None

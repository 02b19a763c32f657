"""Sequence and optional ops: small functions with the standard's semantics.

A sequence is a list that no op changes; an empty optional is None, any other optional is its element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.values import Array, Value, as_value
from looplift.runtime.ops.memory import SMALL, require_room

_OFTEN = 16
"""Appending so many small elements takes longer than asking once how large they are."""

_AN_ARRAY = 112
"""Bytes that an array takes besides its elements."""


def sequence_empty() -> list[Value]:
    """SequenceEmpty: a sequence without elements."""
    return []


def sequence_construct(*items: Value) -> list[Value]:
    """SequenceConstruct: a sequence of the inputs."""
    return [as_value(item) for item in items]


def _position(sequence: Sequence[Value], position: Array, most: int) -> int:
    index = int(np.reshape(position, ()))
    if not -len(sequence) <= index <= most:
        raise LoopliftError(f"position {index} is out of range for a sequence of {len(sequence)}")
    return index + len(sequence) if index < 0 else index


def sequence_insert(sequence: list[Value], item: Value, position: Array | None = None) -> list[Value]:
    """SequenceInsert: the sequence with one more element, at its end or before a position.

    Raises:
        LoopliftError: the position is out of range.
    """
    index = len(sequence) if position is None else _position(sequence, position, len(sequence))
    longer = [*sequence[:index], as_value(item), *sequence[index:]]
    _require_room(longer, 1)
    return longer


def append(sequence: list[Value], item: Value) -> list[Value]:
    """The same list, longer: for a loop that alone holds it."""
    sequence.append(as_value(item))
    if not len(sequence) % _OFTEN or getattr(item, "nbytes", 0) >= SMALL // _OFTEN:
        _require_room(sequence, _OFTEN)
    return sequence


def _require_room(sequence: Sequence[Value], more: int) -> None:
    """Asks whether there is memory left, each time that about `SMALL` bytes came to a sequence.

    Args:
        sequence: with what came last at its end, or anywhere if it came alone.
        more: elements since the last time.

    Raises:
        LoopliftError: there is not.
    """
    each = getattr(sequence[-1], "nbytes", 0) + _AN_ARRAY
    if len(sequence) * each // SMALL > (len(sequence) - more) * each // SMALL:
        require_room(f"a sequence has {len(sequence):,} elements, the last one of {each:,} bytes")


def sequence_erase(sequence: list[Value], position: Array | None = None) -> list[Value]:
    """SequenceErase: the sequence without its last element or that at a position.

    Raises:
        LoopliftError: the position is out of range.
    """
    index = _position(sequence, np.array(-1) if position is None else position, len(sequence) - 1)
    return sequence[:index] + sequence[index + 1 :]


def sequence_at(sequence: list[Value], position: Array) -> Value:
    """SequenceAt: the element at a position, counted from the end if negative.

    Raises:
        LoopliftError: the position is out of range.
    """
    return sequence[_position(sequence, position, len(sequence) - 1)]


def sequence_length(sequence: list[Value]) -> Array:
    """SequenceLength: int64, of rank 0."""
    return np.array(len(sequence), dtype=np.int64)


def concat_from_sequence(sequence: list[Value], axis: int, new_axis: int) -> Array:
    """ConcatFromSequence: the elements along an axis that they have, or along a new one.

    Raises:
        LoopliftError: the sequence is empty.
    """
    if not sequence:
        raise LoopliftError("the sequence is empty, so that the shape of its concatenation is unknown")
    result: Array = np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)
    return result


def split_to_sequence(x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Value]:
    """Parts of a tensor along an axis: of length 1, of one given length, or of given lengths.

    `keepdims` 0 drops the axis of parts of length 1, also where that length is given: PyTorch exports ``unbind`` so,
    and ONNX Runtime does it, though the standard says that `keepdims` is ignored where `split` is given.
    """
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
    single = split is None or (split.ndim == 0 and int(split) == 1)
    return [part.squeeze(axis) for part in parts] if single and not keepdims else parts


def optional(element: Value = None) -> Value:
    """Optional: an optional of the element, empty without one."""
    return as_value(element)


def optional_has_element(element: Value = None) -> Array:
    """OptionalHasElement: false for an empty optional and an absent input; true for what is no optional."""
    return np.array(element is not None)


def optional_get_element(element: Value) -> Value:
    """OptionalGetElement.

    Raises:
        LoopliftError: the optional is empty.
    """
    if element is None:
        raise LoopliftError("the optional has no element")
    return element

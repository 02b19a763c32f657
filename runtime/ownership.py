"""Outputs that belong to the caller alone: handed out as they are where nothing else holds their memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from looplift.runtime.interpreter.values import Array, Value, as_value

WORTH_KEEPING = 0.5
"""Share of its memory that a view must be, so that keeping that alive is no waste."""

_OWN_REFERENCES = 2
"""How often this module itself refers to an owner while it asks."""


def handed_out(results: Sequence[Value], arguments: Sequence[Value]) -> list[Any]:
    """The results as contiguous, writable arrays that share no memory with each other, nor with anything else.

    Copied is only what must be: what is part of an argument, of a constant (these are read-only), or of memory that
    something else refers to. Of several results in the same memory the largest stays. A view is known to be the only
    one by the reference count of what it is a view of: every view holds one reference to the owner of its memory.

    Args:
        results: what a run gave; no other value of the run may be alive.
        arguments: what the caller gave.
    """
    values = [_settled(value) for value in results]
    taken = {id(_owner(array)) for array in _arrays(arguments)}
    distinct = list({id(array): array for array in _arrays(values)}.values())
    kept: set[int] = set()
    for array in sorted(distinct, key=lambda array: -array.nbytes):
        if id(_owner(array)) not in taken and _is_private(array, distinct):
            kept.add(id(array))
            taken.add(id(_owner(array)))
    return [_own(value, kept) for value in values]


def _settled(value: Value) -> Value:
    """Scalars of numpy as arrays, also in lists."""
    return [_settled(item) for item in value] if isinstance(value, list) else as_value(value)


def _arrays(values: Iterable[Value]) -> Iterator[Array]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _arrays(value)
        elif isinstance(value, np.ndarray):
            yield value


def _owner(array: Array) -> Any:
    """What owns the memory: the array itself, or what it is a view of."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def _is_private(array: Array, results: Sequence[Array]) -> bool:
    """Whether nothing but these results refers to the array's memory, of which it is most."""
    owner = _owner(array)
    if not (array.flags.c_contiguous and array.flags.writeable and isinstance(owner, np.ndarray)):
        return False
    if owner is array:
        return True
    views = sum(each.base is owner for each in results)
    unknown = sys.getrefcount(owner) - _OWN_REFERENCES - views
    return unknown == 0 and owner.flags.writeable and array.nbytes >= WORTH_KEEPING * owner.nbytes


def _own(value: Value, kept: set[int]) -> Any:
    """A value of the caller's own; an array that is kept is so once."""
    if isinstance(value, list):
        return [_own(item, kept) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if id(value) in kept:
        kept.remove(id(value))
        return value
    return value.copy(order="C")

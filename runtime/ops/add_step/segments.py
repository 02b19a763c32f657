"""The trajectory ``v[k+1] = fl(v[k] + step)`` as few straight pieces of its bit patterns.

Inside one binade all floats lie on one grid, so adding the same step rounds to the same number of grid points each
time, once ties have settled on even significands. The bit pattern of an IEEE number then moves by a constant:
``bits(v[k+j]) = bits(v[k]) + j * delta``. If v, w = fl(v + step) and w2 = fl(w + step) share sign and exponent and
both moves are equal, the move stays the same until the state leaves the binade; any other step is a piece of its own.
Two equal moves, not one: the first state in a binade may come from a finer grid and be odd, and its tie then rounds
the other way. A trajectory meets few binades, so the pieces are few (tested: at most 128) whatever the trip count is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from looplift.runtime.ops import Array
from looplift.runtime.ops.element_types import PRECISION

Int64 = npt.NDArray[np.int64]
ENDLESS = 1 << 62
"""Moves of a state that stays what it is; still an int64 when the room of a binade is added."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A straight run of states of each column, until the next piece starts.

    Attributes:
        remaining: how many states follow the first of the piece, up to the last that is asked for, int64 [columns];
            -1 if that one lies before the piece. Counted backwards, since the index after 2^63 - 1 is no int64.
        bits: bit pattern of the piece's first state, sign-extended to int64.
        delta: change of the pattern per step, modulo 2^width.
    """

    remaining: Int64
    bits: Int64
    delta: Int64


def pieces(initial: Array, step: Array, last: int) -> Iterator[Piece]:
    """The pieces that cover states 0 to ``last`` of every column; the i-th yield holds each column's i-th piece.

    Args:
        initial: state 0, [columns], any floating-point type of ``PRECISION`` or an integer type (which wraps).
        step: what is added, same shape and type.
        last: the last state index that is asked for.
    """
    remaining = np.full(initial.size, last)
    if initial.dtype not in PRECISION:
        yield Piece(remaining, bits_of(initial), bits_of(step))
        return
    states = np.empty((3, initial.size), initial.dtype)
    patterns = states.view(f"i{initial.dtype.itemsize}")
    states[0] = initial
    largest = np.array(_largest_fraction(initial.dtype))
    while initial.size and remaining.max() >= 0:
        np.add(states[0], step, out=states[1])
        np.add(states[1], step, out=states[2])
        bits = patterns.astype(np.int64)
        delta, following = bits[1:] - bits[:-1]
        yield Piece(remaining, bits[0], delta)
        moves = np.minimum(_straight_moves(bits[0], delta, following, largest), remaining)
        remaining = remaining - moves - 1
        patterns[0] = bits[0] + moves * delta
        np.add(states[0], step, out=states[0])  # the step out of a piece is an ordinary one


def column_pieces(initial: Any, step: Any, last: int) -> Iterator[tuple[int, int, int, int]]:
    """(first state index, index after the last state, bits, delta) of each piece of one column, up to state ``last``.

    The same as ``pieces``, several times faster for a single column; ``initial`` and ``step`` are numpy scalars.
    """
    dtype, pattern = initial.dtype, np.dtype(f"u{initial.dtype.itemsize}")
    modulus = 1 << 8 * dtype.itemsize

    def bits_of_one(value: Any) -> int:
        return int(value.view(pattern))

    if dtype not in PRECISION:
        yield 0, last + 1, bits_of_one(initial), bits_of_one(step)
        return
    largest = _largest_fraction(dtype)
    start, state = 0, initial
    while start <= last:
        next_state = state + step
        bits, after, then = (bits_of_one(value) for value in (state, next_state, next_state + step))
        delta = after - bits
        moves = _moves_of_one(bits, delta, then - after, largest)
        stop = start + min(moves, last - start) + 1
        yield start, stop, bits, delta
        state = pattern.type((bits + (stop - 1 - start) * delta) % modulus).view(dtype) + step
        start = stop


def final_state(initial: Array, step: Array, count: int) -> Array:
    """State ``count`` of every column, [columns], in time that does not depend on ``count``."""
    bits = np.empty(initial.size, np.int64)
    for piece in pieces(initial, step, count):
        # the last piece that reaches the state has the say
        np.copyto(bits, piece.bits + piece.remaining * piece.delta, where=piece.remaining >= 0)
    return from_bits(bits, initial.dtype)


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """All pieces of all columns: index, bits and change of their first states, int64 [pieces, columns]."""

    dtype: np.dtype[np.generic]
    start: Int64
    bits: Int64
    delta: Int64

    @classmethod
    def of(cls, initial: Array, step: Array, last: int) -> Trajectory:
        """The trajectory from ``initial`` that covers states 0 to ``last``."""
        found = list(pieces(initial, step, last))
        remaining, bits, delta = (
            np.array([getattr(piece, name) for piece in found], np.int64).reshape(-1, initial.size)
            for name in ("remaining", "bits", "delta")
        )
        return cls(initial.dtype, last - remaining, bits, delta)

    def every(self, stride: int, first: int, number: int) -> Array:
        """``number`` states of every column, from index ``first`` on, ``stride`` apart: [number, columns]."""
        columns = self.start.shape[1]
        # the first index that each piece serves; the pieces begun so far then are a running sum
        reached = np.minimum(-(-(np.maximum(self.start - first, 0)) // stride), number)
        begun = np.bincount((reached * columns + np.arange(columns)).ravel(), minlength=(number + 1) * columns)
        which = begun.reshape(-1, columns)[:number].cumsum(axis=0) - 1
        entry = which * columns + np.arange(columns)
        start, bits, delta = self.start.take(entry), self.bits.take(entry), self.delta.take(entry)
        index = first + stride * np.arange(number)
        return from_bits(bits + (index[:, np.newaxis] - start) * delta, self.dtype)


def from_bits(bits: Int64, dtype: np.dtype[np.generic]) -> Array:
    """The numbers whose patterns are the low bits of ``bits``."""
    return bits.astype(f"i{dtype.itemsize}").view(dtype)


def bits_of(values: Array) -> Int64:
    """The bit patterns of ``values``, sign-extended."""
    return values.view(f"i{values.dtype.itemsize}").astype(np.int64)


Bits = TypeVar("Bits", int, Int64)


def _straight_moves(bits: Int64, delta: Int64, following: Int64, largest: Int64) -> Int64:
    """How many moves by ``delta`` are sure from ``bits`` on (0: not even the next), where the next is ``following``.

    Two moves fit into the room only if all three states share sign and exponent.
    """
    size = abs(delta)
    moves: Int64 = _room(bits, delta, largest) // size
    moves *= following == delta
    np.putmask(moves, size == 0, ENDLESS)  # a fixed point: infinity, NaN, or a step too small to move the state
    return moves


def _moves_of_one(bits: int, delta: int, following: int, largest: int) -> int:
    """``_straight_moves`` of one column."""
    if delta == 0:
        return ENDLESS
    return _room(bits, delta, largest) // abs(delta) if following == delta else 0


def _room(bits: Bits, delta: Bits, largest: Bits) -> Bits:
    """Grid points up to the far edge of the binade, or to one short of the near edge.

    An exact sum just under the near edge rounds on a finer grid. On that edge itself the room is 1, and one move by
    delta is right always. It keeps to operators that ints and arrays share.
    """
    return abs(((bits ^ ~(delta >> 63)) & largest) - 1)


def _largest_fraction(dtype: np.dtype[np.generic]) -> int:
    """The fraction field of a pattern, all ones."""
    return int((1 << PRECISION[dtype] - 1) - 1)

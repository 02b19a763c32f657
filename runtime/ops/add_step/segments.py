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

import numpy as np
import numpy.typing as npt

from looplift.runtime.ops import Array
from looplift.runtime.ops.element_types import PRECISION

Int64 = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Piece:
    """State ``start + j`` of a column has the bits ``bits + j * delta`` modulo 2^width, until the next piece starts.

    Attributes:
        start: first state index of the piece, int64 [columns].
        bits: bit pattern of that state, sign-extended to int64.
        delta: change of the pattern per step.
    """

    start: Int64
    bits: Int64
    delta: Int64


def pieces(initial: Array, step: Array, last: int) -> Iterator[Piece]:
    """The pieces that cover states 0 to ``last`` of every column; the i-th yield holds each column's i-th piece.

    A column that is done early goes on yielding pieces, which start after ``last``.

    Args:
        initial: state 0, [columns], any floating-point type of ``PRECISION`` or an integer type (which wraps).
        step: what is added, same shape and type.
        last: the last state index that is asked for.
    """
    start = np.zeros(initial.size, np.int64)
    if initial.dtype not in PRECISION:
        yield Piece(start, bits_of(initial), bits_of(step))
        return
    state = initial
    while (start <= last).any():
        bits, delta, moves = _straight_moves(state, step)
        yield Piece(start, bits, delta)
        moves = np.minimum(moves, np.maximum(last - start, 0))
        state = from_bits(bits + moves * delta, initial.dtype) + step  # the step out of a piece is an ordinary one
        start = start + moves + 1


def final_state(initial: Array, step: Array, count: int) -> Array:
    """State ``count`` of every column, [columns], in time that does not depend on ``count``."""
    bits = np.empty(initial.size, np.int64)
    for piece in pieces(initial, step, count):
        # the last piece to reach ``count`` has the say
        np.copyto(bits, piece.bits + (count - piece.start) * piece.delta, where=piece.start <= count)
    return from_bits(bits, initial.dtype)


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """All pieces of all columns as tables, int64 [pieces, columns]."""

    dtype: np.dtype[np.generic]
    start: Int64
    bits: Int64
    delta: Int64

    @classmethod
    def of(cls, initial: Array, step: Array, last: int) -> Trajectory:
        """The trajectory from ``initial`` that covers states 0 to ``last``."""
        found = list(pieces(initial, step, last))
        start, bits, delta = (np.array([getattr(p, name) for p in found]) for name in ("start", "bits", "delta"))
        return cls(initial.dtype, start, bits, delta)

    def column(self, column: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(start, stop, bits, delta) of each piece of one column, up to state ``end`` exclusive."""
        start, bits, delta = (
            table[self.start[:, column] < end, column] for table in (self.start, self.bits, self.delta)
        )
        stop = np.append(start[1:], end)
        return zip(start.tolist(), stop.tolist(), bits.tolist(), delta.tolist(), strict=True)

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


def _straight_moves(state: Array, step: Array) -> tuple[Int64, Int64, Int64]:
    """Bits of ``state``, their change per step, and how many moves by that change are sure (0: not even the next)."""
    states = np.empty((3, state.size), state.dtype)
    states[0] = state
    np.add(state, step, out=states[1])
    np.add(states[1], step, out=states[2])
    bits = bits_of(states)
    delta, delta_then = bits[1:] - bits[:-1]
    largest = (1 << PRECISION[state.dtype] - 1) - 1
    fraction = bits[0] & largest
    # Two moves fit into the room only if all three states share sign and exponent. Toward zero the room ends one short
    # of the binade's lower edge: an exact sum just under the edge rounds on a finer grid.
    room = np.where(delta > 0, largest - fraction, np.maximum(fraction, 1) - 1)
    moves = room // np.maximum(np.abs(delta), 1) * (delta == delta_then)
    moves[delta == 0] = NEVER  # a fixed point: infinity, NaN, or a step too small to move the state
    return bits[0], delta, moves

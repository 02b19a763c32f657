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
    """For each of some columns: state ``start + j`` has the bits ``bits + j * delta``, until the next piece starts.

    Attributes:
        columns: which columns, int64 [n]; the other attributes are int64 [n] too.
        start: first state index of the piece.
        bits: bit pattern of that state, sign-extended to int64.
        delta: change of the pattern per step, modulo 2^width.
    """

    columns: Int64
    start: Int64
    bits: Int64
    delta: Int64


def pieces(initial: Array, step: Array, last: int) -> Iterator[Piece]:
    """The pieces that cover states 0 to ``last`` of every column; the i-th yield holds each column's i-th piece.

    Args:
        initial: state 0, [columns], any floating-point type of ``PRECISION`` or an integer type (which wraps).
        step: what is added, same shape and type.
        last: the last state index that is asked for.
    """
    columns, start = np.arange(initial.size), np.zeros(initial.size, np.int64)
    if initial.dtype not in PRECISION:
        yield Piece(columns, start, _bits(initial), _bits(step))
        return
    state = initial
    while columns.size:
        bits, delta, length = _next_piece(state, step)
        yield Piece(columns, start, bits, delta)
        more = last - start > length
        columns, start, step, length = columns[more], start[more] + length[more], step[more], length[more]
        state = from_bits(bits[more] + length * delta[more], initial.dtype)


def final_state(initial: Array, step: Array, count: int) -> Array:
    """State ``count`` of every column, [columns], in time that does not depend on ``count``."""
    bits = np.empty(initial.size, np.int64)
    for piece in pieces(initial, step, count):
        bits[piece.columns] = piece.bits + (count - piece.start) * piece.delta  # a column's last piece has the say
    return from_bits(bits, initial.dtype)


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """All pieces of all columns as tables, int64 [pieces, columns]; unused entries start at ``NEVER``."""

    dtype: np.dtype[np.generic]
    start: Int64
    bits: Int64
    delta: Int64

    @classmethod
    def of(cls, initial: Array, step: Array, last: int) -> Trajectory:
        """The trajectory from ``initial`` that covers states 0 to ``last``."""
        found = list(pieces(initial, step, last))
        shape = len(found), initial.size
        start, bits, delta = np.full(shape, NEVER), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, piece in enumerate(found):
            start[row, piece.columns] = piece.start
            bits[row, piece.columns] = piece.bits
            delta[row, piece.columns] = piece.delta
        return cls(initial.dtype, start, bits, delta)

    def column(self, column: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(start, stop, bits, delta) of each piece of one column, up to state ``end`` exclusive."""
        starts = [start for start in self.start[:, column].tolist() if start < end]
        return zip(starts, [*starts[1:], end], self.bits[:, column].tolist(), self.delta[:, column].tolist())

    def states(self, indices: Int64) -> Array:
        """The states at ``indices`` [n], as [n, columns]."""
        which = (self.start <= indices[:, None, None]).sum(axis=1) - 1
        start, bits, delta = (np.take_along_axis(table, which, axis=0) for table in (self.start, self.bits, self.delta))
        return from_bits(bits + (indices[:, None] - start) * delta, self.dtype)


def from_bits(bits: Int64, dtype: np.dtype[np.generic]) -> Array:
    """The numbers whose patterns are the low bits of ``bits``."""
    return bits.astype(f"i{dtype.itemsize}").view(dtype)


def _bits(values: Array) -> Int64:
    return values.view(f"i{values.dtype.itemsize}").astype(np.int64)


def _next_piece(state: Array, step: Array) -> tuple[Int64, Int64, Int64]:
    """Bits of ``state``, their change per step, and for how many steps that change is sure to hold."""
    after = state + step
    bits, bits_after, bits_then = _bits(state), _bits(after), _bits(after + step)
    delta = bits_after - bits
    fraction_bits = PRECISION[state.dtype] - 1
    same_binade = ((bits ^ bits_after) | (bits ^ bits_then)) >> fraction_bits == 0
    regular = same_binade & (bits_then - bits_after == delta)
    largest = (1 << fraction_bits) - 1
    fraction = bits & largest
    # Toward zero it stops one short of the binade's lower edge: an exact sum just under the edge rounds on a finer grid.
    room = np.where(delta > 0, largest - fraction, np.maximum(fraction, 1) - 1)
    length = np.where(regular, np.maximum(room // np.maximum(np.abs(delta), 1), 1), 1)
    not_a_number = state != state
    delta[not_a_number] = 0
    length[not_a_number | (delta == 0)] = NEVER
    return bits, delta, length

"""int64 arithmetic in a graph that can't overflow: each number carries the interval it lies in.

Where the interval of a result fits int64, the plain operator is written; where it does not, the result saturates.
Constants are folded here, in Python's integers.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.patterns.graph.constants import INT64_MAX, INT64_MIN, scalar

Condition = ir.Value | bool
"""A bool in the graph, or one that is known."""


@dataclasses.dataclass(frozen=True)
class Integer:
    """An int64 of one element within [low, high]. `value` None: the constant `low` (= `high`)."""

    low: int
    high: int
    value: ir.Value | None = None

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return self.value is None


def constant(number: int) -> Integer:
    """A constant, saturated to int64."""
    number = min(max(number, INT64_MIN), INT64_MAX)
    return Integer(number, number)


@dataclasses.dataclass(frozen=True)
class Integers:
    """Writes int64 arithmetic with an emitter; needs opset 9, from which on integers compare."""

    emitter: Emitter

    def read(self, value: ir.Value, low: int, high: int) -> Integer:
        """An integer tensor of one element as an int64."""
        known = scalar(value, self.emitter.opset)
        if isinstance(known, int):
            return constant(known)
        if self.emitter.type_of(value).dtype != ir.DataType.INT64:
            value = self.emitter.op("Cast", [value], {"to": ir.DataType.INT64})
        return Integer(low, high, self.single(value))

    def single(self, value: ir.Value) -> ir.Value:
        """The value as one element; where its shape does not say so, a node that fails on any other number of them."""
        if self.emitter.type_of(value).shape in ((), (1,)):
            return value
        return self.emitter.op("Reshape", [value, self.emitter.const([])])

    def written(self, number: Integer) -> ir.Value:
        """The number as a value of the graph."""
        return number.value if number.value is not None else self.emitter.const(np.array(number.low, np.int64))

    def add(self, number: Integer, addend: int) -> Integer:
        """number + addend, saturated."""
        if addend == 0:
            return number
        if number.known:
            return constant(number.low + addend)
        if addend > INT64_MAX:  # minus the lowest int64; steps of one sign saturate as their sum does
            return self.add(self.add(number, INT64_MAX), addend - INT64_MAX)
        number = self.clamp(number, INT64_MIN - min(addend, 0), INT64_MAX - max(addend, 0))
        return self._binary("Add", number, constant(addend), number.low + addend, number.high + addend)

    def subtract(self, left: Integer, right: Integer) -> Integer:
        """left - right, saturated."""
        if right.known:
            return self.add(left, -right.low)
        low, high = left.low - right.high, left.high - right.low
        if left.known:
            right = self.clamp(right, left.low - INT64_MAX, left.low - INT64_MIN)
            return self._binary("Sub", left, right, left.low - right.high, left.low - right.low)
        if low >= INT64_MIN and high <= INT64_MAX:
            return self._binary("Sub", left, right, low, high)
        # The wrapped difference has the wrong sign exactly where it left int64.
        wrapped = self.wrapped_difference(left, right)
        negative = self.less(wrapped, constant(0))
        below = self.select(negative, wrapped, constant(INT64_MIN))
        return self.select(self.less(left, right), below, self.select(negative, constant(INT64_MAX), wrapped))

    def wrapped_difference(self, left: Integer, right: Integer) -> Integer:
        """left - right modulo 2^64, as ONNX integers wrap."""
        if left.known and right.known:
            return constant((left.low - right.low - INT64_MIN) % (1 << 64) + INT64_MIN)
        low, high = left.low - right.high, left.high - right.low
        if low < INT64_MIN or high > INT64_MAX:
            low, high = INT64_MIN, INT64_MAX
        return self._binary("Sub", left, right, low, high)

    def divide(self, number: Integer, divisor: int) -> Integer:
        """number / divisor for a divisor above 0, rounded down; a negative number may be rounded up, to at most 0."""
        if divisor == 1:
            return number
        low, high = number.low // divisor, number.high // divisor if number.high >= 0 else 0
        return constant(low) if number.known else self._binary("Div", number, constant(divisor), low, high)

    def remainder(self, number: Integer, divisor: int) -> Integer:
        """number modulo a divisor above 0, in [0, divisor) also for a negative number; needs opset 10."""
        if number.known:
            return constant(number.low % divisor)
        return self._binary("Mod", number, constant(divisor), 0, divisor - 1)

    def minimum(self, left: Integer, right: Integer) -> Integer:
        """The smaller one."""
        if left.high <= right.low or left == right:
            return left
        if right.high <= left.low:
            return right
        low, high = min(left.low, right.low), min(left.high, right.high)
        if self.emitter.opset >= 12:
            return self._binary("Min", left, right, low, high)
        chosen = self.select(self.less(left, right), left, right)
        return dataclasses.replace(chosen, low=low, high=high)

    def maximum(self, left: Integer, right: Integer) -> Integer:
        """The larger one."""
        if left.low >= right.high or left == right:
            return left
        if right.low >= left.high:
            return right
        low, high = max(left.low, right.low), max(left.high, right.high)
        if self.emitter.opset >= 12:
            return self._binary("Max", left, right, low, high)
        chosen = self.select(self.less(left, right), right, left)
        return dataclasses.replace(chosen, low=low, high=high)

    def clamp(self, number: Integer, low: int, high: int) -> Integer:
        """The nearest number in [low, high]."""
        return self.minimum(self.maximum(number, constant(low)), constant(high))

    def less(self, left: Integer, right: Integer) -> Condition:
        """Whether left < right."""
        if left.high < right.low:
            return True
        if left.low >= right.high:
            return False
        return self.emitter.op("Less", [self.written(left), self.written(right)])

    def select(self, condition: Condition, chosen: Integer, other: Integer) -> Integer:
        """`chosen` where the condition holds, else `other`."""
        if isinstance(condition, bool):
            return chosen if condition else other
        if chosen == other:
            return chosen
        value = self.emitter.op("Where", [condition, self.written(chosen), self.written(other)])
        return Integer(min(chosen.low, other.low), max(chosen.high, other.high), value)

    def _binary(self, op_type: str, left: Integer, right: Integer, low: int, high: int) -> Integer:
        return Integer(low, high, self.emitter.op(op_type, [self.written(left), self.written(right)]))

"""Where a comparison in floating point turns: the first integer at which it fails."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.integers import Integer, Integers, constant
from looplift.patterns.graph.constants import INT64_MAX, INT64_MIN, scalar
from looplift.patterns.loops.exit_condition import Comparison
from looplift.patterns.loops.induction import PRECISION


@dataclasses.dataclass(frozen=True)
class Threshold:
    """The integer N such that ``float(t) relation bound`` holds for t before N and fails from N on.

    Let fl round integers to floating point with p bits of precision. fl is monotone, so for ``<`` and a climbing t
    the comparison fails from N = min {t : fl(t) >= bound} on; likewise for the other relations, ``>`` and ``>=`` with
    a falling t. N differs from the bound by no more than rounding does: floats next to each other are 2g apart, where
    g is a power of two or the floats are at most 1 apart, and fl changes from one to the next half way between,
    at distance g, on the one side or the other of it (ties go to the even one). So N is one of

        c, c +- 1, c +- 2^j, c +- 2^j +- 1   with c = ceil(bound) and 2^j each half gap of floats in t's range,

    and since the comparison fails from N on, N is the first of these candidates at which it fails: the graph tries
    them all, with the very Cast and comparison of the loop, in one vector. If it fails at none, it never does.
    The bound is first clamped to just outside t's range. Where no such float is finite or in int64, it is clamped to
    the last one that is, next to which all other thresholds lie, and the first value of t's range is a candidate too,
    for bounds at which even that fails. With NaN, the comparison fails at once.
    """

    comparison: Comparison

    @property
    def _climbs(self) -> bool:
        return self.comparison.relation in ("<", "<=")

    @property
    def _dtype(self) -> ir.DataType:
        assert self.comparison.float_type is not None
        return self.comparison.float_type

    @property
    def _bits(self) -> int:
        """Bits of the largest magnitude that matters: of t, and in float16 of the first integer that is infinite."""
        motion = self.comparison.motion
        bits = max(-motion.low, motion.high + 1).bit_length() - 1
        return min(bits, 16) if self._dtype == ir.DataType.FLOAT16 else bits

    @property
    def _offsets(self) -> list[int]:
        """How far the candidates are from the bound, as t meets them."""
        gaps = [1 << j for j in range(max(self._bits - PRECISION[self._dtype] + 1, 0))]
        centres = [0, *gaps, *(-gap for gap in gaps)]
        found = {*centres, *(centre + (1 if self._climbs else -1) for centre in centres)}
        return sorted(found, reverse=not self._climbs)

    @property
    def _exceeds_limit(self) -> bool:
        """Whether t's range may hold integers above `_limit`."""
        return self._bits == 63 or (self._dtype == ir.DataType.FLOAT16 and self._bits == 16)

    @property
    def _limit(self) -> float:
        """A float out of t's range, or else the largest one that is finite and in int64."""
        if self._dtype == ir.DataType.FLOAT16 and self._bits >= 15:
            return 65504.0
        if self._bits < 63:
            return float(1 << (self._bits + 1))
        return float((1 << 63) - (1 << (63 - PRECISION[self._dtype])))

    @property
    def _first(self) -> int:
        """The value of t's range from which t moves away."""
        return self.comparison.motion.low if self._climbs else self.comparison.motion.high

    def of_number(self, bound: float) -> Integer:
        """N for a bound known now."""
        if np.isnan(bound):
            return constant(INT64_MIN if self._climbs else INT64_MAX)
        nearest = int(np.ceil(min(max(bound, -self._limit), self._limit)))
        candidates = [self._first, *(nearest + offset for offset in self._offsets)]
        candidates = [number for number in candidates if INT64_MIN <= number <= INT64_MAX]
        with np.errstate(over="ignore"):
            rounded = np.array(candidates, np.int64).astype(self._dtype.numpy())
        limit = rounded.dtype.type(bound)
        relation = self.comparison.relation
        holds = {"<": rounded < limit, "<=": rounded <= limit, ">": rounded > limit, ">=": rounded >= limit}[relation]
        failing = [number for number, goes_on in zip(candidates, holds, strict=True) if not goes_on]
        if not failing:
            return constant(self._nowhere)
        return constant(min(failing) if self._climbs else max(failing))

    @property
    def _nowhere(self) -> int:
        """Stands for a comparison that never fails: an integer past the end of t's range."""
        return self.comparison.motion.high + 1 if self._climbs else self.comparison.motion.low - 1

    def of_value(self, bound: ir.Value, integers: Integers) -> Integer:
        """N for a bound that is a value of the graph."""
        emitter = integers.emitter
        known = scalar(bound, emitter.opset)
        if known is not None:
            return self.of_number(float(known))
        bound = integers.single(bound)
        near = self._around(self._nearest(bound, integers), emitter)
        first = [emitter.const([self._first])] if self._exceeds_limit else []
        candidates = emitter.op("Concat", [*first, near, emitter.const([constant(self._nowhere).low])], {"axis": 0})
        rounded = emitter.op("Cast", [candidates], {"to": self._dtype})
        numbers = np.arange(len(first) + len(self._offsets) + 1)
        last, each = emitter.const(int(numbers[-1])), emitter.const(numbers)
        relation = self.comparison.relation
        if relation in ("<", ">"):
            holds = emitter.op({"<": "Less", ">": "Greater"}[relation], [rounded, bound])
            failing = emitter.op("Where", [holds, last, each])
        else:
            fails = emitter.op({"<=": "Greater", ">=": "Less"}[relation], [rounded, bound])
            failing = emitter.op("Where", [fails, each, last])
        # Of the candidates' numbers, not of the candidates: ONNX Runtime 1.23 compares int64 by the low halves there.
        which = emitter.op("ReduceMin", [failing], {"keepdims": 0})
        return self._bounded(emitter.op("Gather", [candidates, which], {"axis": 0}), bound, integers)

    def _around(self, nearest: ir.Value, emitter: Emitter) -> ir.Value:
        """The candidates near the bound, as t meets them."""
        near = emitter.op("Add", [nearest, emitter.const(self._offsets)])
        if self._climbs or self._bits < 63:
            return near  # what wraps comes last, and there the comparison holds
        wraps = emitter.op("Less", [near, nearest])
        wraps = emitter.op("And", [wraps, emitter.const(np.array(self._offsets) > 0)])
        return emitter.op("Where", [wraps, emitter.const(INT64_MAX), near])

    def _nearest(self, bound: ir.Value, integers: Integers) -> ir.Value:
        """ceil(bound), clamped, as an int64."""
        emitter, is_integer = integers.emitter, self.comparison.bound_range is not None
        if not is_integer or self._exceeds_limit:
            for op_type, limit in (("Min", self._limit), ("Max", -self._limit)):
                bound = emitter.op(op_type, [bound, emitter.const(np.array(limit, self._dtype.numpy()))])
        if not is_integer:
            bound = emitter.op("Ceil", [bound])
        return emitter.op("Cast", [bound], {"to": ir.DataType.INT64})

    def _bounded(self, turn: ir.Value, bound: ir.Value, integers: Integers) -> Integer:
        """With the interval that is known of it: fl(bound) fails ``<`` and ``>`` for an integer bound itself."""
        reach = 1 << (self._bits + 3)
        ends = (self._nowhere, self._first)
        low, high = max(min(-reach, *ends), INT64_MIN), min(max(reach, *ends), INT64_MAX)
        known = self.comparison.bound_range
        if known is None:
            at_once = constant(INT64_MIN if self._climbs else INT64_MAX)
            is_nan = integers.emitter.op("IsNaN", [bound])
            return integers.select(is_nan, at_once, Integer(low, high, turn))
        if self.comparison.relation == "<":
            high = min(high, known[1])
        if self.comparison.relation == ">":
            low = max(low, known[0])
        return Integer(low, high, turn)

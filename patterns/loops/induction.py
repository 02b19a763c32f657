"""Integer values of a loop body that move by a constant step: counters and what is computed from them.

A progression is t, t + s, t + 2s, ... in an integer type. Its step is found without knowing where it starts:
Add, Sub, Neg, Mul and narrowing Casts are ring homomorphisms modulo 2^bits, so constant differences stay constant
through them however often the values wrap. Source: the affine case of LLVM's scalar evolution.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.operators import TRAITS, Trait, has, is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import maker, source
from looplift.patterns.graph.view import Carry, LoopView
from looplift.patterns.loops.dependence import Dependence

BITS = {
    ir.DataType.INT8: 8,
    ir.DataType.INT16: 16,
    ir.DataType.INT32: 32,
    ir.DataType.INT64: 64,
    ir.DataType.UINT8: 8,
    ir.DataType.UINT16: 16,
    ir.DataType.UINT32: 32,
}
"""Integer types that a counter may have; uint64 does not fit the int64 of a trip count."""

PRECISION = {
    ir.DataType.FLOAT16: 11,
    ir.DataType.FLOAT: 24,
    ir.DataType.DOUBLE: 53,
}
"""Floating-point types and p: each integer of magnitude at most 2^p is exact, 2^p + 1 is not."""


def integer_range(dtype: ir.DataType) -> tuple[int, int]:
    """Lowest and highest value of a type of `BITS`."""
    bits = BITS[dtype]
    return (0, (1 << bits) - 1) if not dtype.is_signed() else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The same in every iteration that runs."""


@dataclasses.dataclass(frozen=True)
class Progression:
    """A value that moves by `step` (not 0) from iteration to iteration, within [low, high].

    Past an end of this range it comes in at the other end if it `wraps`; else it stays on the end for ever.
    `dtype` is the type it is stored in, which may hold more than the range.
    """

    dtype: ir.DataType
    step: int
    low: int
    high: int
    wraps: bool = True

    @property
    def fills_type(self) -> bool:
        """Whether it wraps just where its type does, so that arithmetic in the type is modular arithmetic on it."""
        return self.wraps and (self.low, self.high) == integer_range(self.dtype)


Motion = Fixed | Progression | Refusal


class Motions:
    """How the values of a Loop's body move. Refusals are noun phrases: what it is that is no counter.

    Args:
        view: the Loop.
        types: facts that include the body's (`Types.with_body`).
    """

    def __init__(self, view: LoopView, types: Types) -> None:
        self.view, self.types = view, types
        self._dependence = Dependence(view, types)
        self._carries = {id(carry.previous): carry for carry in view.carries}
        fixed = [carry.previous for carry in view.carries if source(carry.updated) is carry.previous]
        # The cond input is true whenever the body runs.
        self._fixed = frozenset(map(id, [*fixed, view.condition_in]))
        self._known: dict[int, Motion] = {}

    def fixed(self, value: ir.Value) -> bool:
        """Whether the value is the same in every iteration that runs."""
        return self._dependence.of(value) <= self._fixed

    def of(self, value: ir.Value) -> Motion:
        """How the value moves; a refusal names the carried value that moves in another way."""
        if id(value) not in self._known:
            self._known[id(value)] = self._motion(value)
        return self._known[id(value)]

    def scalar(self, value: ir.Value | None) -> int | float | bool | None:
        """The number that a body value always is, constants handed round as carries included; None if not known."""
        if value is None:
            return None
        known = scalar(value, self.view.opset)
        if known is not None:
            return known  # type: ignore[no-any-return]
        if id(value) in self._carries and id(value) in self._fixed:
            return self.scalar(self._carries[id(value)].initial)
        node = value.producer()
        if not is_standard(node) or not node.inputs:
            return None
        if has(node, Trait.RESHAPES):
            return self.scalar(node.inputs[0])
        if node.op_type in ("Cast", "CastLike"):
            return _converted(self.scalar(node.inputs[0]), self.types[value].dtype)
        return None

    def _motion(self, value: ir.Value) -> Motion:
        if self.fixed(value):
            return Fixed()
        if value is self.view.iteration:
            return Progression(ir.DataType.INT64, 1, *integer_range(ir.DataType.INT64))
        if id(value) in self._carries:
            return self._carry(self._carries[id(value)])
        for carry in self.view.carries:
            if value is carry.updated and isinstance(motion := self.of(carry.previous), Progression):
                return motion
        node = value.producer()
        if node is None:
            return Refusal(f"'{value.name}', which changes from one iteration to the next", self.view.node)
        transfer = _TRANSFER.get(node.op_type) if is_standard(node) else None
        return transfer(self, node) if transfer is not None else self._blamed(node)

    def _blamed(self, node: ir.Node) -> Refusal:
        """Why a node's value is no progression: the first of its sources that is none, or the node itself."""
        for value in self.view.body.inputs:
            if any(self._dependence.reaches(value, output) for output in node.outputs) and not self.fixed(value):
                motion = self.of(value)
                if isinstance(motion, Refusal):
                    return motion
        return Refusal(f"a result of {node.op_type} that changes with the loop", node)

    def _carry(self, carry: Carry) -> Motion:
        dtype = self.types[carry.previous].dtype
        if dtype is None:
            return Refusal(f"'{carry.previous.name}', whose type is not known", self.view.node)
        if dtype not in BITS:
            kind = " in floating point, so that rounding decides when it ends" if _is_float(dtype) else ""
            return Refusal(f"'{carry.previous.name}', which the loop changes{kind}", self.view.node)
        difference = self._difference(carry.updated, carry.previous, BITS[dtype])
        if difference is not None:
            return _progression(dtype, difference) or Fixed()
        return self._sticking(carry, dtype) or Refusal(
            f"'{carry.previous.name}', which the loop changes", self.view.node
        )

    def _difference(self, value: ir.Value, origin: ir.Value, bits: int) -> int | None:
        """value - origin modulo 2^bits if that is a constant; every value between must be as wide, to keep all bits."""
        if value is origin:
            return 0
        node, dtype = value.producer(), self.types[value].dtype
        if not is_standard(node) or dtype not in BITS or BITS[dtype] < bits:
            return None
        if has(node, Trait.RESHAPES) or node.op_type in ("Cast", "CastLike"):
            return self._difference(node.inputs[0], origin, bits) if node.inputs[0] is not None else None
        operands = [value for value in node.inputs if value is not None]
        if node.op_type not in ("Add", "Sub") or len(operands) != 2:
            return None
        left, right = operands
        sign = 1 if node.op_type == "Add" else -1
        for moving, other, allowed in ((left, right, True), (right, left, sign == 1)):
            addend = self.scalar(other)
            before = self._difference(moving, origin, bits) if allowed and isinstance(addend, int) else None
            if before is not None and addend is not None:
                return before + sign * int(addend)
        return None

    def _sticking(self, carry: Carry, dtype: ir.DataType) -> Progression | None:
        """The counter c' = Cast(Cast:float(c) * 1 +- 1) of paddle2onnx.

        With p bits of precision this is c +- 1 while |c| < 2^p. At 2^p it sticks: 2^p + 1 lies half way between
        2^p and 2^p + 2 and rounds to the even 2^p. So a start within the range is needed, and must be a constant.
        """
        cast = maker(source(carry.updated), "Cast", "CastLike")
        add = maker(source(cast.inputs[0]), "Add", "Sub") if cast is not None and cast.inputs[0] is not None else None
        if add is None or add.inputs[0] is None:
            return None
        precision = PRECISION.get(self.types[add.outputs[0]].dtype or ir.DataType.UNDEFINED)
        start, step = self.scalar(carry.initial), self.scalar(add.inputs[1])
        moving = self._unscaled(add.inputs[0])
        if step not in (1, -1) and add.op_type == "Add":
            step, moving = self.scalar(add.inputs[0]), self._unscaled(add.inputs[1])
        from_counter = maker(moving, "Cast", "CastLike")
        if precision is None or from_counter is None or from_counter.inputs[0] is None or step not in (1, -1):
            return None
        limit = 1 << precision
        if source(from_counter.inputs[0]) is not carry.previous or limit > integer_range(dtype)[1]:
            return None
        if not isinstance(start, int) or not -limit <= start <= limit:
            return None
        signed = int(step) if add.op_type == "Add" else -int(step)
        return Progression(dtype, signed, -limit, limit, wraps=False) if dtype.is_signed() else None

    def _unscaled(self, value: ir.Value | None) -> ir.Value | None:
        """The value without multiplications by one."""
        while value is not None:
            value = source(value)
            node = maker(value, "Mul")
            if node is None:
                return value
            left, right = node.inputs
            if self.scalar(right) == 1:
                value = left
            elif self.scalar(left) == 1:
                value = right
            else:
                return value
        return None

    def copied(self, node: ir.Node) -> Motion:
        """Identity, and reshapes of a counter's one element."""
        return self.of(node.inputs[0]) if node.inputs[0] is not None else self._blamed(node)

    def cast(self, node: ir.Node) -> Motion:
        """To a type that holds the range: no change. To a narrower one: wraps there."""
        dtype, motion = self.types[node.outputs[0]].dtype, self.copied(node)
        if not isinstance(motion, Progression):
            return motion
        if dtype not in BITS:
            return self._blamed(node)
        low, high = integer_range(dtype)
        if low <= motion.low and motion.high <= high:
            return dataclasses.replace(motion, dtype=dtype)
        if not motion.wraps or (motion.high - motion.low + 1) % (high - low + 1):
            return Refusal("a counter after a Cast to a type that does not hold its range", node)
        return _progression(dtype, motion.step) or Refusal(
            "a counter after a Cast to a type in which it stands still", node
        )

    def added(self, node: ir.Node) -> Motion:
        """Add and Sub: the steps add up; a constant also shifts the range of what wraps elsewhere than its type."""
        sides = [self.of(value) if value is not None else self._blamed(node) for value in node.inputs]
        refused = next((side for side in sides if isinstance(side, Refusal)), None)
        if refused is not None or len(sides) != 2:
            return refused or self._blamed(node)
        left, right = sides
        sign = 1 if node.op_type == "Add" else -1
        if isinstance(left, Progression) and isinstance(right, Fixed):
            return self._shifted(left, self.scalar(node.inputs[1]), sign) or self._blamed(node)
        if isinstance(right, Progression) and isinstance(left, Fixed) and sign == 1:
            return self._shifted(right, self.scalar(node.inputs[0]), 1) or self._blamed(node)
        steps = [side.step if isinstance(side, Progression) else 0 for side in (left, right)]
        if all(side.fills_type for side in (left, right) if isinstance(side, Progression)):
            moved = next(side for side in (left, right) if isinstance(side, Progression))
            return _progression(moved.dtype, steps[0] + sign * steps[1]) or self._blamed(node)
        return self._blamed(node)

    def _shifted(self, moving: Progression, offset: int | float | None, sign: int) -> Progression | None:
        if moving.fills_type:
            return moving
        if not isinstance(offset, int):
            return None
        low, high = moving.low + sign * offset, moving.high + sign * offset
        limits = integer_range(moving.dtype)
        return dataclasses.replace(moving, low=low, high=high) if limits[0] <= low and high <= limits[1] else None

    def scaled(self, node: ir.Node) -> Motion:
        """Mul by a constant, and Neg."""
        factors = [-1] if node.op_type == "Neg" else [self.scalar(value) for value in node.inputs]
        moving = [self.of(value) for value in node.inputs if value is not None]
        progression = next((motion for motion in moving if isinstance(motion, Progression)), None)
        factor = next((factor for factor in factors if isinstance(factor, int)), None)
        if progression is None or factor is None or not progression.fills_type:
            return self._blamed(node)
        return _progression(progression.dtype, progression.step * factor) or self._blamed(node)


_TRANSFER = {
    **dict.fromkeys(TRAITS[Trait.RESHAPES], Motions.copied),
    "Add": Motions.added,
    "Cast": Motions.cast,
    "CastLike": Motions.cast,
    "Mul": Motions.scaled,
    "Neg": Motions.scaled,
    "Sub": Motions.added,
}


def _progression(dtype: ir.DataType, step: int) -> Progression | None:
    """In modular arithmetic a step is as good as the one of smallest magnitude; None if that is 0."""
    half = 1 << (BITS[dtype] - 1)
    step = (step + half) % (2 * half) - half
    return Progression(dtype, step, *integer_range(dtype)) if step else None


def _is_float(dtype: ir.DataType | None) -> bool:
    return dtype is not None and dtype.is_floating_point()


def _converted(number: int | float | bool | None, dtype: ir.DataType | None) -> int | float | None:
    """An integer in another type, if it is there without loss."""
    if not isinstance(number, int) or dtype is None:
        return None
    if dtype in PRECISION:
        return float(number) if abs(number) <= 1 << PRECISION[dtype] else None
    return int(number) if dtype in BITS and integer_range(dtype)[0] <= number <= integer_range(dtype)[1] else None

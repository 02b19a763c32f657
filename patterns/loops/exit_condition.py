"""What ends a Loop: the comparisons of counters with fixed bounds that its body's cond is made of."""

from __future__ import annotations

import dataclasses
import math

import onnx_ir as ir

from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.values import source
from looplift.patterns.loops.induction import BITS, PRECISION, Fixed, Motions, Progression, integer_range

NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
RELATIONS = {"Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">=", "Equal": "=="}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The loop goes on while ``tested relation bound``.

    Attributes:
        node: the comparison in the body.
        tested: the moving side; an integer, before any Cast to `float_type`.
        relation: ``<``, ``<=`` (the counter climbs), ``>``, ``>=`` (it falls) or ``!=``.
        bound: the fixed side, of the compared type.
        motion: how `tested` moves.
        float_type: the type that both sides are compared in, if it is a floating-point type.
        bound_range: lowest and highest value of the bound, or of the integer that it is a Cast of; None for any
            other floating-point bound, which may also be NaN.
    """

    node: ir.Node
    tested: ir.Value
    relation: str
    bound: ir.Value
    motion: Progression
    float_type: ir.DataType | None
    bound_range: tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class Flag:
    """The loop goes on while a fixed bool is `wanted`."""

    value: ir.Value
    wanted: bool


@dataclasses.dataclass(frozen=True)
class ExitTest:
    """The loop goes on while all comparisons and flags hold.

    Attributes:
        comparisons: each of a counter that is known to hold one element.
        flags: fixed bools.
        unsettled: names a bound or flag whose rank is not known, so that it may hold any number of elements; None if
            each is known to hold one.
    """

    comparisons: tuple[Comparison, ...]
    flags: tuple[Flag, ...]
    unsettled: Refusal | None


def exit_test(motions: Motions) -> ExitTest | Refusal:
    """The body's cond as a conjunction, or what in it is no comparison of a counter with a fixed bound.

    A cond that is the same in every iteration has no comparisons.
    """
    parts = _conjuncts(motions, motions.view.condition_out, wanted=True)
    if isinstance(parts, Refusal):
        return parts
    comparisons = tuple(part for part in parts if isinstance(part, Comparison))
    flags = tuple(part for part in parts if isinstance(part, Flag))
    fixed = [*(part.bound for part in comparisons), *(part.value for part in flags)]
    return ExitTest(
        comparisons, flags, next((_many(value) for value in fixed if not _one_element(motions, value)), None)
    )


def _conjuncts(motions: Motions, value: ir.Value, *, wanted: bool) -> list[Comparison | Flag] | Refusal:
    value = source(value)
    if value is motions.view.condition_in and wanted:
        return []  # true whenever the body runs
    known = motions.scalar(value)
    if known is not None and bool(known) is wanted:
        return []
    if motions.fixed(value):
        return [Flag(value, wanted)] if _may_hold_one(motions, value) else _many(value)
    node = value.producer()
    op_type = node.op_type if is_standard(node) else ""
    if node is not None and (op_type == "Not" or has(node, Trait.RESHAPES)) and node.inputs[0] is not None:
        return _conjuncts(motions, node.inputs[0], wanted=wanted is (op_type != "Not"))
    if node is not None and op_type == "Cast" and motions.types[node.inputs[0]].dtype == ir.DataType.BOOL:
        return _conjuncts(motions, node.inputs[0], wanted=wanted)  # type: ignore[arg-type]
    if node is not None and op_type in ("And", "Or"):
        return _both(motions, node, wanted=wanted)
    if node is not None and op_type in RELATIONS:
        comparison = _comparison(motions, node, RELATIONS[op_type], wanted=wanted)
        return comparison if isinstance(comparison, Refusal) else [comparison]
    return _reads(motions, value)


def _both(motions: Motions, node: ir.Node, *, wanted: bool) -> list[Comparison | Flag] | Refusal:
    if (node.op_type == "And") is not wanted:
        return Refusal("the loop goes on while one of two tests holds", node)
    parts: list[Comparison | Flag] = []
    for side in node.inputs:
        found = _conjuncts(motions, side, wanted=wanted) if side is not None else Refusal("a missing input", node)
        if isinstance(found, Refusal):
            return found
        parts.extend(found)
    return parts


def _reads(motions: Motions, value: ir.Value) -> Refusal:
    motion = motions.of(value)
    if isinstance(motion, Refusal):
        return Refusal(f"the exit test reads {motion.reason}", motion.node)
    return Refusal(f"the exit test '{value.name}' is no comparison with a fixed bound", value.producer())


def _comparison(motions: Motions, node: ir.Node, relation: str, *, wanted: bool) -> Comparison | Refusal:
    left, right = (value for value in node.inputs if value is not None)
    relation = relation if wanted else NEGATED[relation]
    if motions.fixed(left):
        left, right, relation = right, left, MIRRORED[relation]
    if not motions.fixed(right):
        refusals = [_reads(motions, side) for side in (left, right) if isinstance(motions.of(side), Refusal)]
        return refusals[0] if refusals else Refusal("the exit test compares two values that both change", node)
    tested, float_type = _before_rounding(motions, left)
    motion = motions.of(tested)
    if isinstance(motion, (Refusal, Fixed)):
        return _reads(motions, left)
    if not all(_one_element(motions, value) for value in (tested, left)):
        return Refusal(f"the counter '{tested.name}' is not known to hold one element", node)
    if not _may_hold_one(motions, right):
        return _many(right)
    if float_type is not None and relation in ("==", "!="):
        return Refusal("the exit test compares a counter for equality in floating point", node)
    if relation == "==" or (relation != "!=" and (relation in ("<", "<=")) is not (motion.step > 0)):
        return Refusal(f"the counter '{tested.name}' does not move towards its bound", node)
    # Both sides of a comparison have one type, also where the bound's is not declared.
    bound_range = _range(motions, right) or (integer_range(motion.dtype) if float_type is None else None)
    if bound_range is None and not wanted:
        return Refusal("the loop goes on while a comparison with a number that may be NaN is false", node)
    return Comparison(node, tested, relation, right, motion, float_type, bound_range)


def _before_rounding(motions: Motions, value: ir.Value) -> tuple[ir.Value, ir.DataType | None]:
    """The integer behind a Cast to floating point, and that type."""
    origin = source(value)
    node, dtype = origin.producer(), motions.types[origin].dtype
    is_cast = is_standard(node, "Cast", "CastLike")
    if node is not None and is_cast and dtype in PRECISION and node.inputs[0] is not None:
        return node.inputs[0], dtype
    return value, None


def _range(motions: Motions, value: ir.Value) -> tuple[int, int] | None:
    """Lowest and highest value of an integer, through Casts that lose nothing; of what is cast to floating point."""
    known = motions.scalar(value)
    if known is not None and math.isfinite(known):
        return math.floor(known), math.ceil(known)
    origin = source(value)
    dtype, node = motions.types[origin].dtype, origin.producer()
    limits = integer_range(dtype) if dtype in BITS else None
    if not is_standard(node, "Cast", "CastLike"):
        return limits
    behind = _range(motions, node.inputs[0]) if node.inputs[0] is not None else None
    if behind is None or limits is None:
        return behind if dtype in PRECISION else limits
    return behind if limits[0] <= behind[0] and behind[1] <= limits[1] else limits


def _one_element(motions: Motions, value: ir.Value) -> bool:
    return motions.types[value].shape in ((), (1,))


def _may_hold_one(motions: Motions, value: ir.Value) -> bool:
    return motions.types[value].shape is None or _one_element(motions, value)


def _many(value: ir.Value) -> Refusal:
    """A test with no element, or with several, is none: what engines make of it is not settled."""
    return Refusal(f"'{value.name}' in the exit test is not known to hold one element", value.producer())

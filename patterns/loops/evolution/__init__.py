"""How each carry evolves: the loop body evaluated over symbols instead of numbers.

As LLVM's scalar evolution does for integers: give the carry a symbol, follow the body from it to its updated
value, one small transfer function per operator, and see what form comes out at the end. Each form keeps the
operations and their order, so that evaluating it rounds exactly as the body does: ``a*v + b`` stands for one
multiplication, then one addition. What would need two additions to be joined, or a product to be distributed,
is `Unknown`, with the reason, but for additions in a row, each of which is a step of its own (`Additions`). For
integers, where arithmetic wraps and is associative, additions do join.

Source: Bachmann, Wang, Zima, "Chains of recurrences" (1994), and LLVM's ScalarEvolution for the method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir

from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.refusal import Refusal, label
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import made_by, source
from looplift.patterns.graph.view import Carry, View
from looplift.patterns.loops.cells import STATES, CellState, cell_state
from looplift.patterns.loops.continued import Continued, continued
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution.forms import (
    Additions,
    AddStep,
    Evolution,
    Invariant,
    LinearRecurrence,
    Overwritten,
    PrefixSum,
    Resets,
    RunningFlag,
    Term,
    Unknown,
)


@dataclasses.dataclass(frozen=True)
class Affine:
    """The symbol's image: factor*v + addends, in this order; factor None is 1 and costs no operation."""

    factor: Term | None = None
    addends: tuple[Term, ...] = ()


@dataclasses.dataclass(frozen=True)
class Chain:
    """The symbol's image: (v + first addend) + second addend ..., rounded after each."""

    addends: tuple[Term, ...]


Image = Affine | Chain | RunningFlag | Resets | Unknown
Transfer = Callable[["Walk", ir.Node], Image]


@dataclasses.dataclass(frozen=True)
class Walk:
    """One carry's symbol on its way through the body."""

    carry: Carry
    dependence: Dependence
    types: Types
    reassociate: bool
    known: dict[int, Image | None] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def image(self, value: ir.Value) -> Image | None:
        """What the value is in terms of the carry's symbol; None if it does not depend on it.

        What it is made of comes first, and once: the ways through a body may be long, and exponentially many.
        """
        if id(value) not in self.known:
            for node in made_by([value], self.dependence.view.body):
                for output in node.outputs:
                    if id(output) not in self.known:
                        self.known[id(output)] = self._image(output)
        if id(value) not in self.known:
            self.known[id(value)] = self._image(value)
        return self.known[id(value)]

    def _image(self, value: ir.Value) -> Image | None:
        if not self.dependence.reaches(self.carry.previous, value):
            return None
        if value is self.carry.previous:
            return Affine()
        node = value.producer()
        if not is_standard(node):
            return Unknown(Refusal("an op that is not known reads the carried value", node))
        transfer = TRANSFER.get(node.op_type)
        found = Unknown(_no_rule(node)) if transfer is None else transfer(self, node)
        return (isinstance(found, Unknown) and self._blocked_before(node)) or found

    def _blocked_before(self, node: ir.Node) -> Unknown | None:
        """What ended the walk already on the way to this node."""
        images = (self.image(operand) for operand in node.inputs if operand is not None)
        found = (image for image in images if isinstance(image, Unknown))
        return next((image for image in found if image.refusal.node is None or not _is_cell(image.refusal.node)), None)

    def joins(self, value: ir.Value) -> bool:
        """Whether additions may be joined here: they wrap (integers), or bits are not asked for."""
        dtype = self.types[value].dtype
        return self.reassociate or (dtype is not None and dtype.is_integer())


def _is_cell(node: ir.Node) -> bool:
    """Whether there are states that go through it (`patterns.loops.cells`), so that it is not what stops this one."""
    return is_standard(node, *STATES)


def _no_rule(node: ir.Node) -> Refusal:
    """Of an operator that only moves elements, what it moves them for: the one that reads them."""
    blocker, seen = node, {node}
    while has(blocker, Trait.MOVES, Trait.SPREADS):
        reader = next((user for user, _ in blocker.outputs[0].uses() if user not in seen), None)
        if reader is None or reader.op_type in TRANSFER or not (is_standard(reader) and reader.graph is node.graph):
            blocker = node
            break
        blocker = reader
        seen.add(reader)
    if blocker.op_type == "If":
        return Refusal("the carried value is chosen by If, which no rule follows; a choice by Where may be", blocker)
    grows = blocker.op_type in GROWS
    return Refusal(f"the carried value goes through {blocker.op_type}, which no rule follows", blocker, general=grows)


GROWS = frozenset({"Concat", "Scatter", "ScatterElements", "ScatterND", "SequenceInsert"})
"""Operators that add to what is carried: the passes that make stacks of it say why they don't."""


def _add(walk: Walk, node: ir.Node) -> Image:
    return _sum(walk, node, negate_second=False)


def _sub(walk: Walk, node: ir.Node) -> Image:
    # x - y and x + (-y) round alike: IEEE 754 defines the one by the other.
    return _sum(walk, node, negate_second=True)


def _sides(walk: Walk, node: ir.Node, reason_if_both: str) -> tuple[Affine | Chain, ir.Value] | Unknown:
    """The image of the operand that moves with the carry, and the operand that does not."""
    first, second = node.inputs
    assert first is not None and second is not None
    left, right = walk.image(first), walk.image(second)
    for image in (left, right):
        if isinstance(image, Unknown):
            return image
        if isinstance(image, RunningFlag | Resets):
            return Unknown(Refusal(f"{node.op_type} of a {image}", node))
    if isinstance(left, Affine | Chain) and isinstance(right, Affine | Chain):
        return Unknown(Refusal(reason_if_both, node))
    if isinstance(left, Affine | Chain):
        return left, second
    assert isinstance(right, Affine | Chain), "one operand depends on the carry, or the node would not be asked"
    return right, first


def _sum(walk: Walk, node: ir.Node, *, negate_second: bool) -> Image:
    if len(node.inputs) != 2 or node.inputs[0] is None or node.inputs[1] is None:
        return Unknown(Refusal(f"{node.op_type} of more than two values", node))
    sides = _sides(walk, node, "both sides of the sum depend on the carried value")
    if isinstance(sides, Unknown):
        return sides
    moving, other = sides
    addend = Term(other)
    if negate_second and other is node.inputs[1]:
        addend = addend.flipped()
    elif negate_second:
        flipped = _negated(walk, moving, node)
        if isinstance(flipped, Unknown):
            return flipped
        moving = flipped
    if isinstance(moving, Affine) and (not moving.addends or walk.joins(node.outputs[0])):
        return Affine(moving.factor, (*moving.addends, addend))
    if isinstance(moving, Affine) and moving.factor is not None:
        return Unknown(Refusal("two additions in a row round twice, and joining them would round once", node))
    return Chain((*moving.addends, addend))


def _negated(walk: Walk, image: Affine | Chain, node: ir.Node) -> Affine | Unknown:
    if isinstance(image, Chain) or (image.addends and not walk.joins(node.outputs[0])):
        return Unknown(Refusal("a negated sum is no sum of negated values where it cancels to zero", node))
    factor = (image.factor or Term(None)).flipped()
    return Affine(None if factor == Term(None) else factor, tuple(term.flipped() for term in image.addends))


def _neg(walk: Walk, node: ir.Node) -> Image:
    image = walk.image(node.inputs[0])  # type: ignore[arg-type]
    return _negated(walk, image, node) if isinstance(image, Affine | Chain) else image  # type: ignore[return-value]


def _mul(walk: Walk, node: ir.Node) -> Image:
    sides = _sides(walk, node, "the carried value is multiplied with itself")
    if isinstance(sides, Unknown):
        return sides
    moving, other = sides
    if isinstance(moving, Chain) or moving.addends:
        return Unknown(Refusal("a sum is multiplied: distributing the product would round otherwise", node))
    if moving.factor is not None and moving.factor.value is not None:
        return Unknown(Refusal("two products in a row round twice, and joining them would round once", node))
    # (-1)*v times x is v times -x: the sign of a product is exact.
    return Affine(Term(other, moving.factor is not None and moving.factor.negated))


def _flag(walk: Walk, node: ir.Node) -> Image:
    sides = _sides(walk, node, f"both sides of {node.op_type} depend on the carried value")
    if isinstance(sides, Unknown):
        return sides
    if sides[0] != Affine():
        return Unknown(Refusal(f"{node.op_type} of what the carried value has become", node))
    return RunningFlag(node.op_type, sides[1])


def _where(walk: Walk, node: ir.Node) -> Image:
    """A choice, for all elements at once, between a value and what the carried value has become."""
    no_rule = Unknown(Refusal("the carried value goes through Where, which no rule follows", node))
    condition, *sides = node.inputs
    if condition is None or walk.image(condition) is not None or walk.types[condition].shape not in ((), (1,)):
        return no_rule
    images = [None if side is None else walk.image(side) for side in sides]
    for image in images:
        if isinstance(image, Unknown):
            return no_rule
    if sides[0] is None or sides[1] is None or (images[0] is None) == (images[1] is None):
        return no_rule
    when = images[0] is None
    moving, value = (images[1], sides[0]) if when else (images[0], sides[1])
    if not isinstance(moving, Affine) or moving.factor is not None:
        return no_rule
    dtype = walk.types[node.outputs[0]].dtype
    if moving.addends and (dtype is None or not dtype.is_integer()):
        return no_rule
    return Resets(condition, when, value, moving.addends)


def _copy(walk: Walk, node: ir.Node) -> Image:
    return walk.image(node.inputs[0])  # type: ignore[arg-type, return-value]


def _cast(walk: Walk, node: ir.Node) -> Image:
    before, after = walk.types[node.inputs[0]].dtype, walk.types[node.outputs[0]].dtype
    if before is None or before != after:
        return Unknown(Refusal("the carried value changes its type on the way", node))
    return _copy(walk, node)


def _reshape(walk: Walk, node: ir.Node) -> Image:
    if not walk.types[node.inputs[0]].same_shape(walk.types[node.outputs[0]]):
        return Unknown(Refusal(f"{node.op_type} changes the shape of the carried value", node))
    return _copy(walk, node)


TRANSFER: dict[str, Transfer] = {
    "Add": _add,
    "And": _flag,
    "Cast": _cast,
    "CastLike": _cast,
    "Expand": _reshape,
    "Flatten": _reshape,
    "Identity": _copy,
    "Mul": _mul,
    "Neg": _neg,
    "Or": _flag,
    "Reshape": _reshape,
    "Sub": _sub,
    "Sum": _add,
    "Where": _where,
    "Xor": _flag,
}
"""How an operator carries the symbol on; the same for every version of the operator in opsets 8 to 28.

Versions differ in broadcasting before opset 7 and in the types they accept, neither of which matters here."""


def evolution_of(carry: Carry, view: View, types: Types, dependence: Dependence, *, exact: bool = True) -> Evolution:
    """How a carry evolves from one iteration to the next.

    Args:
        carry: a carry of `view`.
        types: facts that include the view's body (`Types.with_body`).
        dependence: of the view's body.
        exact: False allows floating-point additions to be joined, which changes the last bits.
    """
    if source(carry.updated) is carry.previous:
        return Invariant()
    inner = continued(carry, dependence)
    if inner is not None:
        return inner
    cell = cell_state(carry, dependence, types)
    if cell is not None:
        return Unknown(cell) if isinstance(cell, Refusal) else cell
    image = Walk(carry, dependence, types, reassociate=not exact).image(carry.updated)
    if image is None:
        return Overwritten(carry.updated)
    if isinstance(image, Unknown):
        return image
    if isinstance(image, RunningFlag | Resets):
        return image
    if isinstance(image, Chain):
        return Additions(image.addends)
    if image.factor is not None:
        return LinearRecurrence(image.factor, image.addends)
    if not image.addends:
        return Invariant()
    if all(term.value is not None and dependence.invariant(term.value) for term in image.addends):
        return AddStep(image.addends)
    return PrefixSum(image.addends)


__all__ = [
    "AddStep",
    "Additions",
    "CellState",
    "Continued",
    "Evolution",
    "Invariant",
    "LinearRecurrence",
    "Overwritten",
    "PrefixSum",
    "Resets",
    "RunningFlag",
    "Term",
    "Unknown",
    "evolution_of",
    "label",
]

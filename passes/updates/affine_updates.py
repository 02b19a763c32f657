"""An update that is affine in its state, however it is written, as one product and one sum."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import drop_unused_nodes, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import made_by, source
from looplift.patterns.graph.view import Carry, View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import Unknown, evolution_of

Part = ir.Value | int
"""A value that does not depend on the state; the numbers 0, 1, -1 and their sums need no operator."""


@dataclasses.dataclass(frozen=True)
class AffineUpdates:
    """Rewrites ``v' = v + a*(x - v)`` as ``v' = (1 - a)*v + a*x``, and its like.

    Legal if
    1. as it stands, the update is no recurrence that is known;
    2. every operator between v and v' is Add, Sub, Mul or Neg, or Div of floats by what does not depend on v, and v is
       multiplied with nothing that depends on it;
    3. what v is multiplied with and what is added depend on no state whose evolution is unknown (the rewriting would
       be for nothing);
    4. v' is known to have the shape of v;
    5. v is of integers, whose arithmetic is a ring (modulo 2^n), or results may round differently;
    6. everything between v and v' has the element type of v, a signed one where something is negated.

    Preserves bits of integers. On floats it rounds elsewhere, and an infinite v stays infinite where infinities may
    have cancelled to NaN: it is done only where bits are not asked for.
    """

    exact: bool = True

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such update of the model in place; whether there was one."""
        return rewrite_loops(model, lambda view, types: self._rewrite(view, types, journal))

    def _rewrite(self, view: View, types: Types, journal: Journal) -> ir.Node | None:
        inner = types_inside(view, types)
        dependence = Dependence(view, inner)
        unknown = [
            carry
            for carry in view.carries
            if isinstance(evolution_of(carry, view, inner, dependence, exact=self.exact), Unknown)
        ]
        for carry in unknown:
            if self._may_round(carry, inner) and _write(carry, unknown, view, inner, dependence):
                journal.did(view.node, f"wrote the update of '{carry.previous.name}' as a product and a sum")
                return view.node
        return None

    def _may_round(self, carry: Carry, types: Types) -> bool:
        dtype = types[carry.previous].dtype
        return dtype is not None and (dtype.is_integer() or (dtype.is_floating_point() and not self.exact))


@dataclasses.dataclass(frozen=True)
class AffineForm:
    """``factor * v + addend``."""

    factor: Part
    addend: Part


def _write(carry: Carry, unknown: Sequence[Carry], view: View, types: Types, dependence: Dependence) -> bool:
    """Writes the update as a product and a sum, if it is affine and that helps."""
    last = source(carry.updated).producer()
    if last is None or last.graph is not view.body:
        return False
    if not types[carry.updated].same_shape(types[carry.previous]):
        return False
    emit = Emitter(view.opset, types)
    try:
        form = _Reader(carry, unknown, types, dependence, emit).form(source(carry.updated))
        moved = _product(emit, form.factor, carry.previous)
        updated = _sum(emit, moved, form.addend)
        if isinstance(moved, int) or isinstance(updated, int) or updated is carry.previous:
            raise Refused(Refusal("the state cancels out, or nothing else does", last))
    except Refused:
        emit.discard()
        return False
    emit.insert_before(last)
    replace_value(last.outputs[0], updated)
    drop_unused_nodes(view.body)
    return True


class _Reader:
    """Follows a state through the body; writes the factors and addends that it meets."""

    def __init__(
        self, carry: Carry, unknown: Sequence[Carry], types: Types, dependence: Dependence, emit: Emitter
    ) -> None:
        self._state, self._unknown = carry.previous, unknown
        self._types, self._dependence, self._emit = types, dependence, emit
        self._forms: dict[int, AffineForm] = {}

    def form(self, value: ir.Value) -> AffineForm:
        """The value in terms of the state.

        Raises:
            Refused: it is not affine.
        """
        for node in made_by([value], self._dependence.view.body):  # first what it is made of: a body may be deep
            for output in node.outputs:
                if id(output) not in self._forms and self._dependence.reaches(self._state, output):
                    self._forms[id(output)] = self._form(output)
        return self._operand(value)

    def _operand(self, value: ir.Value) -> AffineForm:
        return self._forms[id(value)] if id(value) in self._forms else self._form(value)

    def _form(self, value: ir.Value) -> AffineForm:
        if value is self._state:
            return AffineForm(1, 0)
        if not self._dependence.reaches(self._state, value):
            if any(self._dependence.reaches(carry.previous, value) for carry in self._unknown):
                raise Refused(Refusal("a factor or addend depends on a state that is not known", value.producer()))
            return AffineForm(0, value)
        node = value.producer()
        rule = RULES.get(node.op_type) if is_standard(node) else None
        if rule is None or node is None or self._types[value].dtype != self._types[self._state].dtype:
            raise Refused(Refusal("the state goes through what is not affine", node))
        operands = [self._operand(operand) for operand in node.inputs if operand is not None]
        return rule(self._emit, node, operands)


def _add(emit: Emitter, _: ir.Node, operands: Sequence[AffineForm]) -> AffineForm:
    return functools.reduce(
        lambda a, b: AffineForm(_sum(emit, a.factor, b.factor), _sum(emit, a.addend, b.addend)), operands
    )


def _subtract(emit: Emitter, node: ir.Node, operands: Sequence[AffineForm]) -> AffineForm:
    return _add(emit, node, [operands[0], _negate(emit, node, operands[1:])])


def _negate(emit: Emitter, _: ir.Node, operands: Sequence[AffineForm]) -> AffineForm:
    (one,) = operands
    return AffineForm(_negative(emit, one.factor), _negative(emit, one.addend))


def _multiply(emit: Emitter, node: ir.Node, operands: Sequence[AffineForm]) -> AffineForm:
    moving, other = sorted(operands, key=lambda one: isinstance(one.factor, int) and one.factor == 0)
    if not _is_number(other.factor, 0):
        raise Refused(Refusal("the state is multiplied with itself", node))
    return AffineForm(_product(emit, moving.factor, other.addend), _product(emit, moving.addend, other.addend))


def _divide(emit: Emitter, node: ir.Node, operands: Sequence[AffineForm]) -> AffineForm:
    moving, factor, divisor = operands[0], operands[1].factor, operands[1].addend
    if not isinstance(divisor, ir.Value) or not _is_number(factor, 0) or not _is_float(emit, divisor):
        raise Refused(Refusal("not every quotient is affine", node))
    inverse = emit.op("Div", [_number(emit, 1, like=divisor), divisor])
    return AffineForm(_product(emit, moving.factor, inverse), _product(emit, moving.addend, inverse))


def _copy(_: Emitter, __: ir.Node, operands: Sequence[AffineForm]) -> AffineForm:
    return operands[0]


RULES: dict[str, Callable[[Emitter, ir.Node, Sequence[AffineForm]], AffineForm]] = {
    "Add": _add,
    "Div": _divide,
    "Identity": _copy,
    "Mul": _multiply,
    "Neg": _negate,
    "Sub": _subtract,
    "Sum": _add,
}
"""What an operator makes of operands that are affine in the state."""


def _is_number(part: Part, number: int) -> bool:
    return isinstance(part, int) and part == number


def _is_float(emit: Emitter, value: ir.Value) -> bool:
    dtype = emit.type_of(value).dtype
    return dtype is not None and dtype.is_floating_point()


def _number(emit: Emitter, number: int, like: Part) -> ir.Value:
    dtype = emit.type_of(like).dtype if isinstance(like, ir.Value) else None
    if dtype is None or (number < 0 and not dtype.is_signed()):
        raise Refused(Refusal("a number of no known type"))
    return emit.tensor(ir.tensor(np.array(number).astype(dtype.numpy()), dtype=dtype))


def _sum(emit: Emitter, a: Part, b: Part) -> Part:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if _is_number(a, 0) or _is_number(b, 0):
        return b if _is_number(a, 0) else a
    return emit.op("Add", _values(emit, a, b))


def _product(emit: Emitter, a: Part, b: Part) -> Part:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if _is_number(a, 0) or _is_number(b, 0):
        return 0
    if _is_number(a, 1) or _is_number(b, 1):
        return b if _is_number(a, 1) else a
    if _is_number(a, -1) or _is_number(b, -1):
        return _negative(emit, b if _is_number(a, -1) else a)
    return emit.op("Mul", _values(emit, a, b))


def _values(emit: Emitter, a: Part, b: Part) -> list[ir.Value]:
    """Both as values; a number takes the other's type."""
    return [_number(emit, x, like=y) if isinstance(x, int) else x for x, y in ((a, b), (b, a))]


def _negative(emit: Emitter, a: Part) -> Part:
    if isinstance(a, int):
        return -a
    dtype = emit.type_of(a).dtype
    if dtype is None or not dtype.is_signed():
        raise Refused(Refusal("a negative of no signed type"))
    return emit.op("Neg", [a])

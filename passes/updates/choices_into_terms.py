"""A choice between two steps of a recurrence becomes one step with chosen terms."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import drop_unused_nodes, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refused
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry, View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import Affine, Term, Walk


@dataclasses.dataclass(frozen=True)
class ChoicesIntoTerms:
    """Rewrites ``v' = where(m, a*v + b, v)`` to ``v' = where(m, a, 1)*v + where(m, b, -0)``, and its like.

    Masked steps, as over padded sequences, are then linear recurrences.

    Legal if
    1. the carry is updated by a Where whose condition does not depend on the carry;
    2. each of its two values is the carry, multiplied at most once, then added to at most once, by what does not
       depend on the carry (`patterns.loops.evolution`);
    3. the element type is known, and signed if a term is negated; the opset has Where (9).

    The shapes broadcast to the same: the same tensors come together. Preserves bits: v*1 and v + -0 are v for every
    number, -0 and infinities among them (a NaN stays one), and the terms that are not chosen enter no operation but
    this sum. In ONNX Runtime too, whose Where takes 0 for some -0 (see `_chosen`).
    ``where(m, b, a*v)`` is not of this kind: 0*v + b is b only where v is finite.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such carry of the model in place; whether there was one."""
        return rewrite_loops(model, lambda view, types: _rewrite(view, types, journal))


@dataclasses.dataclass(frozen=True)
class Choice:
    """``where(condition, taken, other)`` as the update of a carry."""

    carry: Carry
    where: ir.Node
    condition: ir.Value
    taken: Affine
    other: Affine


def _rewrite(view: View, types: Types, journal: Journal) -> ir.Node | None:
    inner = types_inside(view, types)
    dependence = Dependence(view, inner)
    for carry in view.carries:
        choice = _choice(carry, view, inner, dependence)
        if choice is not None and _write(choice, view, inner):
            journal.did(view.node, f"chose the terms of '{carry.previous.name}' instead of its values")
            return view.node
    return None


def _choice(carry: Carry, view: View, types: Types, dependence: Dependence) -> Choice | None:
    node = source(carry.updated).producer()
    if not is_standard(node, "Where") or node.graph is not view.body:
        return None
    condition, taken, other = node.inputs
    if condition is None or taken is None or other is None or dependence.reaches(carry.previous, condition):
        return None
    walk = Walk(carry, dependence, types, reassociate=False)
    steps = walk.image(taken), walk.image(other)
    if not isinstance(steps[0], Affine) or not isinstance(steps[1], Affine):
        return None
    if steps[0] == steps[1] == Affine() or max(len(steps[0].addends), len(steps[1].addends)) > 1:
        return None
    return Choice(carry, node, condition, steps[0], steps[1])


def _write(choice: Choice, view: View, types: Types) -> bool:
    """Writes the step with chosen terms; False where the opset or the element type does not allow it."""
    dtype = types[choice.carry.previous].dtype
    negated = [term for image in (choice.taken, choice.other) for term in (image.factor, *image.addends) if term]
    if dtype is None or (not dtype.is_signed() and any(term.negated for term in negated)):
        return False
    emit = Emitter(view.opset, types)
    moved = choice.carry.previous
    try:
        if choice.taken.factor or choice.other.factor:
            factor = _chosen(choice, choice.taken.factor, choice.other.factor, 1.0, dtype, emit)
            moved = emit.op("Mul", [moved, factor])
        if choice.taken.addends or choice.other.addends:
            taken, other = (step.addends[0] if step.addends else None for step in (choice.taken, choice.other))
            moved = emit.op("Add", [moved, _chosen(choice, taken, other, -0.0, dtype, emit)])
    except Refused:
        emit.discard()
        return False
    emit.insert_before(choice.where)
    replace_value(choice.where.outputs[0], moved)
    drop_unused_nodes(view.body)
    return True


def _chosen(
    choice: Choice, taken: Term | None, other: Term | None, neutral: float, dtype: ir.DataType, emit: Emitter
) -> ir.Value:
    """The term of the value that is chosen.

    ONNX Runtime's Where (CPU, 1.32) takes 0 for a -0 of its second input, and makes ``where(not c, x, y)`` to
    ``where(c, y, x)``. So of floats the second input is a constant without one, and no Not is seen by it.
    """
    if not dtype.is_floating_point():
        return emit.op("Where", [choice.condition, *(_term(term, neutral, dtype, emit) for term in (taken, other))])
    if neutral != 0 and (taken is None or other is None):
        constant = _term(None, neutral, dtype, emit)
        told = emit.op("Equal", [choice.condition, emit.const(taken is None, np.bool_)])
        return emit.op("Where", [told, constant, _term(taken or other, neutral, dtype, emit)])
    terms = [_or_minus_zero(choice, term, dtype, emit, when) for term, when in ((taken, True), (other, False)) if term]
    return terms[0] if len(terms) == 1 else emit.op("Add", terms)


def _or_minus_zero(choice: Choice, term: Term, dtype: ir.DataType, emit: Emitter, when: bool) -> ir.Value:
    """The term where the condition is `when`, else -0, which changes nothing it is added to."""
    told = emit.op("Equal", [choice.condition, emit.const(not when, np.bool_)])
    zero = emit.tensor(ir.tensor(np.array(0).astype(dtype.numpy()), dtype=dtype))
    return emit.op("Neg", [emit.op("Where", [told, zero, _term(term.flipped(), 0.0, dtype, emit)])])


def _term(term: Term | None, neutral: float, dtype: ir.DataType, emit: Emitter) -> ir.Value:
    """A term as a value, the neutral number for none."""
    if term is None or term.value is None:
        number = -1.0 if term is not None and term.negated else 1.0 if term is not None else neutral
        return emit.tensor(ir.tensor(np.array(number).astype(dtype.numpy()), dtype=dtype))
    return emit.op("Neg", [term.value]) if term.negated else term.value

"""A choice between two steps of a recurrence becomes one step with chosen terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import copies, drop_unread_outputs, drop_unused_nodes, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.passes.updates.choices_without_branches import CHOSEN
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry, View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import Affine, Term, Walk
from looplift.patterns.loops.rows.appends import branches
from looplift.patterns.loops.speculation import Speculation, speculation
from looplift.patterns.loops.trip import trip_of

LARGEST = 16
"""Nodes of both branches together: both are computed then, so that they must cost less than the choice."""


@dataclasses.dataclass(frozen=True)
class ChoicesIntoTerms:
    """Rewrites ``v' = where(m, a*v + b, v)`` to ``v' = where(m, a, 1)*v + where(m, b, -0)``, and its like.

    Masked steps, as over padded sequences, are then linear recurrences; so are steps that an If chooses.

    Legal if
    1. the carry is updated by a Where, or by an If, whose condition does not depend on the carry; the nodes in the
       branches are few, can't fail where they are not chosen (`patterns.loops.speculation`) nor are to stay there, and
       both branches give the shape of the carry;
    2. each of its two values is the carry, multiplied at most once, then added to at most once, by what does not
       depend on the carry (`patterns.loops.evolution`);
    3. the element type is known, and signed if a term is negated; the opset has Where (9), and for an If every engine
       has it for this type (`CHOSEN`).

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
    """``condition ? taken : other`` as the update of a carry; `node` is what chooses."""

    carry: Carry
    node: ir.Node
    condition: ir.Value
    taken: Affine
    other: Affine


def _rewrite(view: View, types: Types, journal: Journal) -> ir.Node | None:
    inner = types_inside(view, types)
    dependence = Dependence(view, inner)
    for carry in view.carries:
        node = source(carry.updated).producer()
        if is_standard(node, "Where") and node.graph is view.body and all(value is not None for value in node.inputs):
            choice = _choice(carry, node, [value for value in node.inputs if value is not None], dependence, inner)
        elif is_standard(node, "If") and node.graph is view.body and not journal.keeps_inside(node):
            choice = _choice_of_branches(carry, node, view, inner)
        else:
            continue
        if choice is not None and _write(choice, view, inner):
            journal.did(view.node, f"chose the terms of '{carry.previous.name}' instead of its values")
            return view.node
    return None


def _choice(
    carry: Carry, node: ir.Node, parts: Sequence[ir.Value], dependence: Dependence, types: Types
) -> Choice | None:
    condition, taken, other = parts
    if dependence.reaches(carry.previous, condition):
        return None
    walk = Walk(carry, dependence, types, reassociate=False)
    steps = walk.image(taken), walk.image(other)
    if not all(isinstance(step, Affine) for step in steps):
        return None
    if steps[0] == steps[1] == Affine() or any(len(step.addends) > 1 for step in steps if isinstance(step, Affine)):
        return None
    assert isinstance(steps[0], Affine)
    assert isinstance(steps[1], Affine)
    return Choice(carry, node, condition, steps[0], steps[1])


def _choice_of_branches(carry: Carry, node: ir.Node, view: View, types: Types) -> Choice | None:
    """The choice that an If makes, its branches computed beside it; if it is none, nothing of that is left."""
    trip, condition, k = trip_of(view, types), node.inputs[0], source(carry.updated).index() or 0
    state = types[carry.previous]
    if isinstance(trip, Refusal) or condition is None or state.shape is None or None in state.shape:
        return None
    if state.dtype not in CHOSEN:
        return None
    results = [branch.outputs[k] for _, branch in reversed(branches(node))]
    always = Speculation((), types)
    for taken, result in zip((True, False), results, strict=True):
        more = speculation([result], ((node, taken),), view, always.types, trip)
        if isinstance(more, Refusal) or not more.types[result].same_shape(state):
            return None
        always = Speculation((*always.nodes, *more.nodes), more.types)
    if len(always.nodes) > LARGEST:
        return None
    copied = copies(always.nodes, node)
    known = always.types
    for old, new in copied.items():
        known = known.with_value(new, always.types[old])
    emit = Emitter(view.opset, known)
    parts = [emit.op("Reshape", [condition, emit.const([])]), *(copied.get(value, value) for value in results)]
    emit.insert_before(node)
    choice = _choice(carry, node, parts, Dependence(view, known), known)
    if choice is None:
        drop_unused_nodes(view.body)
    return choice


def _write(choice: Choice, view: View, types: Types) -> bool:
    """Writes the step with chosen terms; False where the opset or the element type does not allow it."""
    dtype = types[choice.carry.previous].dtype
    negated = [term for image in (choice.taken, choice.other) for term in (image.factor, *image.addends) if term]
    if dtype is None or (not dtype.is_signed() and any(term.negated for term in negated)):
        drop_unused_nodes(view.body)
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
        drop_unused_nodes(view.body)
        return False
    emit.insert_before(choice.node)
    replace_value(source(choice.carry.updated), moved)
    if choice.node.op_type == "If":
        drop_unread_outputs(choice.node)
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

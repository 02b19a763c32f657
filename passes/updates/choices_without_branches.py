"""An If in a loop's body whose branches are a few cheap operators becomes a Where."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import remove_node, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import rewrite_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant, scalar
from looplift.patterns.graph.operators import TRAITS, Trait, has, has_references, is_standard
from looplift.patterns.graph.speculatable import is_total
from looplift.patterns.graph.types import TensorType, Types, infer_node
from looplift.patterns.graph.values import behind, source
from looplift.patterns.graph.view import View

LARGEST = 16
"""Nodes of both branches together. Where computes both, so that they must cost less than the choice."""

SMALL = 64
"""Elements of a result that is computed whether it is wanted or not."""

OLDEST = 9
"""Opset of Where."""

CHOSEN = frozenset(ir.DataType[name] for name in "FLOAT DOUBLE INT8 INT32 INT64 UINT8 UINT32 STRING".split())
"""Element types that ONNX Runtime's Where takes as they are; float16 it would not round on the way."""

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})

CHEAP = (
    (TRAITS[Trait.SPECULATABLE] & TRAITS[Trait.ELEMENTWISE])
    | TRAITS[Trait.RESHAPES]
    | {"Cast", "Constant", "Div", "Gather"}
)


@dataclasses.dataclass(frozen=True)
class ChoicesWithoutBranches:
    """Rewrites ``if c: v = p else: v = q`` in the body of a loop to ``v = where(c, p, q)``.

    Legal if
    1. no node of either branch can fail (`patterns.graph.speculatable`), so that both may be computed;
    2. each result has, for certain, one shape in both branches, and one element type: one that Where takes in
       every engine (`CHOSEN`), or truth values of which one is a constant;
    3. the condition is one boolean, which an If demands;
    4. a carry is updated by a result, or all results are booleans, as where ``while a and b`` skips b, or have no more
       than `SMALL` elements: other choices may skip work that is worth skipping;
    5. of two floats, one is never -0 for certain: it becomes Where's second input, from which ONNX Runtime (CPU,
       1.32) takes 0 where it should take -0; and the condition is the result of no Not, with which it exchanges them;
    6. both branches together have no more than `LARGEST` nodes, all of them cheap, and no initializers, and name no
       attribute of a function; the opset has Where (9);
    7. neither the If nor a node in it is kept, lest an engine round differently (`Journal.keeps`).

    Preserves bits: one of two values is taken as it is.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such If of the model in place; whether there was one."""
        return rewrite_loops(model, lambda view, types: _rewrite(view, types, journal))


def _rewrite(view: View, types: Types, journal: Journal) -> ir.Node | None:
    if view.opset < OLDEST:
        return None
    inner = types_inside(view, types)
    updates = {source(carry.updated).producer() for carry in view.carries}
    for node in view.body:
        if not is_standard(node, "If"):
            continue
        wanted = node in updates or all(_is_small(inner[output]) for output in node.outputs)
        if wanted and not journal.keeps_inside(node) and _is_cheap(node) and _agrees(node, inner, view.opset):
            _write(node, view.opset)
            journal.did(view.node, "computed both branches of a choice and took one of the results")
            return view.node
    return None


def _is_small(fact: TensorType) -> bool:
    """Whether computing the value costs less than choosing it."""
    known = fact.shape is not None and all(isinstance(dim, int) for dim in fact.shape)
    few = known and math.prod(dim for dim in fact.shape or () if isinstance(dim, int)) <= SMALL
    return fact.dtype == ir.DataType.BOOL or few


def _branches(node: ir.Node) -> tuple[ir.Graph, ir.Graph]:
    return node.attributes["then_branch"].as_graph(), node.attributes["else_branch"].as_graph()


def _is_cheap(node: ir.Node) -> bool:
    if has_references(node):
        return False
    inside = [inner for branch in _branches(node) for inner in branch]
    plain = all(inner.op_type in CHEAP and is_standard(inner) for inner in inside)
    return plain and len(inside) <= LARGEST and not any(branch.initializers for branch in _branches(node))


def _agrees(node: ir.Node, types: Types, opset: int) -> bool:
    """Whether no node can fail and the branches' results have the same types."""
    facts = []
    for branch in _branches(node):
        known = types
        for inner in branch:
            if not is_total(inner, known, opset):
                return False
            for output, fact in zip(inner.outputs, infer_node(inner, known, opset), strict=True):
                known = known.with_value(output, fact)
        facts.append([known[value] for value in branch.outputs])
    same = all(left.dtype == right.dtype and left.same_shape(right) for left, right in zip(*facts, strict=True))
    results = zip(*(branch.outputs for branch in _branches(node)), strict=True)
    return same and all(
        (fact.dtype in CHOSEN and (fact.dtype not in FLOATS or any(never_minus_zero(x, opset) for x in pair)))
        or (fact.dtype == ir.DataType.BOOL and any(isinstance(scalar(x, opset), bool) for x in pair))
        for fact, pair in zip(facts[0], results, strict=True)
    )


def never_minus_zero(value: ir.Value, opset: int) -> bool:
    """Whether no element is -0 for certain: a constant without one, or a sum with such a term.

    Rounding to nearest, a sum is -0 only where both terms are (IEEE 754, 6.3).
    """
    return any(_has_no_minus_zero(part, opset) for part in behind(value, lambda part: _terms(part, opset)))


def _has_no_minus_zero(value: ir.Value, opset: int) -> bool:
    array, node = constant(value, opset), value.producer()
    if array is not None:
        return array.dtype.kind != "f" or not bool(((array == 0) & np.signbit(array)).any())
    return is_standard(node, "Abs", "Exp")


def _terms(value: ir.Value, opset: int) -> Sequence[ir.Value | None]:
    """What is added up to the value, any of which keeps it from being -0."""
    node = value.producer() if constant(value, opset) is None else None
    adds = is_standard(node, "Identity", "Add", "Sum")
    return node.inputs if node is not None and adds else ()


def _write(node: ir.Node, opset: int) -> None:
    taken, other = (list(branch.outputs) for branch in _branches(node))
    for branch in _branches(node):
        branch.outputs.clear()
        for inner in list(branch):
            branch.remove(inner)
            node.prepend(inner)
    emit = Emitter(opset, Types())
    condition = emit.op("Reshape", [node.inputs[0], emit.const([])])
    chosen = [_chosen(condition, left, right, emit) for left, right in zip(taken, other, strict=True)]
    emit.insert_before(node)
    for output, value in zip(node.outputs, chosen, strict=True):
        replace_value(output, value)
    remove_node(node)


def _chosen(condition: ir.Value, taken: ir.Value, other: ir.Value, emit: Emitter) -> ir.Value:
    """``condition ? taken : other``; in logical operators where one of the two is a truth value."""
    left, right = (scalar(value, emit.opset) for value in (taken, other))
    if isinstance(right, bool):
        return emit.op("Or", [emit.op("Not", [condition]), taken]) if right else emit.op("And", [condition, taken])
    if isinstance(left, bool):
        return emit.op("Or", [condition, other]) if left else emit.op("And", [emit.op("Not", [condition]), other])
    exchange = not never_minus_zero(taken, emit.opset) and never_minus_zero(other, emit.opset)
    if exchange or any(_is_negation(part) for part in behind(condition, _copied)):
        condition = emit.op("Equal", [condition, emit.const(not exchange, np.bool_)])
    return emit.op("Where", [condition, *((other, taken) if exchange else (taken, other))])


def _is_negation(value: ir.Value) -> bool:
    node = value.producer()
    return is_standard(node, "Not")


def _copied(value: ir.Value) -> Sequence[ir.Value | None]:
    """What the value is a copy of, if it is one that passes or engines take out."""
    node = value.producer()
    copies = has(node, Trait.RESHAPES)
    return node.inputs[:1] if node is not None and copies else ()

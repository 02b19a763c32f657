"""A body's expression written outside the loop, as it is in one certain iteration."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.numbering import kind_of
from looplift.patterns.graph.operators import Trait, has
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.speculatable import is_total
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import defined_in, has_subgraphs, source
from looplift.patterns.graph.view import LoopView
from looplift.patterns.loops.induction import Motions, Progression

Given = Mapping[int, ir.Value]
"""Outer values that stand for body values, by the identity of the latter."""


def first_iteration(view: LoopView, emitter: Emitter) -> Given:
    """What the body's inputs are in the first iteration."""
    given = {id(carry.previous): carry.initial for carry in view.carries}
    given[id(view.iteration)] = emitter.const(0)
    given[id(view.condition_in)] = emitter.const(True, dtype=np.bool_)
    return given


def before_first_iteration(motions: Motions, emitter: Emitter) -> Given:
    """What the updated counters would have been after an iteration before the first: the initial values.

    Nothing stands for the other values that change, so that expressions which read them are refused.
    """
    view = motions.view
    given = {id(view.condition_in): emitter.const(True, dtype=np.bool_)}
    for carry in view.carries:
        if motions.fixed(carry.previous):
            given[id(carry.previous)] = carry.initial
        elif isinstance(motions.of(carry.previous), Progression):
            rivals = [other for other in view.carries if source(other.updated) is source(carry.updated)]
            if len(rivals) == 1:
                given[id(source(carry.updated))] = carry.initial
    return given


def replay(value: ir.Value, given: Given, view: LoopView, types: Types, emitter: Emitter) -> ir.Value | Refusal:
    """The value outside the loop, with `given` in the place of body values.

    Refused where it reads a body value that nothing stands for, or needs a node that can fail: the loop might run no
    iteration, and then does not run the node. Reshapes of one element are left out.
    """
    done = dict(given)

    def outside(inner: ir.Value) -> ir.Value | Refusal:
        if id(inner) not in done:
            written = written_outside(inner)
            if isinstance(written, Refusal):
                return written
            done[id(inner)] = written
        return done[id(inner)]

    def written_outside(inner: ir.Value) -> ir.Value | Refusal:
        if not defined_in(inner, view.body):
            return inner
        array, node = constant(inner, view.opset), inner.producer()
        if array is not None:
            return emitter.const(array)
        if node is None:
            return Refusal(f"the exit test reads '{inner.name}' of the iteration itself", view.node)
        copied = has(node, Trait.RESHAPES)
        if copied and node.inputs[0] is not None and types[node.inputs[0]].shape in ((), (1,)):
            return outside(node.inputs[0])
        if not is_total(node, types, view.opset) or has_subgraphs(node):
            return Refusal(f"{node.op_type} in the exit test might fail, where the loop runs no iteration", node)
        inputs = [None if operand is None else outside(operand) for operand in node.inputs]
        refused = next((operand for operand in inputs if isinstance(operand, Refusal)), None)
        if refused is not None:
            return refused
        operands = [None if isinstance(operand, Refusal) else operand for operand in inputs]
        copy = ir.node(node.op_type, operands, attributes=dict(node.attributes), num_outputs=len(node.outputs))
        return emitter.add(copy).outputs[list(node.outputs).index(inner)]

    return outside(value)


def same(left: ir.Value, right: ir.Value, opset: int) -> bool:
    """Whether two values are equal for certain: one value, equal constants of one element, or the same op of such."""
    left, right = source(left), source(right)
    if left is right:
        return True
    one, other = constant(left, opset), constant(right, opset)
    if one is not None and other is not None:
        return one.dtype == other.dtype and one.size == other.size == 1 and one.tobytes() == other.tobytes()
    one_node, other_node = left.producer(), right.producer()
    if one_node is None or other_node is None or left.index() != right.index():
        return False
    kind, pairs = kind_of(one_node), list(zip_longest(one_node.inputs, other_node.inputs))
    return (
        kind is not None
        and kind == kind_of(other_node)
        and all(x is y or (x is not None and y is not None and same(x, y, opset)) for x, y in pairs)
    )

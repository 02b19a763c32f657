"""Small rewrites around recurrence nodes, as onnxscript rewrite rules. All preserve bits."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult, RewriteRule, RewriteRuleClassBase

from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.own_nodes import flag
from looplift.runtime.ops import DOMAIN

FINAL, STACK = 0, 1


def _opset(context: MatchContext) -> int:
    version: int = context.model.opset_imports.get("", 1)
    return version


def _states_after(value: ir.Value | None) -> ir.Node | None:
    """The recurrence node whose stack of states after each step this value is, in order of time."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.domain != DOMAIN or value.index() != STACK:
        return None
    return None if flag(node, "emit_previous") or flag(node, "reverse") else node


class LastState(RewriteRuleClassBase):
    """``Gather(states, -1)`` is the final state.

    Legality: (1) the stack holds the states after each step, in order of time; (2) the index is the constant
    scalar -1 on axis 0. A loop without an iteration has no last state: there the Gather fails, and the final state
    is the initial one. An error becomes a result.
    """

    def pattern(self, op: Any, states: Any, index: Any) -> Any:
        """What the rule looks for."""
        return op.Gather(states, index, _allow_other_attributes=True, _outputs=["last"])

    def check(self, context: MatchContext, states: ir.Value, index: ir.Value, last: ir.Value) -> MatchResult:
        """The conditions in the docstring of the class."""
        result = MatchResult()
        axis = last.producer().attributes.get_int("axis", 0)  # type: ignore[union-attr]
        array = constant(index, _opset(context))
        if _states_after(states) is None:
            return result.fail("not the states of a recurrence after each step", states)
        if array is None or array.shape != () or int(array) != -1 or axis != 0:
            return result.fail("not the last row", index)
        return result

    def rewrite(self, op: Any, states: ir.Value, index: ir.Value, last: ir.Value) -> Any:
        """What stands there instead."""
        node = states.producer()
        assert node is not None
        final = node.outputs[FINAL]
        final.name = final.name or None  # it may have been left out so far
        return op.Identity(final)


class FirstStates(RewriteRuleClassBase):
    """``Slice(states of AddStep, 0, k)`` are the states of at most k steps.

    Legality: (1) one slice from 0 to a constant k >= 0 along axis 0, by step 1; (2) nobody else reads the node, its
    final state among them; (3) the first rows do not depend on later ones, so the node may stop after them. A
    growing state under ``emit_previous`` fails or not as before unless k < 2: such nodes are left.
    """

    def pattern(self, op: Any, states: Any, starts: Any, ends: Any, axes: Any) -> Any:
        """What the rule looks for."""
        return op.Slice(states, starts, ends, axes)

    def check(
        self, context: MatchContext, states: ir.Value, starts: ir.Value, ends: ir.Value, axes: ir.Value
    ) -> MatchResult:
        """The conditions in the docstring of the class."""
        result, opset = MatchResult(), _opset(context)
        node = states.producer()
        if opset < 12:
            return result.fail("Min of integers needs opset 12")
        if _states_after(states) is None or node is None or node.op_type != "AddStep":
            return result.fail("not the states of an AddStep after each step", states)
        if len(states.uses()) != 1 or states.is_graph_output() or node.outputs[FINAL].uses():
            return result.fail("the other states are read too", states)
        if node.outputs[FINAL].is_graph_output():
            return result.fail("the final state is returned", states)
        found = [constant(value, opset) for value in (starts, ends, axes)]
        if any(array is None or array.shape != (1,) for array in found):
            return result.fail("the slice is not constant", starts)
        start, end, axis = (int(array[0]) for array in found if array is not None)
        return result if (start, axis) == (0, 0) and end >= 0 else result.fail("not the first rows", starts)

    def rewrite(self, op: Any, states: ir.Value, starts: ir.Value, ends: ir.Value, axes: ir.Value) -> Any:
        """What stands there instead."""
        node = states.producer()
        assert node is not None
        limit, *others = node.inputs
        fewer = op.Min(limit, ends)
        _, first = op.AddStep(fewer, *others, emit_previous=0, _domain=DOMAIN, _outputs=2)
        return first


def peephole_rules() -> list[RewriteRule]:
    """The rules of this file, for use with onnxscript's rewriter."""
    return [rule.rule() for rule in (LastState, FirstStates)]  # type: ignore[no-untyped-call]

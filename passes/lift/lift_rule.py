"""The lift as an onnxscript rewrite rule, for those who have a rule set of their own.

onnxscript's patterns name an operator's inputs and outputs one by one and can't look into a body, so this rule
brings its own match. The other passes do not run: a loop is lifted as it stands.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchResult, RewriteRule, RewriteRuleSet

from looplift.passes.lift.lift_recurrences import Attempt, used_ports
from looplift.passes.lift.peephole_rules import peephole_rules
from looplift.passes.opsets import unread
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import graph_types
from looplift.patterns.graph.view import is_any_loop, view_of
from looplift.patterns.loops.trip import trip_of
from looplift.runtime.ops import DOMAIN, VERSION, all_ops


class LiftRule(RewriteRule):
    """Replaces a Loop or Scan that is a known recurrence; same conditions as `LiftRecurrences`.

    Args:
        exact: False allows floating-point additions of one iteration to be joined.
    """

    def __init__(self, exact: bool = True) -> None:
        super().__init__(lambda op, x: op.Loop(x), lambda op, x: x, name="looplift")
        self._exact = exact

    def try_rewrite(
        self,
        model: ir.Model,
        graph_or_function: ir.Graph | ir.Function,
        node: ir.Node,
        *,
        verbose: int | None = None,
        tracer: Any = None,
    ) -> Any:
        """The nodes that stand for the loop, or None; the definitions of our ops are added to the model."""
        if not is_any_loop(node) or getattr(graph_or_function, "domain", None) == DOMAIN:
            return None
        opset = (graph_or_function.opset_imports or model.opset_imports).get("", 1)
        if unread(opset) is not None:
            return None
        view = view_of(node, opset)
        types = graph_types(graph_or_function, opset)
        trip = view if isinstance(view, Refusal) else trip_of(view, types)
        if isinstance(view, Refusal) or isinstance(trip, Refusal):
            return None
        attempt = Attempt(view, trip, types, exact=self._exact)
        if attempt.make(used_ports(view)) or tracer is not None:
            attempt.emit.discard()
            return None
        _define(model, attempt.emit.nodes, view.opset)
        return _replacement(node, attempt)


def _define(model: ir.Model, nodes: list[ir.Node], opset: int) -> None:
    for op_type in {node.op_type for node in nodes if node.domain == DOMAIN}:
        definition = ir.serde.deserialize_function(all_ops()[op_type].definition(opset))
        model.functions[definition.identifier()] = definition
        model.graph.opset_imports[DOMAIN] = VERSION


def _replacement(node: ir.Node, attempt: Attempt) -> Any:
    from onnxscript.rewriter._rewrite_rule import ReplacementSubgraph

    match = MatchResult()
    match.add_node(node)
    match.outputs.extend(old for old, _ in attempt.replacements)
    outputs = [new for _, new in attempt.replacements]
    return ReplacementSubgraph(match, outputs, attempt.emit.nodes, [], set())


def rules(exact: bool = True) -> RewriteRuleSet:
    """The lift and the peepholes behind it, as rules for onnxscript's rewriter.

    Example: ``RewriteRuleSet([*mine, *looplift.rules()]).apply_to_model(model)``.
    """
    return RewriteRuleSet([LiftRule(exact), *peephole_rules()])

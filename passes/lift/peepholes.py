"""Runs the small rewrites around recurrence nodes (see `peephole_rules`) over a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from looplift.passes.journal import Journal
from looplift.patterns.graph.walk import GraphLike, places

if TYPE_CHECKING:
    from onnxscript.rewriter import RewriteRule


_ENDS = frozenset({"Gather", "Slice"})
"""The operators with which the patterns end: a rule takes its time even to say that it does not match."""


class Peepholes:
    """Runs the rules in every graph of a model."""

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Applies the rules until none matches; returns whether any did."""
        del journal
        from looplift.passes.lift.peephole_rules import peephole_rules  # onnxscript is slow to import

        rules = peephole_rules()
        changed = False
        for place in list(places(model)):
            for node in list(place.graph):
                if node.op_type in _ENDS:
                    changed |= any(_apply(rule, model, place.graph, node) for rule in rules)
        return changed


def _apply(rule: RewriteRule, model: ir.Model, graph: GraphLike, node: ir.Node) -> bool:
    if node.graph is None:
        return False
    replacement = rule.try_rewrite(model, graph, node)
    if replacement is None:
        return False
    ir.convenience.replace_nodes_and_values(
        graph, node, replacement.match.nodes, replacement.new_nodes, replacement.match.outputs, replacement.new_outputs
    )
    return True

"""What stands in the branches of a choice and may be computed in every iteration, whatever is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import onnx_ir as ir

from looplift.patterns.graph.refusal import Refusal, label
from looplift.patterns.graph.speculatable import is_total
from looplift.patterns.graph.types import Types, infer_node
from looplift.patterns.graph.values import has_subgraphs, made_by
from looplift.patterns.graph.view import View
from looplift.patterns.loops.rows.appends import Path
from looplift.patterns.loops.rows.reads import row_read
from looplift.patterns.loops.trip import Trip


@dataclasses.dataclass(frozen=True)
class Speculation:
    """Nodes of branches, in an order in which they can be computed, and the types of a body that computes them."""

    nodes: tuple[ir.Node, ...]
    types: Types


def speculation(values: Iterable[ir.Value], path: Path, view: View, types: Types, trip: Trip) -> Speculation | Refusal:
    """How to compute, before the outermost choice of a path, values that stand in the branches along it.

    No node may fail where the model would not have run it (`patterns.graph.speculatable`); a row of a tensor that has
    one for each iteration is there for certain.

    Args:
        values: made in the branches, or before them.
        path: the branches.
        view: the loop in whose body they stand.
        types: what is known in the body.
        trip: how often the loop runs.
    """
    wanted, nodes = list(values), list[ir.Node]()
    for choice, taken in reversed(path):
        branch = choice.attributes["then_branch" if taken else "else_branch"].as_graph()
        made = made_by(wanted, branch)
        wanted += [value for node in made for value in node.inputs if value is not None]
        if any(value.graph is branch and value.producer() is None for value in wanted):
            return Refusal("a branch has values of its own that no node makes", choice)
        nodes[:0] = made
    for node in nodes:
        known = is_total(node, types, view.opset) or _reads_row(node, view, types, trip)
        if not known or has_subgraphs(node):
            return Refusal(f"{label(node)} could fail where it is not chosen", node)
        for output, fact in zip(node.outputs, infer_node(node, types, view.opset), strict=True):
            types = types.with_value(output, fact)
    return Speculation(tuple(nodes), types)


def _reads_row(node: ir.Node, view: View, types: Types, trip: Trip) -> bool:
    read = row_read(node, view, types)
    return read is not None and trip.extent is not None and read.order(trip.extent, types) is not None

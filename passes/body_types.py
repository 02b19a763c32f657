"""Types around a loop: facts about the bodies of the loops that enclose it, not what those bodies declare."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.walk import GraphLike
from looplift.patterns.proof import Refusal
from looplift.patterns.row_cuts import row_cuts
from looplift.patterns.trip import trip_of
from looplift.patterns.types import Types
from looplift.patterns.values import subgraphs
from looplift.patterns.view import View, is_loop, is_scan, view_of
from looplift.runtime.ops import DOMAIN


def types_inside(view: View, types: Types) -> Types:
    """These facts and those of a loop's body, in which slices that are proven to cut one row do."""
    trip = trip_of(view, types)
    return types.with_body(view) if isinstance(trip, Refusal) else row_cuts(view, types, trip, certain=True)[1]


def types_around(model: ir.Model, node: ir.Node) -> Types:
    """The types that hold where `node` stands: of the bodies of all loops around it, from the outermost in."""
    types = Types()
    for outer, opset in _enclosing(model, node):
        if is_loop(outer) or is_scan(outer):
            view = view_of(outer, opset)
            if not isinstance(view, Refusal):
                types = types_inside(view, types)
    return types


def _enclosing(model: ir.Model, node: ir.Node) -> list[tuple[ir.Node, int]]:
    roots: list[tuple[GraphLike, int]] = [(model.graph, model.opset_imports.get("", 1))]
    for function in model.functions.values():
        if function.domain != DOMAIN:
            roots.append((function, function.opset_imports.get("", model.opset_imports.get("", 1))))
    for root, opset in roots:
        path = _path(root, node)
        if path is not None:
            return [(outer, opset) for outer in path]
    return []


def _path(graph: GraphLike, target: ir.Node) -> list[ir.Node] | None:
    """The nodes whose inner graphs lead to `target`, outermost first; None if it is not inside."""
    for node in graph:
        if node is target:
            return []
        for inner in subgraphs(node):
            path = _path(inner, target)
            if path is not None:
                return [node, *path]
    return None

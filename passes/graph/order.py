"""The order of nodes: each behind what it reads, and behind what the graphs in it read.

ONNX asks for it, ONNX Runtime's loader does not, and its quantizer leaves models without it.
"""

from __future__ import annotations

import graphlib

import onnx_ir as ir

from looplift.patterns.graph.values import reads, subgraphs
from looplift.patterns.graph.walk import node_name
from looplift.runtime.errors import LoopliftError

Root = ir.Graph | ir.Function


def sort(model: ir.Model) -> None:
    """Sorts the nodes of every graph and function of the model, in place; where two may stand either way, they stay.

    Raises:
        LoopliftError: nodes read one another in a cycle.
    """
    for root in _roots(model):
        try:
            root.sort()
        except ValueError as error:
            raise LoopliftError(f"nodes read one another in a cycle{_cycle(root)}; export the model again") from error


def _roots(model: ir.Model) -> list[Root]:
    return [model.graph, *model.functions.values()]


def _cycle(root: Root) -> str:
    """One node of a cycle in a graph or the graphs in it, in words."""
    work: list[Root] = [root]
    while work:
        graph = work.pop()
        makers = {node: {value.producer() for value in reads(node)} for node in graph}
        try:
            graphlib.TopologicalSorter({node: found & makers.keys() for node, found in makers.items()}).prepare()
        except graphlib.CycleError as error:
            node = error.args[1][0]
            return f" through {node.op_type} {node_name(node)!r}"
        work += [inner for node in graph for inner in subgraphs(node)]
    return ""


def require_sorted(model: ir.Model) -> None:
    """Refuses a model of the IR that is not sorted: it is not ours to change, and can't be copied as it is.

    Raises:
        LoopliftError: a node stands before one whose value it, or a graph in it, reads.
    """
    for root in _roots(model):
        node = _ahead(root, set())
        if node is not None:
            where = f"{node.op_type} {node_name(node)!r}"
            raise LoopliftError(f"{where} stands before a node that it reads; sort the graph first (graph.sort())")


def _ahead(graph: Root, made: set[ir.Node]) -> ir.Node | None:
    """The first node of the graph, or of graphs in it, that reads what nothing before it makes."""
    for node in graph:
        inside = next(filter(None, (_ahead(inner, made) for inner in subgraphs(node))), None)
        if inside is not None:
            return inside
        if any(value.producer() not in made for value in node.inputs if value is not None and value.producer()):
            return node
        made.add(node)
    return None

"""Where the loops of a model are: every graph, its path, its opset; innermost first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import onnx_ir as ir

from looplift.patterns.graph.own_nodes import DOMAIN
from looplift.patterns.graph.values import subgraphs
from looplift.patterns.graph.view import is_loop, is_scan

GraphLike = ir.Graph | ir.Function
_FROZEN = "looplift.frozen"


@dataclasses.dataclass(frozen=True)
class Place:
    """A graph (or a function's body) in a model.

    Attributes:
        graph: the graph or function.
        path: such as ``/``, ``/cond:then_branch``, ``/loop:body`` or ``function domain::name``.
        opset: version of the default domain in force there.
    """

    graph: GraphLike
    path: str
    opset: int


def node_name(node: ir.Node) -> str:
    """The node's name, or its first output's where it has none."""
    return node.name or next((output.name for output in node.outputs if output.name), None) or node.op_type


def places(model: ir.Model) -> Iterator[Place]:
    """Every graph of the model, inner ones before the ones around them; our own definitions are left out."""
    yield from _inside(model.graph, "/", model.opset_imports.get("", 1))
    for function in model.functions.values():
        if function.domain != DOMAIN:
            opset = function.opset_imports.get("", model.opset_imports.get("", 1))
            yield from _inside(function, f"function {function.domain}::{function.name}", opset)


def _inside(graph: GraphLike, path: str, opset: int) -> Iterator[Place]:
    for node in list(graph):
        for name, inner in _named_subgraphs(node):
            yield from _inside(inner, f"{path.rstrip('/')}/{node_name(node)}:{name}", opset)
    yield Place(graph, path, opset)


def _named_subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.name, attribute.as_graph()
        elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
            yield from ((f"{attribute.name}[{k}]", g) for k, g in enumerate(attribute.as_graphs()))


def every_loop(model: ir.Model) -> list[tuple[ir.Node, Place]]:
    """Every Loop and Scan with its place, innermost first. Gathered before anything is changed."""
    return [(node, place) for place in places(model) for node in place.graph if is_loop(node) or is_scan(node)]


def loops(model: ir.Model) -> list[tuple[ir.Node, Place]]:
    """Every Loop and Scan that passes may change, as `every_loop`."""
    return [(node, place) for node, place in every_loop(model) if not is_frozen(node)]


def freeze(node: ir.Node) -> None:
    """Lets no pass change this loop's ports, nor the nodes of its body. Inner loops may be lifted all the same."""
    node.meta[_FROZEN] = True


def is_frozen(node: ir.Node) -> bool:
    """Whether the loop is to stay as it is (see `freeze`)."""
    return _FROZEN in node.meta


__all__ = [
    "GraphLike",
    "Place",
    "every_loop",
    "freeze",
    "is_frozen",
    "loops",
    "node_name",
    "places",
    "subgraphs",
]

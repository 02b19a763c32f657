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
    """The graphs in this one, then itself; generators that call themselves would hand each on through every level."""
    around: list[tuple[GraphLike, str, Iterator[tuple[ir.Graph, str]]]] = [(graph, path, _held(graph, path))]
    while around:
        here, its_path, held = around[-1]
        inner = next(held, None)
        if inner is None:
            around.pop()
            yield Place(here, its_path, opset)
        else:
            around.append((*inner, _held(*inner)))


def _held(graph: GraphLike, path: str) -> Iterator[tuple[ir.Graph, str]]:
    """The graphs among the attributes of this one's nodes, with their paths."""
    for node in list(graph):
        for attribute in node.attributes.data.values():
            kind = attribute.type
            if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
                yield attribute.as_graph(), f"{path.rstrip('/')}/{node_name(node)}:{attribute.name}"
            elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
                for k, inner in enumerate(attribute.as_graphs()):
                    yield inner, f"{path.rstrip('/')}/{node_name(node)}:{attribute.name}[{k}]"


def every_loop(model: ir.Model) -> list[tuple[ir.Node, Place]]:
    """Every Loop and Scan with its place, innermost first. Gathered before anything is changed."""
    return [
        (node, place)
        for place in places(model)
        for node in place.graph
        if node.op_type in ("Loop", "Scan") and (is_loop(node) or is_scan(node))
    ]


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

"""Where the loops of a model are: every graph, its path, its opset; innermost first."""

from __future__ import annotations

import collections
import dataclasses
import graphlib
import math
from collections.abc import Iterator

import onnx_ir as ir

from looplift.patterns.graph.own_nodes import DOMAIN
from looplift.patterns.graph.values import nodes_within, subgraphs
from looplift.patterns.graph.view import View, is_any_loop, well_formed

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
    for graph, path, opset in _roots(model):
        yield from _inside(graph, path, opset)


def _roots(model: ir.Model) -> Iterator[tuple[GraphLike, str, int]]:
    """The model's graph and its functions, each with its path and opset."""
    yield model.graph, "/", model.opset_imports.get("", 1)
    for function in model.functions.values():
        if function.domain != DOMAIN:
            opset = function.opset_imports.get("", model.opset_imports.get("", 1))
            yield function, f"function {function.domain}::{function.name}", opset


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
        yield from _graphs_of(node, path)


def _graphs_of(node: ir.Node, path: str) -> Iterator[tuple[ir.Graph, str]]:
    """The graphs among the attributes of one node, with their paths."""
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph(), f"{path.rstrip('/')}/{node_name(node)}:{attribute.name}"
        elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
            for k, inner in enumerate(attribute.as_graphs()):
                yield inner, f"{path.rstrip('/')}/{node_name(node)}:{attribute.name}[{k}]"


def every_loop(model: ir.Model) -> list[tuple[ir.Node, Place]]:
    """Every Loop and Scan with its place, innermost first. Gathered before anything is changed.

    The order is that of `places`; each graph is gone through once, which is what every pass begins with.
    """
    found: list[tuple[ir.Node, Place]] = []
    for graph, path, opset in _roots(model):
        work: list[tuple[GraphLike, str, list[ir.Node] | None]] = [(graph, path, None)]
        while work:
            here, its_path, its_loops = work.pop()
            if its_loops is None:
                its_loops, inner = _loops_and_graphs(here, its_path)
                work.append((here, its_path, its_loops))
                work += [(each, below, None) for each, below in reversed(inner)]
            elif its_loops:
                place = Place(here, its_path, opset)
                found += [(node, place) for node in its_loops]
    return found


def _loops_and_graphs(graph: GraphLike, path: str) -> tuple[list[ir.Node], list[tuple[ir.Graph, str]]]:
    """The Loops and Scans of a graph, and the graphs in any of its nodes."""
    found: list[ir.Node] = []
    inner: list[tuple[ir.Graph, str]] = []
    for node in graph:
        if node.attributes.data:
            inner += _graphs_of(node, path)
        if is_any_loop(node):
            found.append(node)
    return found, inner


def views(model: ir.Model) -> Iterator[View]:
    """The views of all well-formed Loops and Scans, innermost first."""
    for node, place in every_loop(model):
        if (view := well_formed(node, place.opset)) is not None:
            yield view


def loops(model: ir.Model) -> list[tuple[ir.Node, Place]]:
    """Every Loop and Scan that passes may change, as `every_loop`."""
    return [(node, place) for node, place in every_loop(model) if not is_frozen(node)]


def freeze(node: ir.Node) -> None:
    """Lets no pass change this loop's ports, nor the nodes of its body. Inner loops may be lifted all the same."""
    node.meta[_FROZEN] = True


def is_frozen(node: ir.Node) -> bool:
    """Whether the loop is to stay as it is (see `freeze`)."""
    return _FROZEN in node.meta


def copies_inlined(model: ir.Model) -> dict[ir.OperatorIdentifier, float]:
    """How often each function stands in the model's graph once all are inlined; infinitely often if it calls itself."""
    callers: dict[ir.OperatorIdentifier, collections.Counter[ir.OperatorIdentifier | None]] = {}
    for caller in (None, *model.functions.values()):
        name = None if caller is None else caller.identifier()
        for node in nodes_within(model.graph if caller is None else caller):
            callers.setdefault(node.op_identifier(), collections.Counter())[name] += 1
    calls = {name: {caller for caller in callers.get(name, ()) if caller is not None} for name in model.functions}
    found: dict[ir.OperatorIdentifier | None, float] = {None: 1}
    try:
        for name in graphlib.TopologicalSorter(calls).static_order():
            found[name] = sum(times * found[caller] for caller, times in callers.get(name, {}).items())
    except graphlib.CycleError:
        return dict.fromkeys(model.functions, math.inf)
    return {name: found[name] for name in model.functions}


def nodes_inlined(model: ir.Model) -> float:
    """How many nodes the model has once all its functions are inlined; infinitely many if one calls itself."""
    copies = copies_inlined(model)
    sizes = {name: sum(1 for _ in nodes_within(function)) for name, function in model.functions.items()}
    inlined = sum(copies[name] * size for name, size in sizes.items() if copies[name])
    return inlined + sum(1 for _ in nodes_within(model.graph))


__all__ = [
    "GraphLike",
    "Place",
    "copies_inlined",
    "every_loop",
    "freeze",
    "is_frozen",
    "loops",
    "node_name",
    "nodes_inlined",
    "places",
    "subgraphs",
    "views",
]

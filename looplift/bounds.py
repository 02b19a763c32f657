"""How deep a model nests graphs and calls, and how long it gets with its calls followed, before anything follows them.

Every reader of a model recurses into its graphs, and many into its functions: our interpreter plans a call in place,
ONNX Runtime and ONNX's checker inline it. A few functions that call one another twice each would keep them for ever.
"""

from __future__ import annotations

import collections
import dataclasses
import graphlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError

DEEPEST_GRAPHS = 31
"""Bodies within bodies, calls followed. A file holds no more: protobuf reads messages nested up to 100 deep."""

DEEPEST_CALLS = 50
"""Functions that call one another in a chain; the interpreter, which plans them in place, recurses."""

MOST_NODES = 200_000
"""Nodes that following all calls may add."""

Node = TypeVar("Node")
_Name = tuple[str, str, str]


@dataclasses.dataclass
class _Extent:
    """What one graph or function holds, graphs inside it included.

    Attributes:
        nodes: how many.
        graphs: how deep they nest.
        calls: of each function, how often it is called, and within how many graphs at most.
    """

    nodes: int = 0
    graphs: int = 0
    calls: collections.Counter[_Name] = dataclasses.field(default_factory=collections.Counter)
    inside: dict[_Name, int] = dataclasses.field(default_factory=dict)


def require_bounded(model: onnx.ModelProto | ir.Model) -> None:
    """Refuses a model that nests too deep, or grows too long once its calls are followed; itself without recursion.

    Raises:
        LoopliftError: graphs are nested deeper than `DEEPEST_GRAPHS`, a function calls itself, calls are nested deeper
            than `DEEPEST_CALLS`, or would add more than `MOST_NODES` nodes.
    """
    main, functions = _of_proto(model) if isinstance(model, onnx.ModelProto) else _of_ir(model)
    for extent in (main, *functions.values()):
        for name in [name for name in extent.calls if name not in functions]:
            del extent.calls[name]
    whole = _followed(main, functions)
    if whole.graphs > DEEPEST_GRAPHS:
        raise LoopliftError(
            f"the model nests graphs {whole.graphs} deep, calls of functions followed; at most {DEEPEST_GRAPHS} is "
            "read: take the inner ones out"
        )
    if whole.calls > DEEPEST_CALLS:
        raise LoopliftError(
            f"functions of the model call one another {whole.calls} deep; at most {DEEPEST_CALLS} is read: inline some"
        )
    if whole.nodes - main.nodes > MOST_NODES:
        raise LoopliftError(
            f"with all calls of its functions followed the model has {whole.nodes:,} nodes, which no engine runs; at "
            f"most {MOST_NODES:,} may be added: call functions less often"
        )


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A graph or function with all calls followed: nodes, and how deep graphs and calls nest."""

    nodes: int
    graphs: int
    calls: int


def _followed(main: _Extent, functions: dict[_Name, _Extent]) -> _Whole:
    order = graphlib.TopologicalSorter({name: set(extent.calls) for name, extent in functions.items()})
    found: dict[_Name, _Whole] = {}
    try:
        for name in order.static_order():
            found[name] = _with_calls(functions[name], found)
    except graphlib.CycleError as error:
        domain, function, _ = error.args[1][0]
        raise LoopliftError(f"function {domain}::{function} calls itself, which ONNX does not allow") from error
    return _with_calls(main, found)


def _with_calls(extent: _Extent, found: dict[_Name, _Whole]) -> _Whole:
    called = {name: found[name] for name in extent.calls}
    return _Whole(
        extent.nodes + sum(extent.calls[name] * whole.nodes for name, whole in called.items()),
        max([extent.graphs, *(extent.inside[name] + whole.graphs for name, whole in called.items())]),
        max([0, *(1 + whole.calls for whole in called.values())]),
    )


def _of_proto(model: onnx.ModelProto) -> tuple[_Extent, dict[_Name, _Extent]]:
    functions = {(each.domain, each.name, each.overload): _extent(each.node, _proto_node) for each in model.functions}
    return _extent(model.graph.node, _proto_node), functions


def _of_ir(model: ir.Model) -> tuple[_Extent, dict[_Name, _Extent]]:
    return _extent(model.graph, _ir_node), {key: _extent(each, _ir_node) for key, each in model.functions.items()}


def _extent(nodes: Iterable[Node], look: Callable[[Node], tuple[_Name, list[Iterable[Node]]]]) -> _Extent:
    found = _Extent()
    work: list[tuple[Iterable[Node], int]] = [(nodes, 0)]
    while work:
        graph, depth = work.pop()
        found.graphs = max(found.graphs, depth)
        for node in graph:
            name, inner = look(node)
            found.nodes += 1
            found.calls[name] += 1
            found.inside[name] = max(found.inside.get(name, 0), depth)
            work += [(body, depth + 1) for body in inner]
    return found


def _proto_node(node: onnx.NodeProto) -> tuple[_Name, list[Iterable[onnx.NodeProto]]]:
    return (node.domain, node.op_type, node.overload), list(_proto_graphs(node))


def _proto_graphs(node: onnx.NodeProto) -> Iterator[Iterable[onnx.NodeProto]]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g.node
        yield from (graph.node for graph in attribute.graphs)


def _ir_node(node: ir.Node) -> tuple[_Name, list[Iterable[ir.Node]]]:
    return node.op_identifier(), list(_ir_graphs(node))


def _ir_graphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()

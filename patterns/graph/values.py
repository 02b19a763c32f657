"""Small questions about values: where they are computed and what they are copies of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import onnx_ir as ir

from looplift.patterns.graph.operators import Trait, has, is_standard


def maker(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node of the default domain that makes the value, if it is of one of these types where any are named."""
    node = None if value is None else value.producer()
    return node if is_standard(node, *op_types) else None


def source(value: ir.Value) -> ir.Value:
    """The value itself, or what it is a copy of through any chain of Identity nodes."""
    return origin(value, lambda node: node.op_type == "Identity")


def origin(value: ir.Value, copies: Callable[[ir.Node], bool]) -> ir.Value:
    """What the value is made of: back through the first operands of the default domain's nodes that `copies` takes."""
    while is_standard(node := value.producer()) and node.inputs and copies(node) and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def reshaped_from(value: ir.Value) -> ir.Value:
    """The value with the same elements in the same order before its axes were changed, if they were."""
    return origin(value, lambda node: has(node, Trait.RESHAPES))


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the node's attributes."""
    for attribute in node.attributes.data.values():  # a view of the UserDict itself takes five times as long
        kind = attribute.type
        if kind is ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()
        elif kind is ir.AttributeType.GRAPHS and not attribute.is_ref():
            yield from attribute.as_graphs()


def has_subgraphs(node: ir.Node) -> bool:
    """Whether there is a graph among the node's attributes."""
    return any(True for _ in subgraphs(node))


def with_inner(node: ir.Node) -> Iterator[ir.Node]:
    """The node and every node of the graphs in it."""
    yield node
    yield from held_nodes(node)


def held_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Every node of the graphs in a node."""
    for inner in subgraphs(node):
        yield from nodes_within(inner)


def nodes_within(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Every node of the graph and of the graphs nested in it, outer ones first."""
    open_graphs = [iter(graph)]  # generators that call themselves would hand each node on through every level
    while open_graphs:
        node = next(open_graphs[-1], None)
        if node is None:
            open_graphs.pop()
            continue
        yield node
        open_graphs.extend(map(iter, reversed(list(subgraphs(node)))))


def graphs_within(graph: ir.Graph) -> Iterator[ir.Graph]:
    """The graph and every graph nested in it."""
    yield graph
    for node in nodes_within(graph):
        yield from subgraphs(node)


def defined_in(value: ir.Value, graph: ir.Graph) -> bool:
    """Whether the value belongs to this graph: its input, its initializer or the output of one of its nodes."""
    node = value.producer()
    if node is not None:
        return node.graph is graph
    return value.graph is graph


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that the node uses: its inputs, and what the graphs inside it take from outside themselves."""
    yield from (value for value in node.inputs if value is not None)
    for inner in subgraphs(node):
        yield from captures(inner)


def captures(graph: ir.Graph) -> Iterator[ir.Value]:
    """Outer values that a graph reads, each as often as it is read; outputs count as reads."""
    graphs, nodes = [graph], list(nodes_within(graph))
    graphs += [inner for node in nodes for inner in subgraphs(node)]
    own = set(map(id, graphs))

    def outer(value: ir.Value) -> bool:
        node = value.producer()
        home = node.graph if node is not None else value.graph
        return home is None or id(home) not in own

    for node in nodes:
        yield from (value for value in node.inputs if value is not None and outer(value))
    for inner in graphs:
        yield from (value for value in inner.outputs if outer(value))


def made_by(values: Iterable[ir.Value], body: ir.Graph) -> list[ir.Node]:
    """The nodes of a graph by which these values are computed, in the graph's order."""
    found: set[int] = set()
    work = list(values)
    while work:
        node = work.pop().producer()
        if node is not None and node.graph is body and id(node) not in found:
            found.add(id(node))
            work.extend(reads(node))
    return [node for node in body if id(node) in found] if found else []


def behind(value: ir.Value, follow: Callable[[ir.Value], Iterable[ir.Value | None]]) -> Iterator[ir.Value]:
    """The value, and every value that `follow` leads to from it, each once: ways may be long and exponentially many."""
    work: list[ir.Value | None] = [value]
    seen: set[int] = set()
    while work:
        part = work.pop()
        if part is not None and id(part) not in seen:
            seen.add(id(part))
            yield part
            work.extend(follow(part))


def is_used(value: ir.Value) -> bool:
    """Whether any node reads the value or any graph returns it."""
    return bool(value.uses()) or value.is_graph_output()

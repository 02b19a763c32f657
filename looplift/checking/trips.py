"""Which inputs of a model decide how often its loops run."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from looplift.legality import STANDARD_DOMAINS, subgraphs_of

_DIM_READERS = ("Shape", "Size")


def trip_inputs(model: ir.Model) -> frozenset[str]:
    """Names of the graph inputs whose *values* reach a Loop's trip count or condition.

    A backward slice from every Loop's M, cond and body condition: through carried values (their initial value and
    their update), into the branches of an If, and through Cast, Gather, arithmetic and any other op but Shape and
    Size, which read no values. Inputs of a call of a model-local function that holds a loop all count.
    """
    owners = dict(_owners(model.graph))
    functions_with_loops = {
        function.identifier() for function in model.functions.values() if any(_loops_in(function.graph))
    }
    todo = [value for graph in _graphs(model.graph) for value in _roots(graph, functions_with_loops)]
    seen: set[int] = set()
    found: set[str] = set()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if any(value is port for port in model.graph.inputs):
            found.add(value.name or "")
        todo += _sources(value, owners)
    return frozenset(found)


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for inner in subgraphs_of(node):
            yield from _graphs(inner)


def _owners(graph: ir.Graph) -> Iterator[tuple[int, ir.Node]]:
    """The node that each inner graph belongs to, by the graph's identity."""
    for node in graph:
        for inner in subgraphs_of(node):
            yield id(inner), node
            yield from _owners(inner)


def _is(node: ir.Node, *op_types: str) -> bool:
    return node.domain in STANDARD_DOMAINS and node.op_type in op_types


def _loops_in(graph: ir.Graph) -> Iterator[ir.Node]:
    return (node for inner in _graphs(graph) for node in inner if _is(node, "Loop"))


def _roots(graph: ir.Graph, functions_with_loops: set[ir.OperatorIdentifier]) -> Iterator[ir.Value]:
    for node in graph:
        if _is(node, "Loop"):
            yield from (value for value in node.inputs[:2] if value is not None)
            yield from (body.outputs[0] for body in subgraphs_of(node) if body.outputs)
        elif node.op_identifier() in functions_with_loops:
            yield from (value for value in node.inputs if value is not None)


def _sources(value: ir.Value, owners: dict[int, ir.Node]) -> list[ir.Value]:
    node = value.producer()
    if node is None:
        return _sources_of_port(value, owners)
    if _is(node, *_DIM_READERS):
        return []
    inner = [output for graph in subgraphs_of(node) for output in graph.outputs]
    return [source for source in node.inputs if source is not None] + inner


def _sources_of_port(value: ir.Value, owners: dict[int, ir.Node]) -> list[ir.Value]:
    """For an input of a Loop's body: the initial value and the update of its carry."""
    graph = value.graph
    node = owners.get(id(graph)) if graph is not None else None
    if graph is None or node is None or not _is(node, "Loop", "Scan"):
        return []
    place = next((index for index, port in enumerate(graph.inputs) if port is value), None)
    if place is None:
        return []
    update = place - 1 if node.op_type == "Loop" else place
    sources = [node.inputs[place]] if place < len(node.inputs) else []
    if 0 <= update < len(graph.outputs):
        sources.append(graph.outputs[update])
    return [source for source in sources if source is not None]

"""Which inputs of a model decide how often its loops run, and in general: what lies behind a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.own_nodes import INITIAL, is_recurrence
from looplift.patterns.graph.values import subgraphs

_SHAPED_BY_VALUES = ("ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Slice", "Tile")
"""Ops whose result's shape depends on what their inputs hold."""

_CALLS = 3
"""So many calls of functions, the innermost ones, are told apart."""

_Place = tuple[ir.Value, tuple[ir.Node, ...], bool]
"""A value, the calls through which it is looked at, and whether only its shape matters."""

_Key = tuple[int, tuple[int, ...], bool]
"""The same by identity."""


def trip_inputs(model: ir.Model) -> frozenset[str]:
    """Names of the graph inputs whose *values* reach a Loop's trip count or condition.

    A backward slice (see `Slices`) from every Loop's M, cond and body condition, and AddStep's M and cond, those in
    functions included.
    """
    slices = Slices(model)
    return slices.behind(value for graph in slices.graphs() for value in _roots(graph)).values


@dataclasses.dataclass(frozen=True)
class Behind:
    """What decides some values.

    Attributes:
        values: names of the graph inputs whose elements do.
        shapes: names of the graph inputs whose shapes do (lengths of sequences included).
        iterations: whether the number of a loop's iteration does.
    """

    values: frozenset[str]
    shapes: frozenset[str]
    iterations: bool


class Slices:
    """Backward slices of a model.

    Through carried values (their initial value and their update), into the branches of an If and the bodies of
    functions (back out to the call through which they were entered), and through Cast, Gather, arithmetic and any other
    op; Shape and Size read no elements.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._inputs = {id(value): value.name or "" for value in model.graph.inputs}
        roots = [model.graph, *(function.graph for function in model.functions.values())]
        self._graphs = [graph for root in roots for graph in _graphs(root)]
        self._owners = dict(owner for root in roots for owner in _owners(root))
        self._bodies = {id(function.graph): key for key, function in model.functions.items()}
        self._known: dict[_Key, list[_Place]] = {}
        self.steps = 0
        """Values looked at so far, as a measure of time."""
        self._calls: dict[ir.OperatorIdentifier, list[ir.Node]] = {}
        for node in (node for graph in self._graphs for node in graph):
            if node.op_identifier() in model.functions:
                self._calls.setdefault(node.op_identifier(), []).append(node)

    def graphs(self) -> Iterator[ir.Graph]:
        """The main graph, the functions' and all graphs in them."""
        return iter(self._graphs)

    def behind(self, values: Iterable[ir.Value]) -> Behind:
        """What the given values depend on."""
        todo: list[_Place] = [(value, (), False) for value in values]
        seen: set[_Key] = set()
        read: set[str] = set()
        shapes: set[str] = set()
        iterations = False
        while todo:
            value, calls, shape = place = todo.pop()
            key = (id(value), tuple(map(id, calls)), shape)
            if key in seen:
                continue
            seen.add(key)
            self.steps += 1
            if id(value) in self._inputs:
                (shapes if shape else read).add(self._inputs[id(value)])
            iterations |= self._is_iteration(value)
            if key not in self._known:
                self._known[key] = self._sources(*place)
            todo += self._known[key]
        return Behind(frozenset(read), frozenset(shapes), iterations)

    def _is_iteration(self, value: ir.Value) -> bool:
        owner = self._owners.get(id(value.graph)) if value.producer() is None else None
        return is_standard(owner, "Loop") and value.graph is not None and value is value.graph.inputs[0]

    def _sources(self, value: ir.Value, calls: tuple[ir.Node, ...], shape: bool) -> list[_Place]:
        node = value.producer()
        if node is None:
            return self._sources_of_port(value, calls, shape)
        if has(node, Trait.ASKS_SHAPE):
            return [(source, calls, True) for source in _given(node.inputs)]
        index = value.index() or 0
        function = self._model.functions.get(node.op_identifier())
        if function is not None:
            return [(function.outputs[index], (*calls, node)[-_CALLS:], shape)]
        sources = [(source, calls, shape) for source in _given(_inputs_behind(node, index))]
        if shape and is_standard(node, *_SHAPED_BY_VALUES, "Loop"):
            sized = node.inputs[:2] if node.op_type == "Loop" else node.inputs
            sources += [(source, calls, False) for source in _given(sized)]
        return sources

    def _sources_of_port(self, value: ir.Value, calls: tuple[ir.Node, ...], shape: bool) -> list[_Place]:
        """For an input of a function: what its calls give. For one of a body: the initial value and the update."""
        graph = value.graph
        place = next((k for k, port in enumerate(graph.inputs) if port is value), None) if graph is not None else None
        if graph is None or place is None:
            return []
        if id(graph) in self._bodies:
            nodes = calls[-1:] or self._calls.get(self._bodies[id(graph)], [])
            inputs = [node.inputs[place] for node in nodes if place < len(node.inputs)]
            return [(source, calls[:-1], shape) for source in _given(inputs)]
        node = self._owners.get(id(graph))
        if not is_standard(node, "Loop", "Scan"):
            return []
        return [(source, calls, shape) for source in _given(_carried(node, graph, place))]


def _given(values: Iterable[ir.Value | None]) -> Iterator[ir.Value]:
    return (value for value in values if value is not None)


def _inputs_behind(node: ir.Node, index: int) -> list[ir.Value | None]:
    """What an output of a node is computed from: its inputs, and for one with bodies what these give for it."""
    inner = list(subgraphs(node))
    if not is_standard(node, "Loop", "Scan", "If"):
        return [*node.inputs, *(output for graph in inner for output in graph.outputs)]
    first = 1 if node.op_type == "Loop" else 0
    results = [graph.outputs[index + first] for graph in inner if index + first < len(graph.outputs)]
    if node.op_type == "If":
        return [*node.inputs, *results]
    if node.op_type == "Loop":
        conditions = [graph.outputs[0] for graph in inner if graph.outputs]
        carries = len(node.inputs) - 2
        return [
            *node.inputs[:2],
            *conditions,
            *results,
            *(node.inputs[2 + index : 3 + index] if index < carries else ()),
        ]
    return [*(node.inputs[index : index + 1] if index < _scan_states(node) else ()), *results]


def _carried(node: ir.Node, body: ir.Graph, place: int) -> list[ir.Value | None]:
    """What an input of a Loop's or Scan's body is: what the node is given, and the update of a carried value."""
    sources: list[ir.Value | None] = list(node.inputs[place : place + 1])
    of_scan = place if place < _scan_states(node) else -1
    update = place - 1 if node.op_type == "Loop" else of_scan
    if 0 <= update < len(body.outputs):
        sources.append(body.outputs[update])
    return sources


def _scan_states(node: ir.Node) -> int:
    return len(node.inputs) - int(node.attributes.get_int("num_scan_inputs", 0) or 0)


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _owners(graph: ir.Graph) -> Iterator[tuple[int, ir.Node]]:
    """The node that each inner graph belongs to, by the graph's identity."""
    for node in graph:
        for inner in subgraphs(node):
            yield id(inner), node
            yield from _owners(inner)


def _roots(graph: ir.Graph) -> Iterator[ir.Value]:
    for node in graph:
        if is_standard(node, "Loop"):
            yield from _given(node.inputs[:2])
            yield from (body.outputs[0] for body in subgraphs(node) if body.outputs)
        elif is_recurrence(node):
            yield from _given(node.inputs[: INITIAL[node.op_type]])  # its definition may have no loop

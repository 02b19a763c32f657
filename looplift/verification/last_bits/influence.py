"""Which of a model's outputs certain nodes reach, and whether with their numbers alone or with shapes, too.

Sets of labels flow along the values of a model: through every graph, round loops until nothing new comes, and through
functions, each followed once: what its inputs do to its outputs is known from then on, whoever calls it.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from looplift.patterns.graph.operators import SHAPED_BY, TRAITS, Trait, is_standard
from looplift.patterns.graph.values import captures, has_subgraphs, nodes_within, subgraphs

Labels = frozenset[Any]
NONE: Labels = frozenset()


@dataclasses.dataclass(frozen=True)
class Reach:
    """Labels that reach a value: its numbers, and its shape."""

    numbers: Labels = NONE
    shape: Labels = NONE

    def __or__(self, other: Reach) -> Reach:
        return Reach(self.numbers | other.numbers, self.shape | other.shape)

    def steering(self) -> Reach:
        """What follows from the numbers, be it numbers or shapes."""
        return Reach(self.numbers | self.shape, self.numbers | self.shape)


NOWHERE = Reach()

Source = Callable[[ir.Node, str], Labels]
"""The labels that a node adds to its outputs; it is told where the node stands."""


def reach_of_outputs(model: ir.Model, source: Source) -> list[Reach]:
    """For each output of the model the labels that reach it."""
    return _Flow(model, source, {}, {}).outputs(model.graph, "/")


def node_label(node: ir.Node) -> str:
    """What messages call a node: its name, or that of its first output."""
    return node.name or next((value.name for value in node.outputs if value.name), None) or node.op_type


def nodes_reached(model: ir.Model, source: Source) -> list[ir.Node]:
    """The nodes that read numbers which labels reach; all nodes of functions count as such."""
    flow = _Flow(model, source, {}, {})
    flow.outputs(model.graph, "/")
    found = [node for node in nodes_within(model.graph) if any(flow.of(value).numbers for value in node.inputs)]
    return [*found, *(node for function in model.functions.values() for node in nodes_within(function))]


class _Flow:
    """Follows the labels through a graph or a function of a model."""

    def __init__(
        self,
        model: ir.Model,
        source: Source,
        summaries: dict[ir.OperatorIdentifier, list[Reach]],
        known: dict[int, Reach],
    ) -> None:
        self._model = model
        self._source = source
        self._summaries = summaries
        self._of = known
        self._grew = False

    def outputs(self, graph: ir.Graph | ir.Function, path: str) -> list[Reach]:
        """What reaches the outputs, once a further round would add nothing."""
        self._grew = True
        while self._grew:
            self._grew = False
            self._graph(graph, path)
        return [self.of(value) for value in graph.outputs]

    def of(self, value: ir.Value | None) -> Reach:
        """What is known to reach a value."""
        return NOWHERE if value is None else self._of.get(id(value), NOWHERE)

    def _join(self, value: ir.Value, reach: Reach) -> None:
        before = self.of(value)
        after = before | Reach(reach.numbers | reach.shape, reach.shape)
        if after != before:
            self._of[id(value)] = after
            self._grew = True

    def _graph(self, graph: ir.Graph | ir.Function, path: str) -> None:
        for node in graph:
            for value, reach in zip(node.outputs, self._node(node, path), strict=False):
                self._join(value, reach)

    def _node(self, node: ir.Node, path: str) -> list[Reach]:
        function = self._model.functions.get(node.op_identifier())
        if function is not None:
            return self._call(node, function)
        inputs = [self.of(value) for value in node.inputs]
        own = self._source(node, path)
        if is_standard(node) and node.op_type in _CONTROL:
            found = _CONTROL[node.op_type](self, node, inputs, path)
        elif has_subgraphs(node) or not is_standard(node):
            found = [self._anything(node, inputs, path)] * len(node.outputs)
        else:
            found = [_plain(node, inputs)] * len(node.outputs)
        return [reach | Reach(own) for reach in found]

    # -- functions ------------------------------------------------------------------------------------------------

    def _call(self, node: ir.Node, function: ir.Function) -> list[Reach]:
        key = node.op_identifier()
        if key not in self._summaries:
            self._summaries[key] = [NOWHERE] * len(function.outputs)  # of one that calls itself, which is not ONNX
            ports = {
                id(value): Reach(frozenset([_Port(key, k, False)]), frozenset([_Port(key, k, True)]))
                for k, value in enumerate(function.inputs)
            }
            path = f"function {function.domain}::{function.name}"
            inner = _Flow(self._model, self._source, self._summaries, ports)
            self._summaries[key] = inner.outputs(function, path)
        given = [self.of(value) for value in node.inputs]
        return [
            Reach(_given(reach.numbers, key, given), _given(reach.shape, key, given)) for reach in self._summaries[key]
        ]

    # -- control flow ---------------------------------------------------------------------------------------------

    def _body(self, body: ir.Graph, ports: Iterable[Reach], node: ir.Node, path: str) -> list[Reach]:
        for port, reach in zip(body.inputs, ports, strict=False):
            self._join(port, reach)
        attribute = next((name for name, attr in node.attributes.items() if attr.value is body), "")
        self._graph(body, f"{path.rstrip('/')}/{node_label(node)}:{attribute}")
        return [self.of(value) for value in body.outputs]

    def _loop(self, node: ir.Node, inputs: list[Reach], path: str) -> list[Reach]:
        (body,) = subgraphs(node)
        carries = len(body.inputs) - 2
        updates = self._body(body, [NOWHERE, *inputs[1:2], *inputs[2:]], node, path)
        condition, *results = updates
        for port, update in zip(body.inputs[2:], results, strict=False):
            self._join(port, update)
        control = _all_of([condition, *inputs[:2]])
        starts = [*inputs[2:], *[NOWHERE] * (len(results) - carries)]
        return [one | other | control.steering() for one, other in zip(starts, results, strict=False)]

    def _scan(self, node: ir.Node, inputs: list[Reach], path: str) -> list[Reach]:
        (body,) = subgraphs(node)
        scanned = node.attributes.get_int("num_scan_inputs", len(inputs))
        states = len(body.inputs) - scanned
        inputs = inputs[-len(body.inputs) :]  # Scan-8 has lengths before
        results = self._body(body, inputs, node, path)
        for port, update in zip(body.inputs[:states], results, strict=False):
            self._join(port, update)
        rows = Reach(shape=_all_of(inputs[states:]).shape)
        return [reach | (inputs[place] if place < states else NOWHERE) | rows for place, reach in enumerate(results)]

    def _if(self, node: ir.Node, inputs: list[Reach], path: str) -> list[Reach]:
        found = [inputs[0].steering()] * len(node.outputs)
        for branch in subgraphs(node):
            found = [one | other for one, other in zip(found, self._body(branch, (), node, path), strict=False)]
        return found

    def _anything(self, node: ir.Node, inputs: list[Reach], path: str) -> Reach:
        """An op of which nothing is known: everything that it reads reaches everything that it gives."""
        bodies = [*subgraphs(node)]
        read = [self.of(value) for body in bodies for value in captures(body)]
        given = [reach for body in bodies for reach in self._body(body, inputs, node, path)]
        return _all_of([*inputs, *read, *given]).steering()


_CONTROL: Mapping[str, Callable[[_Flow, ir.Node, list[Reach], str], list[Reach]]] = {
    "Loop": _Flow._loop,
    "Scan": _Flow._scan,
    "If": _Flow._if,
}


@dataclasses.dataclass(frozen=True)
class _Port:
    """The label of a function's input while the function is followed: its numbers or its shape."""

    function: ir.OperatorIdentifier
    place: int
    shape: bool


def _given(labels: Labels, key: ir.OperatorIdentifier, given: list[Reach]) -> Labels:
    """The labels with a function's ports replaced by what the caller gives for them."""
    found: set[Any] = set()
    for label in labels:
        if not isinstance(label, _Port) or label.function != key:
            found.add(label)
        elif label.place < len(given):
            found |= given[label.place].shape if label.shape else given[label.place].numbers
    return frozenset(found)


def _all_of(reaches: Iterable[Reach]) -> Reach:
    return functools.reduce(operator.or_, reaches, NOWHERE)


def _plain(node: ir.Node, inputs: list[Reach]) -> Reach:
    numbers, shape = _all_of(inputs).numbers, _all_of(inputs).shape
    if node.op_type in TRAITS[Trait.ASKS_SHAPE]:
        return Reach(shape)
    if node.op_type.endswith("Like"):  # the second input of CastLike, that of RandomNormalLike: no numbers
        return Reach(inputs[0].numbers if node.op_type == "CastLike" else NONE, shape)
    for place in SHAPED_BY.get(node.op_type, (1,) if node.op_type.startswith("Reduce") else ()):
        shape |= inputs[place].numbers if place < len(inputs) else NONE
    return Reach(shape if node.op_type == "ConstantOfShape" else numbers, shape)

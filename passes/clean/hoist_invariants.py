"""Moves what every iteration computes anew, with the same result, in front of the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import copy_node, keep_notes
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant, scalar
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.speculatable import is_deterministic, is_total
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import nodes_within, reads, source
from looplift.patterns.graph.view import LoopView, View
from looplift.patterns.graph.walk import Place

ASKS_ONLY = {"CastLike": 1, "Shape": 0, "Size": 0}
"""Ops that ask the input at this position for its type or shape, not for its contents."""


@dataclasses.dataclass(frozen=True)
class HoistInvariants:
    """Moves nodes out of the bodies of loops whose inputs are the same in every iteration.

    A node (also an If or a whole inner loop) is moved right before the loop if

    1. no body input reaches it, also not through what the graphs inside it read;
    2. it is deterministic: no op that draws random numbers, and none of an unknown domain;
    3. it can't fail (`patterns.graph.speculatable`), or comes to a constant, or the loop surely runs an iteration: M is
       left out or a constant of 1 or more and cond is left out or a constant true; for a Scan without a batch axis, a
       scan input has a known positive extent;
    4. the nodes of the body that it reads are moved, too;
    5. what the body returns of it can be copied there: Identity takes sequences from opset 14, optionals from 16;
    6. neither it nor a node inside it is kept where it is, lest an engine round differently (`Journal.keeps`).

    A node that asks a carry for its type (CastLike), or for its shape (Shape, Size) where the loop provably preserves
    it, is first made to ask the initial value.

    Constants, copies and expressions of constants are moved only along with a node that reads them: on their own they
    gain nothing, or are for constant folding. A body output that is moved stays as an Identity of the moved value.
    From a nest, a node moves one level at a time, inner loops first. Preserves bits.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place, until nothing more can be moved; tells whether anything was."""
        return sweep_loops(model, lambda view, place: _hoist(model, view, place, journal))


def _hoist(model: ir.Model, view: View, place: Place, journal: Journal) -> bool:
    asked = _ask_initial_values(model, view, journal)
    fixed = _invariant_nodes(view.body, journal)
    gains = _gainful(fixed)
    if not gains:
        return asked
    types = types_around(model, view.node).with_body(view)
    movable = _movable(fixed, view, types)
    gains = [node for node in gains if id(node) in movable]
    if not gains:
        return asked
    moved = _with_producers(gains, fixed)
    journal.did(view.node, f"hoisted {', '.join(node.op_type for node in gains)} out of the body")
    _move(moved, view, place, types)
    return True


def _ask_initial_values(model: ir.Model, view: View, journal: Journal) -> bool:
    """Lets nodes that ask a carry only for its type or shape ask its initial value, which has the same."""
    carries = {id(carry.previous): carry for carry in view.carries}
    types: Types | None = None
    changed = False
    for node in nodes_within(view.body):
        position = ASKS_ONLY.get(node.op_type) if is_standard(node) else None
        asked = node.inputs[position] if position is not None and position < len(node.inputs) else None
        carry = carries.get(id(source(asked))) if asked is not None else None
        if position is None or carry is None:
            continue
        if node.op_type != "CastLike":
            types = types or types_around(model, view.node).with_body(view)
            if view.batched or not types[carry.previous].same_shape(types[carry.initial]):
                continue
        node.replace_input_with(position, carry.initial)
        journal.did(view.node, f"read the type or shape of carry {carry.previous.name!r} from its initial value")
        changed = True
    return changed


def _invariant_nodes(body: ir.Graph, journal: Journal) -> list[ir.Node]:
    """Deterministic nodes that neither a body input nor another kind of node reaches, in order; none that is kept."""
    varying = set(map(id, body.inputs))
    fixed = []
    for node in body:
        kept = journal.keeps_inside(node)
        if varying.isdisjoint(map(id, reads(node))) and is_deterministic(node) and not kept:
            fixed.append(node)
        else:
            varying.update(map(id, node.outputs))
    return fixed


def _gainful(fixed: list[ir.Node]) -> list[ir.Node]:
    """The nodes that compute something from values that are not constant."""
    known: set[int] = set()
    gainful = []
    for node in fixed:
        if all(id(value) in known or _is_plain_constant(value) for value in reads(node)):
            known.update(map(id, node.outputs))
        elif node.op_type != "Identity":
            gainful.append(node)
    return gainful


def _is_plain_constant(value: ir.Value) -> bool:
    node = value.producer()
    if node is not None:
        return is_standard(node, "Constant")
    return value.is_initializer() and not value.is_graph_input()


def _movable(fixed: list[ir.Node], view: View, types: Types) -> set[int]:
    """Identities of the invariant nodes that may run even if the loop does not, with all that they read."""
    runs = _surely_runs(view, types)
    home = view.body
    movable: set[int] = set()
    for node in fixed:
        producers = (value.producer() for value in reads(node))
        inner = [id(producer) for producer in producers if producer is not None and producer.graph is home]
        may_run = runs or is_total(node, types, view.opset) or _folds(node, view.opset)
        if may_run and movable.issuperset(inner) and _can_be_returned(node, types, view.opset):
            movable.add(id(node))
    return movable


def _can_be_returned(node: ir.Node, types: Types, opset: int) -> bool:
    """Whether an Identity can stand for each output of the node that the body returns."""
    kinds = [ir.TensorType, *([ir.SequenceType] if opset >= 14 else [])]
    returned = (output for output in node.outputs if output.is_graph_output())
    return opset >= 16 or all(
        isinstance(output.type, tuple(kinds)) or types[output].dtype is not None for output in returned
    )


def _folds(node: ir.Node, opset: int) -> bool:
    return all(constant(output, opset) is not None for output in node.outputs)


def _surely_runs(view: View, types: Types) -> bool:
    """Whether at least one iteration runs, whatever the inputs."""
    if isinstance(view, LoopView):
        trips = 1 if view.max_trip is None else scalar(view.max_trip, view.opset)
        condition = True if view.condition is None else scalar(view.condition, view.opset)
        return trips is not None and trips >= 1 and condition is True
    if view.batched:
        return False
    return any(_extent(types[item.outer], item.axis) > 0 for item in view.scan_inputs)


def _extent(fact: TensorType, axis: int) -> int:
    """The extent along an axis; 0 if it is not known."""
    if fact.shape is None or not -len(fact.shape) <= axis < len(fact.shape):
        return 0
    extent = fact.shape[axis]
    return extent if isinstance(extent, int) else 0


def _with_producers(gains: list[ir.Node], fixed: list[ir.Node]) -> list[ir.Node]:
    """These nodes and all invariant ones that they need, in order."""
    needed = set(map(id, gains))
    for node in reversed(fixed):
        if id(node) in needed:
            needed.update(id(value.producer()) for value in reads(node) if value.producer() is not None)
    return [node for node in fixed if id(node) in needed]


def _move(moved: list[ir.Node], view: View, place: Place, types: Types) -> None:
    initializers = {id(value): value for node in moved for value in reads(node) if _is_initializer_of(view.body, value)}
    values = [*initializers.values(), *(output for node in moved for output in node.outputs)]
    _keep_outputs(view.body, values)
    for value in initializers.values():
        _move_initializer(value, view, place)
    for node in moved:
        for output in node.outputs:
            _annotate(output, types[output])
        view.body.remove(node)
        view.node.prepend(node)


def _is_initializer_of(graph: ir.Graph, value: ir.Value) -> bool:
    return value.is_initializer() and value.graph is graph


def _keep_outputs(body: ir.Graph, moved: Iterable[ir.Value]) -> None:
    """A body may not return an outer value: it returns a copy."""
    leaving = set(map(id, moved))
    for k, output in enumerate(body.outputs):
        if id(output) in leaving:
            copy = copy_node(output)
            keep_notes(output, copy.outputs[0])
            body.append(copy)
            body.outputs[k] = copy.outputs[0]


def _move_initializer(value: ir.Value, view: View, place: Place) -> None:
    """To the graph around the loop; a function has no initializers, so there it becomes a Constant."""
    graph = place.graph
    view.body.initializers.pop(str(value.name))
    if isinstance(graph, ir.Function):
        node = ir.node("Constant", inputs=[], attributes={"value": value.const_value})
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = value.name, value.type, value.shape
        view.node.prepend(node)
        ir.convenience.replace_all_uses_with(value, node.outputs[0])
        return
    taken = {*graph.initializers, *(item.name for item in graph.inputs)}
    while value.name in taken:
        value.name = f"{value.name}_hoisted"
    graph.register_initializer(value)


def _annotate(value: ir.Value, fact: TensorType) -> None:
    """Says outside what is known of the value; symbols that only the body declares mean nothing there."""
    if fact.dtype is not None:
        value.type = ir.TensorType(fact.dtype)
    if fact.shape is not None:
        value.shape = fact.public_shape
    elif value.shape is not None:
        value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in value.shape])

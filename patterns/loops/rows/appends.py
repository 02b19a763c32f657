"""Lists that a loop grows: a sequence carry that is only ever appended to (or prepended to)."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry, LoopView


@dataclasses.dataclass(frozen=True)
class Appends:
    """A sequence carry whose update inserts elements at one end.

    Attributes:
        carry: the sequence.
        head: the elements that it starts with (outer values), in order.
        elements: body values inserted per iteration, in the order of insertion.
        in_front: inserted at the front instead of the end.
        lengths: SequenceLength nodes of the body that ask for the length before the iteration.
    """

    carry: Carry
    head: tuple[ir.Value, ...]
    elements: tuple[ir.Value, ...]
    in_front: bool
    lengths: tuple[ir.Node, ...]


def is_sequence(value: ir.Value) -> bool:
    """Whether the value is declared, or made, as a sequence."""
    node = value.producer()
    made = node is not None and node.op_type in ("SequenceEmpty", "SequenceConstruct", "SequenceInsert")
    return made or isinstance(value.type, ir.SequenceType)


def appends_of(view: LoopView, carry: Carry) -> Appends | Refusal:
    """How the loop appends to this sequence, or what else it does with it."""
    head = _head(carry.initial)
    if isinstance(head, Refusal):
        return head
    inserts = _inserts(carry)
    if isinstance(inserts, Refusal):
        return inserts
    lengths = []
    for node, index in carry.previous.uses():
        if node.op_type == "SequenceLength" and node.graph is view.body:
            lengths.append(node)
        elif node is not inserts[0] or index != 0:
            return Refusal("the body reads the sequence that it appends to", node)
    if carry.previous.is_graph_output():
        return Refusal(f"the body returns the sequence '{carry.previous.name}' as it was", view.node)
    ends = {_end(node, view, len(head), len(inserts), k) for k, node in enumerate(inserts)}
    if len(ends) != 1 or None in ends:
        return Refusal("an element is inserted neither at the end nor at the front", inserts[0])
    elements = tuple(node.inputs[1] for node in inserts if node.inputs[1] is not None)
    return Appends(carry, head, elements, ends == {"front"}, tuple(lengths))


def _head(initial: ir.Value) -> tuple[ir.Value, ...] | Refusal:
    start = source(initial)
    node = start.producer()
    if node is not None and node.op_type == "SequenceEmpty":
        return ()
    if node is not None and node.op_type == "SequenceConstruct":
        return tuple(value for value in node.inputs if value is not None)
    return Refusal(f"the elements that the sequence '{initial.name}' starts with are not known", node)


def _inserts(carry: Carry) -> list[ir.Node] | Refusal:
    """The chain of SequenceInsert from `previous` to `updated`, in order."""
    value, found = carry.updated, []
    while source(value) is not carry.previous:
        if not _used_once(value):
            return Refusal(f"the body reads the sequence '{value.name}' that it appends to", value.producer())
        node = value.producer()
        if node is None or node.op_type not in ("SequenceInsert", "Identity") or node.inputs[0] is None:
            return Refusal(f"the sequence '{carry.previous.name}' is not only appended to", node)
        if node.op_type == "SequenceInsert":
            found.append(node)
        value = node.inputs[0]
    if value is not carry.previous or not found:
        return Refusal(f"the sequence '{carry.previous.name}' is not only appended to", value.producer())
    return found[::-1]


def _used_once(value: ir.Value) -> bool:
    """Whether one node reads the value, or the graph returns it once; not both. Reads of its length don't count."""
    graph = value.graph
    returned = sum(output is value for output in graph.outputs) if graph is not None else 0
    return len(value.uses()) + returned == 1


def _end(insert: ir.Node, view: LoopView, head: int, per_iteration: int, k: int) -> str | None:
    """Where the k-th insert of an iteration puts its element: "end", "front", or None if neither is certain."""
    position = insert.inputs[2] if len(insert.inputs) > 2 else None
    if position is None:
        return "end"
    if scalar(position, view.opset) == 0:
        return "front"
    origin = _through_copies(position)
    node = origin.producer()
    if node is not None and node.op_type == "SequenceLength" and node.inputs[0] is insert.inputs[0]:
        return "end"
    # With one element per iteration and none at the start, the length is the iteration number.
    return "end" if origin is view.iteration and (head, per_iteration, k) == (0, 1, 0) else None


def _through_copies(value: ir.Value) -> ir.Value:
    """The scalar that a one-element value copies."""
    while (node := value.producer()) is not None and node.op_type in ("Identity", "Squeeze", "Unsqueeze", "Reshape"):
        if node.inputs[0] is None:
            return value
        value = node.inputs[0]
    return value

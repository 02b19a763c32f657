"""Lists that a loop grows: a sequence carry that is only ever appended to (or prepended to), always or by choice."""

from __future__ import annotations

import collections
import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.values import reshaped_from, source
from looplift.patterns.graph.view import Carry, LoopView

Path = tuple[tuple[ir.Node, bool], ...]
"""The Ifs that a node stands in, outermost first, and in which branch of each: of a true condition, or the other."""


@dataclasses.dataclass(frozen=True)
class Appended:
    """One element: what is inserted, and by which choices. No choice: in every iteration."""

    value: ir.Value
    path: Path = ()


@dataclasses.dataclass(frozen=True)
class Appends:
    """A sequence carry whose update inserts elements at one end.

    Attributes:
        carry: the sequence.
        head: the elements that it starts with (outer values), in order.
        elements: inserted per iteration, in the order of insertion; of those in two branches of an If one is.
        in_front: inserted at the front instead of the end.
        lengths: SequenceLength nodes of the body that ask for the length before the iteration.
    """

    carry: Carry
    head: tuple[ir.Value, ...]
    elements: tuple[Appended, ...]
    in_front: bool
    lengths: tuple[ir.Node, ...]

    @property
    def chosen(self) -> bool:
        """Whether an iteration may leave an element out."""
        return any(element.path for element in self.elements)


def branches(choice: ir.Node) -> tuple[tuple[bool, ir.Graph], ...]:
    """The branches of an If, and the condition for each; that of a false one first."""
    return ((False, choice.attributes["else_branch"].as_graph()), (True, choice.attributes["then_branch"].as_graph()))


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
    links = _Links(carry)
    inserts = links.inserts(view.body)
    if isinstance(inserts, Refusal):
        return inserts
    lengths = []
    for node, _ in carry.previous.uses():
        if node.op_type == "SequenceLength" and node.graph is view.body:
            lengths.append(node)
        elif node not in links.readers:
            return Refusal("the body reads the sequence that it appends to", node)
    if carry.previous.is_graph_output():
        return Refusal(f"the body returns the sequence '{carry.previous.name}' as it was", view.node)
    chosen = any(path for _, path in inserts)
    if chosen and lengths:
        return Refusal("the body reads the length of a sequence that it appends to by choice", lengths[0])
    ends = {_end(node, view, len(head), 0 if chosen else len(inserts), k) for k, (node, _) in enumerate(inserts)}
    if len(ends) != 1 or None in ends:
        return Refusal("an element is inserted neither at the end nor at the front", inserts[0][0])
    elements = tuple(Appended(node.inputs[1], path) for node, path in inserts if node.inputs[1] is not None)
    return Appends(carry, head, elements, ends == {"front"}, tuple(lengths))


def _head(initial: ir.Value) -> tuple[ir.Value, ...] | Refusal:
    start = source(initial)
    node = start.producer()
    if node is not None and node.op_type == "SequenceEmpty":
        return ()
    if node is not None and node.op_type == "SequenceConstruct":
        return tuple(value for value in node.inputs if value is not None)
    return Refusal(f"the elements that the sequence '{initial.name}' starts with are not known", node)


Insert = tuple[ir.Node, Path]


class _Links:
    """The way from a carry's updated sequence back to the one before, through inserts, copies and choices.

    Attributes:
        readers: nodes of this way that read the carry.
    """

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._steps: collections.Counter[ir.Value] = collections.Counter([carry.updated])
        self.readers: set[ir.Node] = set()

    def inserts(self, body: ir.Graph) -> list[Insert] | Refusal:
        """The inserts of an iteration in order, if nothing else reads the sequences between them."""
        name = self._carry.previous.name
        found = self._back(self._carry.updated, body, ())
        if isinstance(found, Refusal):
            return found
        inserts, base = found
        if base is not self._carry.previous or not inserts:
            return Refusal(f"the sequence '{name}' is not only appended to", base.producer())
        for value, steps in self._steps.items():
            if value is not self._carry.previous and len(value.uses()) + _returns(value) != steps:
                return Refusal(f"the body reads the sequence '{value.name}' that it appends to", value.producer())
        return inserts[::-1]

    def _back(self, value: ir.Value, graph: ir.Graph, path: Path) -> tuple[list[Insert], ir.Value] | Refusal:
        """The inserts that make a sequence within a graph, the last first, and the sequence that they start from."""
        found: list[Insert] = []
        while value is not self._carry.previous and (node := value.producer()) is not None and node.graph is graph:
            if is_standard(node, "If"):
                chosen = self._through_branches(node, value.index(), path)
                if isinstance(chosen, Refusal):
                    return chosen
                inserts, value = chosen
                found += inserts
                continue
            base = node.inputs[0] if node.op_type in ("SequenceInsert", "Identity") else None
            if base is None:
                return Refusal(f"the sequence '{self._carry.previous.name}' is not only appended to", node)
            if node.op_type == "SequenceInsert":
                found.append((node, path))
            value = base
            self._steps[value] += 1
            if value is self._carry.previous:
                self.readers.add(node)
        return found, value

    def _through_branches(self, node: ir.Node, k: int | None, path: Path) -> tuple[list[Insert], ir.Value] | Refusal:
        """The inserts of both branches of an If, and the sequence outside that both start from."""
        assert k is not None
        found, bases = [], []
        for taken, branch in branches(node):
            result = branch.outputs[k]
            self._steps[result] += 1
            ends = self._back(result, branch, (*path, (node, taken)))
            if isinstance(ends, Refusal):
                return ends
            found += ends[0]
            bases.append(ends[1])
        if bases[0] is not bases[1]:
            return Refusal(f"the branches of the choice go on from different sequences than '{bases[0].name}'", node)
        return found, bases[0]


def _returns(value: ir.Value) -> int:
    graph = value.graph
    return sum(output is value for output in graph.outputs) if graph is not None else 0


def _end(insert: ir.Node, view: LoopView, head: int, per_iteration: int, k: int) -> str | None:
    """Where the k-th insert of an iteration puts its element: "end", "front", or None if neither is certain."""
    position = insert.inputs[2] if len(insert.inputs) > 2 else None
    if position is None:
        return "end"
    if scalar(position, view.opset) == 0:
        return "front"
    origin = reshaped_from(position)
    node = origin.producer()
    if node is not None and node.op_type == "SequenceLength" and node.inputs[0] is insert.inputs[0]:
        return "end"
    # With one element per iteration and none at the start, the length is the iteration number.
    return "end" if origin is view.iteration and (head, per_iteration, k) == (0, 1, 0) else None

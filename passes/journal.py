"""What the passes did to each loop of the original model, kept while they run.

A loop keeps its identity through every rebuild: an origin mark in its ``metadata_props``, which travels with the
node. The pipeline sets the marks first and takes them off at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence, Set

import onnx_ir as ir

from looplift.passes.report import Finding
from looplift.patterns.engines.onnxruntime.kernels import IN_HALF
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.values import held_nodes, with_inner
from looplift.patterns.graph.walk import every_loop, node_name

ORIGIN = "looplift.origin"

NUMBER = "looplift.number"
"""Key in a node's ``meta``, which goes with the node, and with copies of it, and is not written to files."""

COPY_OF = "looplift.copy_of"
"""Key in the ``meta`` of a node that computes over time what another did in the loop: that one's number."""

_COPIES = (IN_HALF | {"Cast", "Pad", "Tile", "Where"}) - {"If", "Loop", "Scan"}
"""Operators through which a node is still said to read the same value."""


Watch = Callable[[str, ir.Model], None]
"""Is given the name of each pass that changed the model, and the model as it is then."""


@dataclasses.dataclass
class Entry:
    """What is known of one original loop."""

    node: str
    op_type: str
    path: str
    trip_count: str = ""
    recurrences: list[str] = dataclasses.field(default_factory=list)
    carries: list[str] = dataclasses.field(default_factory=list)
    actions: list[str] = dataclasses.field(default_factory=list)
    refusal: str = ""
    special: bool = False
    unequal: bool = False
    not_tried: str = ""
    part_of: str = ""
    settled: bool = False
    order: int = 0
    operators: int = 0

    @property
    def origin(self) -> str:
        """The loop as ``graph path/name``."""
        return f"{self.path.rstrip('/')}/{self.node}"


def _work(loop: ir.Node) -> int:
    """How many operators an iteration runs, without constants and copies; those of loops inside count once."""
    return sum(node.op_type not in ("Constant", "Identity") for node in held_nodes(loop))


@dataclasses.dataclass(frozen=True)
class Care:
    """What passes are to leave as it is, lest an engine round differently (`passes.same_bits`).

    Attributes:
        nodes: numbers of nodes that stay where they are, and read what they read.
        whole_loops: loops that hold such a node stay of their kind, too.
    """

    nodes: Set[int] = frozenset()
    whole_loops: bool = False

    def also(self, numbers: Set[int], *, whole_loops: bool) -> Care:
        """The same of more nodes."""
        return Care(self.nodes | numbers, self.whole_loops or whole_loops)


class Journal:
    """Entries of the original loops by their origin mark, and the nodes that are to stay where they are."""

    def __init__(self, entries: dict[str, Entry], care: Care, watch: Watch | None) -> None:
        self._entries, self._care, self._watch = entries, care, watch

    @classmethod
    def begin(cls, model: ir.Model, care: Care = Care(), watch: Watch | None = None) -> Journal:
        """Marks every Loop and Scan of the model and opens an entry for each."""
        entries = {}
        for k, (node, place) in enumerate(every_loop(model)):
            node.metadata_props[ORIGIN] = str(k)
            entries[str(k)] = Entry(node_name(node), node.op_type, place.path, order=k, operators=_work(node))
        return cls(entries, care, watch)

    def show(self, step: str, model: ir.Model) -> None:
        """Shows the model after a step that changed it to whoever watches."""
        if self._watch is not None:
            self._watch(step, model)

    def keeps(self, node: ir.Node) -> bool:
        """Whether the node is to stay where it is, and to read what it reads, lest an engine round differently."""
        return node.meta.get(NUMBER) in self._care.nodes

    def keeps_inside(self, node: ir.Node) -> bool:
        """Whether that holds of the node or of one in its graphs."""
        return any(map(self.keeps, with_inner(node)))

    def keeps_kind(self, loop: ir.Node) -> bool:
        """Whether the loop is to stay a Loop, or a Scan."""
        return self._care.whole_loops and self.keeps_inside(loop)

    def keeps_reader(self, value: ir.Value) -> bool:
        """Whether a node that is to stay reads the value, directly or a copy of it."""
        return any(
            self.keeps(user) or (user.op_type in _COPIES and any(map(self.keeps_reader, user.outputs)))
            for user, _ in value.uses()
        )

    def left(self, model: ir.Model) -> frozenset[int]:
        """The origins of the loops of which anything is left."""
        marks = (node.metadata_props.get(ORIGIN) for node, _ in every_loop(model))
        return frozenset(int(mark) for mark in marks if mark is not None)

    def moved(self, origin: int, ops: Sequence[str]) -> None:
        """Notes that these operators stand elsewhere now, where an engine may round differently."""
        entry = self._entries.get(str(origin))
        if entry is not None:
            text = f"{', '.join(ops)}: an engine may round differently where these stand now (last bits)"
            entry.actions.append(text)

    def entry(self, node: ir.Node) -> Entry | None:
        """The entry of a loop node (rebuilt or original); None for one that a pass made from nothing."""
        return self._entries.get(node.metadata_props.get(ORIGIN, ""))

    def did(self, node: ir.Node, action: str) -> None:
        """Notes what was done to this loop, as a sentence in the past tense, once."""
        entry = self.entry(node)
        if entry is not None and action not in entry.actions:
            entry.actions.append(action)

    def origin(self, node: ir.Node) -> str | None:
        """The original loop as ``graph path/name``; None for one that a pass made from nothing."""
        entry = self.entry(node)
        return None if entry is None else entry.origin

    def came_from(self, path: str, nodes: Iterable[ir.Node], action: str) -> None:
        """Notes what became of a recurrence lifted from the loop at ``graph path/name``.

        A loop among the nodes that stand for it now is what is left of that loop.
        """
        for mark, entry in self._entries.items():
            if entry.origin == path:
                if action not in entry.actions:
                    entry.actions.append(action)
                for node in nodes:
                    node.metadata_props[ORIGIN] = mark
                    entry.refusal, entry.settled = f"{action}, the smallest that there is", True

    def found(self, node: ir.Node, recurrence: str) -> None:
        """Notes a recurrence that was lifted out of this loop, such as ``v: add-step by 'step'``."""
        entry = self.entry(node)
        if entry is not None and recurrence not in entry.recurrences:
            entry.recurrences.append(recurrence)

    def describe(self, node: ir.Node, *, trip_count: str = "", carries: list[str] | None = None) -> None:
        """Notes the trip count and the carries' evolution in words."""
        entry = self.entry(node)
        if entry is not None:
            entry.trip_count = trip_count or entry.trip_count
            entry.carries = carries if carries is not None else entry.carries

    def refuse(self, node: ir.Node, refusal: Refusal, *, special: bool = False) -> None:
        """Notes why this loop stays; the latest word counts, unless it is what became of a lifted one.

        Args:
            node: the loop.
            refusal: why.
            special: it says why the loop could not be brought into a form that is easy to read, which tells more than
                a later refusal that only says that it is in no such form (`Refusal.general`).
        """
        entry = self.entry(node)
        if entry is not None and not entry.settled and not (refusal.general and entry.special):
            entry.refusal, entry.special, entry.unequal = str(refusal), special, refusal.unequal

    def too_costly(self, node: ir.Node, refusal: Refusal) -> None:
        """Notes what was not computed to find out more of this loop, and why."""
        entry = self.entry(node)
        if entry is not None:
            entry.not_tried = str(refusal)

    def absorb(self, gone: ir.Node, into: ir.Node) -> None:
        """Notes that a loop is gone because another one does its work too: it is lifted when that one is.

        Copies of one loop, which inlining a function makes, share a mark, and may be joined in any order.
        """
        mark, other = gone.metadata_props.get(ORIGIN), into.metadata_props.get(ORIGIN)
        if mark in self._entries and other in self._entries and self._whole(other) != mark:
            self._entries[mark].part_of = other

    def _whole(self, mark: str) -> str:
        """The mark of the loop that does this one's work."""
        while self._entries[mark].part_of in self._entries:
            mark = self._entries[mark].part_of
        return mark

    def end(self, model: ir.Model, reason: str = "no rule applies") -> tuple[Finding, ...]:
        """Takes the marks off and gives a finding for every original loop; one without any word stays for `reason`."""
        left: dict[str | None, int] = {}
        for node, _ in every_loop(model):
            mark_left = node.metadata_props.pop(ORIGIN, None)
            left[mark_left] = left.get(mark_left, 0) + _work(node)
        findings = []
        for mark, entry in sorted(self._entries.items(), key=lambda item: item[1].order):
            whole = self._entries[self._whole(mark)]
            stays = mark in left or self._whole(mark) in left
            unread = not (stays or whole.actions or whole.recurrences)
            why = "nothing reads what it makes" if unread else whole.refusal or reason
            if entry.not_tried and not unread:
                why += f"; not computed to find out more: {entry.not_tried}"
            findings.append(
                Finding(
                    node=entry.node,
                    op_type=entry.op_type,
                    path=entry.path,
                    lifted=not (stays or unread),
                    recurrence="; ".join(whole.recurrences),
                    reason=why if stays or unread else "",
                    trip_count=entry.trip_count,
                    carries=tuple(entry.carries),
                    actions=tuple(entry.actions),
                    operators=entry.operators,
                    left=left.get(mark, 0),
                    unequal=stays and entry.unequal,
                )
            )
        return tuple(findings)

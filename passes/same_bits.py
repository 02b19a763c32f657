"""Loops that stay keep their bits: what stands in them is compared, before and after, as an engine sees it.

Passes move nodes to other depths and part them from their neighbours, or bring new ones near. Instead of asking in each
pass whether an engine minds, every node is numbered first, and what its last bits hang on (`patterns.engines`) is noted
once in the original and once in the result. Where that differs in a loop that stays, the model is optimized again, with
these nodes kept where they are (`Journal.keeps`), and if that is not enough, with these loops left alone. Where the
loop is gone, being lifted, the nodes are marked (`over_time.last_bits`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from looplift.passes.graph import last_bits
from looplift.passes.graph.infer import with_inferred
from looplift.passes.journal import COPY_OF, NUMBER, ORIGIN, Journal
from looplift.passes.lift.lift_recurrences import LIFTED_FROM
from looplift.patterns.engines.onnxruntime.ties import Tie, homes, ties, unrounded
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.values import nodes_within, subgraphs
from looplift.patterns.graph.view import is_any_loop
from looplift.patterns.graph.walk import GraphLike
from looplift.runtime.ops import DOMAIN

LIFTED = -1
"""The number of nodes that a lift made."""


@dataclasses.dataclass(frozen=True)
class Change:
    """A node around which something changed that may decide about its last bits, and all that took part.

    Attributes:
        node: its number.
        others: numbers of nodes that stand, or stood, in front of it.
        loops: the origins of the original loops that these stood in, the innermost of each.
        lifted: whether a node that a lift made took part.
        halves: whether it is only that what the others give in float16 is rounded now for this node, or was before.
    """

    node: int
    others: frozenset[int]
    loops: frozenset[int]
    lifted: bool
    halves: bool

    @property
    def nodes(self) -> frozenset[int]:
        """All that took part."""
        return self.others | {self.node}

    @property
    def marked(self) -> frozenset[int]:
        """Those whose result may differ."""
        return self.others if self.halves else self.nodes


Numbers = tuple["int | None", "int | None"]


@dataclasses.dataclass(frozen=True)
class Half:
    """Two nodes in one graph between which an engine that computes float16 in float32 need not round."""

    maker: ir.Node
    reader: ir.Node

    @property
    def numbers(self) -> Numbers:
        """Theirs, or those of the nodes that they are copies of."""
        return _of_original(self.maker), _of_original(self.reader)

    @property
    def lifted(self) -> bool:
        """Whether a lift made one of them."""
        return LIFTED_FROM in self.maker.metadata_props or LIFTED_FROM in self.reader.metadata_props


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What the last bits of a model's nodes hang on.

    Attributes:
        ties: by the number of the node.
        owners: the original loop that each node stands in, by its origin.
        halves: pairs of nodes between which the engine need not round.
    """

    ties: dict[int, frozenset[Tie]]
    owners: dict[int, int]
    halves: frozenset[Numbers]

    @classmethod
    def of(cls, model: ir.Model) -> Surroundings:
        """Of a model whose loops carry their origin; its nodes are numbered."""
        owners: dict[int, int] = {}
        for number, (node, owner) in enumerate(_nodes(model)):
            node.meta[NUMBER] = number
            if owner is not None:
                owners[number] = owner
        found, halves = look(model)
        return cls(found, owners, frozenset(half.numbers for half in halves))

    def changes(self, after: Mapping[int, frozenset[Tie]]) -> list[Change]:
        """What is different in a model that was made of this one, which has these ties."""
        found = []
        for number, now in after.items():
            different = self.ties.get(number, frozenset()) ^ now
            if different:
                partners = {tie.partner for tie in different if tie.partner is not None}
                others = frozenset(partners - {LIFTED})
                owners = {self.owners[node] for node in others | {number} if node in self.owners}
                halves = all(tie.kind == "half" for tie in different)
                found.append(Change(number, others, frozenset(owners), LIFTED in partners, halves))
        return found


def settle_bits(before: Surroundings, model: ir.Model, journal: Journal, exact: bool) -> tuple[Change, ...]:
    """Marks what may have other last bits in the result, and returns what may not have if bits are to be `exact`.

    It may have them where the loop is lifted, and where a lifted one gave it its neighbours.
    """
    left = journal.left(model)
    now, halves = look(model)
    changes = before.changes(now)
    unwanted = tuple(change for change in changes if exact and not change.lifted and not change.loops.isdisjoint(left))
    told = mark(model, changes)
    for loop, ops in mark_halves(before, model, halves).items():
        told[loop] = sorted({*told.get(loop, ()), *ops})
    for loop, ops in told.items():
        journal.moved(loop, ops)
    forget(model)
    return unwanted


def look(model: ir.Model) -> tuple[dict[int, frozenset[Tie]], list[Half]]:
    """The ties of all numbered nodes, with the types and shapes that an engine infers, and what it need not round."""
    found: dict[int, frozenset[Tie]] = {}
    with with_inferred(model):
        for graph in _graphs(model):
            for number, tied in ties(graph, _number).items():
                found[number] = found.get(number, frozenset()) | tied
        return found, list(_halves(model))


def _halves(model: ir.Model) -> Iterator[Half]:
    for graph in _graphs(model):
        inlined = homes(graph, {})
        for reader in (node for node in nodes_within(graph) if is_standard(node)):
            for value in (value for value in reader.inputs if value is not None):
                for maker in unrounded(reader, value, inlined):
                    if is_standard(maker):
                        yield Half(maker, reader)


def mark(model: ir.Model, changes: Iterable[Change]) -> dict[int, list[str]]:
    """Marks the nodes of these changes; returns, for each loop that they stood in, their operators."""
    nodes: dict[int, list[ir.Node]] = {}
    for node, _ in _nodes(model):
        if NUMBER in node.meta:
            nodes.setdefault(node.meta[NUMBER], []).append(node)
    told: dict[int, set[str]] = {}
    for change in changes:
        put = last_bits.mark_half if change.halves else last_bits.mark_moved
        for node in (node for number in change.marked for node in nodes.get(number, [])):
            put(node)
            for loop in change.loops:
                told.setdefault(loop, set()).add(node.op_type)
    return {loop: sorted(ops) for loop, ops in told.items()}


def mark_halves(before: Surroundings, model: ir.Model, halves: Sequence[Half]) -> dict[int, list[str]]:
    """Marks what an engine rounds before the next node, or does not, unlike in the original, where a lift took part.

    Returns:
        For each loop that the nodes stood in, the operators whose result it is.
    """
    joined = {half.numbers: half.maker for half in halves if half.lifted and half.numbers not in before.halves}
    parted = {numbers[0]: numbers for numbers in before.halves.difference(half.numbers for half in halves)}
    makers = list(joined.items())
    for node, _ in _nodes(model):
        number = _of_original(node)
        if number is not None and number in parted and LIFTED_FROM in node.metadata_props:
            makers.append((parted[number], node))
    told: dict[int, set[str]] = {}
    for numbers, maker in makers:
        last_bits.mark_half(maker)
        for number in numbers:
            if number is not None and number in before.owners:
                told.setdefault(before.owners[number], set()).add(maker.op_type)
    return {loop: sorted(ops) for loop, ops in told.items()}


def _of_original(node: ir.Node) -> int | None:
    number = node.meta.get(NUMBER, node.meta.get(COPY_OF))
    return number if isinstance(number, int) else None


def _number(node: ir.Node) -> int | None:
    number = node.meta.get(NUMBER)
    if isinstance(number, int):
        return number
    return LIFTED if LIFTED_FROM in node.metadata_props else None


def forget(model: ir.Model) -> None:
    """Takes the numbers off the nodes."""
    for node, _ in _nodes(model):
        node.meta.pop(NUMBER, None)
        node.meta.pop(COPY_OF, None)


def _graphs(model: ir.Model) -> list[GraphLike]:
    return [model.graph, *(function for function in model.functions.values() if function.domain != DOMAIN)]


def _nodes(model: ir.Model) -> Iterator[tuple[ir.Node, int | None]]:
    """Every node, with the origin of the innermost loop it stands in."""
    for graph in _graphs(model):
        yield from _inside(graph, None)


def _inside(graph: GraphLike, owner: int | None) -> Iterator[tuple[ir.Node, int | None]]:
    for node in graph:
        yield node, owner
        origin = node.metadata_props.get(ORIGIN) if is_any_loop(node) else None
        inner = owner if origin is None else int(origin)
        for held in subgraphs(node):
            yield from _inside(held, inner)


__all__ = ["Change", "Surroundings", "settle_bits"]

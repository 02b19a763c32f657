"""Lifts loops whose body is a known recurrence into recurrence nodes and vectorised ops.

Legality, each shown for the loop at hand or the loop stays:

1. The trip count is known before the loop starts (`patterns.loops.trip`).
2. Each carry that an output depends on is a recognised recurrence (`patterns.loops.evolution`), whose terms do not
   depend on the carry, nor two carries on each other.
3. Everything between the scan inputs, the states and the outputs has a rule that computes it for all iterations at
   once (`passes.vectorize`): the same operator on the same elements.
4. What is moved out of the body can't fail where the loop runs zero times (unless it surely runs): what is the same in
   every iteration can't fail at all (`patterns.graph.speculatable`), what is computed for all of them not by its shapes
   (`patterns.loops.empty_stacks`), terms that are joined broadcast for certain, and nothing but a copy reads states
   whose shape the first step may change.
5. A state whose node wants one shape keeps its shape; AddStep grows as the Loop does. States before the steps that
   may have two shapes can't be computed with; handed out as they are, they fail as in the Loop.
6. What is left in a smaller loop reads nothing that was taken out of it.
7. The definitions of our own ops are never entered.
8. No value is held for all iterations that takes far more memory than the loop's own tensors: 2 GiB where the trip
   count is known, else 256 times the largest element that is kept anyway (`patterns.loops.memory`).
9. A value that is the same in every iteration is repeated for each only if it is no bfloat16, since ONNX Runtime has no
   Expand of those, and not behind the batch axis of a Scan-8.
10. What is written exists in the model's opset: extents that may be zero need the Reshape of opset 14, constants other
    than floats and small integers opset 9; and before opset 11 a smaller loop keeps a carry, since Loop-1 wants one.
11. No attribute of a node that is moved refers to one of a function, and none holds a graph.
12. A node of a whole series stands for a cell (LSTM, GRU, RNN) that takes one step in each iteration, whose states
    are the carries, and whose weights do not vary (`patterns.loops.cells`); where there may be no step, in an If.
    Of an LSTM's c nothing but the last is read, since the operator hands out no other.
13. Several addends are joined only where additions wrap (integers), or bits are not asked for; a sign is taken out of a
    term only where the element type is known.

Not a condition, but asked too: that the target gains by it (`passes.targets.gain`).

Preserves bits: every rounded operation stays, in its order along time. Two things are the engine's choice and not
the rewrite's (`passes.graph.last_bits`): in which order a reduction or product inside one iteration adds its
elements, and how its vector code rounds a function such as Log. Such nodes are marked, and the report names the sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Sequence

import onnx_ir as ir

from looplift.passes.graph.body_types import types_around, while_unchanged
from looplift.passes.graph.edit import (
    drop_unread_outputs,
    rebuild,
    remove_node,
    replace_value,
)
from looplift.passes.graph.emit import Emitter, Refuse
from looplift.passes.graph.last_bits import MARK
from looplift.passes.journal import Journal
from looplift.passes.lift.sources import MovingParts
from looplift.passes.vectorize import OverTime
from looplift.passes.vectorize.rules import RULES
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import held_nodes, is_used, source, with_inner
from looplift.patterns.graph.view import Carry, LoopView, ScanOutput, ScanView, View, view_of
from looplift.patterns.graph.walk import Place, loops, node_name
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import Evolution, Invariant, Overwritten, Unknown, evolution_of
from looplift.patterns.loops.rows.cuts import row_cuts
from looplift.patterns.loops.trip import Trip, trip_of
from looplift.patterns.recurrences.recognise import recognise
from looplift.patterns.recurrences.recurrence import Question

LIFTED_FROM = "looplift.lifted_from"
RECURRENCE = "looplift.recurrence"
PROOF = "looplift.proof"

NoGain = Callable[[View, Sequence[ir.Value], Sequence[ir.Node], Emitter], "Refusal | None"]
"""Why a loop had better stay, given the values that a smaller one would still compute and the nodes written for it."""

Port = Carry | ScanOutput
"""An output of the loop: a carry's final value, or a stack."""


@dataclasses.dataclass(frozen=True)
class LiftRecurrences:
    """The pass; see the module's text for its conditions.

    Attributes:
        exact: False allows floating-point additions of one iteration to be joined.
        refuse: why a node may not stand for a loop, such as one that the target can't express.
        no_gain: why a loop had better stay, for all that it could be lifted.
    """

    exact: bool = True
    refuse: Refuse | None = None
    no_gain: NoGain | None = None

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Lifts every loop that can be, innermost first; loops are gathered before anything is changed.

        A loop inside another one is lifted for what it may gain as a part of that.
        """
        found = loops(model)
        inner = {id(node) for loop, _ in found for node in held_nodes(loop)}
        lift_inner = dataclasses.replace(self, no_gain=None).lift
        lifts = [(lift_inner if id(node) in inner else self.lift, node, place) for node, place in found]
        changed = False
        with while_unchanged() as forget:
            for lift, node, place in lifts:
                if lift(node, place, types_around(model, node), journal):
                    changed = True
                    forget()
        return changed

    def lift(self, node: ir.Node, place: Place, around: Types, journal: Journal) -> bool:
        """Lifts one loop, whole or in part; returns whether anything changed. The journal has what keeps the rest."""
        view = view_of(node, place.opset)
        trip = view if isinstance(view, Refusal) else trip_of(view, around)
        if isinstance(view, Refusal) or isinstance(trip, Refusal):
            assert isinstance(trip, Refusal)
            journal.refuse(node, trip)
            return False
        if self.refuse is not None and LIFTED_FROM in node.metadata_props:
            journal.refuse(node, Refusal("it is the target's own form of a loop that was lifted", node))
            return False
        journal.describe(node, trip_count=trip.fact.fact)
        attempt = Attempt(view, trip, around, exact=self.exact, refuse=self.refuse)
        ports = used_ports(view)
        stays = attempt.make(ports)
        slow = None if stays else self._no_gain(attempt, [])
        if not stays and slow is None:
            attempt.commit(place, journal)
            remove_node(node)
            return True
        attempt.emit.discard()
        journal.refuse(node, slow or next(iter(stays.values())))
        if slow is not None:
            return False
        return self._lift_part(view, trip, around, attempt, ports, stays, place, journal)

    def _lift_part(
        self,
        view: View,
        trip: Trip,
        around: Types,
        whole: Attempt,
        ports: Sequence[Port],
        stays: dict[int, Refusal],
        place: Place,
        journal: Journal,
    ) -> bool:
        """Takes out the recurrences that the rest of the loop does not read, if there are any."""
        parted, kept = _split(view, whole.dependence, ports, stays)
        if not any(_pays(port, view, whole) for port in parted):
            return False
        if isinstance(view, LoopView) and view.opset < 11 and not kept:
            return False  # Loop-1 wants at least one carried value
        attempt = Attempt(view, trip, around, exact=self.exact, refuse=self.refuse)
        carries = [carry for carry in view.carries if carry.index in kept]
        rest = [port for port in ports if isinstance(port, ScanOutput) and not _in(port, parted)]
        if attempt.make(parted) or self._no_gain(attempt, [*carries, *rest]) is not None:
            attempt.emit.discard()
            return False
        attempt.commit(place, journal)
        _shrink(view, carries, rest)
        return True

    def _no_gain(self, attempt: Attempt, kept: Iterable[Port]) -> Refusal | None:
        """Why a loop had better stay."""
        if self.no_gain is None:
            return None
        return self.no_gain(attempt.view, [_element(port) for port in kept], attempt.emit.nodes, attempt.emit)


class Attempt:
    """The nodes that would stand for a loop's outputs. Nothing in the graph changes until they are committed."""

    def __init__(self, view: View, trip: Trip, around: Types, *, exact: bool, refuse: Refuse | None = None) -> None:
        self.view, self.trip = view, trip
        cuts, types = row_cuts(view, around, trip)
        self.dependence = Dependence(view, types)
        self.evolutions: dict[int, Evolution] = {
            carry.index: evolution_of(carry, view, types, self.dependence, exact=exact) for carry in view.carries
        }
        answers = {
            carry.index: recognise(Question(carry, self.evolutions[carry.index], view, trip, types))
            for carry in view.carries
        }
        overwritten = {index for index, evolution in self.evolutions.items() if isinstance(evolution, Overwritten)}
        self.emit = Emitter(view.opset, types, refuse)
        self.parts = MovingParts(view, trip, answers, self.emit, overwritten)
        self.over = OverTime(view, types, self.dependence, trip, self.emit, self.parts, RULES, cuts)
        self.replacements: list[tuple[ir.Value, ir.Value]] = []

    def make(self, ports: Iterable[Port]) -> dict[int, Refusal]:
        """Writes the nodes for these outputs; returns why some can't be, by the identity of their ports."""
        refusals = {}
        for port in ports:
            unknown = self._unknown_state(port)
            if unknown is not None:
                refusals[id(port)] = unknown
                continue
            try:
                if isinstance(port, Carry):
                    old, new = port.final, self.parts.final(port, self.over)
                else:
                    old, new = port.stacked, self._scan_output(port)
            except Refused as refused:
                refusals[id(port)] = refused.refusal
                continue
            assert old is not None, "only outputs that are used are asked for"
            self.replacements.append((old, new))
        return refusals

    def _unknown_state(self, port: Port) -> Refusal | None:
        """Why a state that this output depends on has no known form: the reason that tells most."""
        for index in sorted(_needed(self.view, self.dependence, [port])):
            evolution = self.evolutions[index]
            if isinstance(evolution, Unknown):
                return evolution.refusal
        return None

    def _scan_output(self, output: ScanOutput) -> ir.Value:
        stored = [carry for carry in self.view.carries if carry.previous is source(output.element)]
        stack = self.parts.previous_states(stored[0], self.over) if stored else self.over.stack(output.element)
        if output.reverse:
            stack = self.parts.reverse(stack, self.over)
        if isinstance(self.view, ScanView) and (self.view.batched or output.axis):
            rank = self.over.rank(output.element) + 1
            axis = 1 if self.view.batched else output.axis % rank
            stack = self.emit.move_axis(stack, rank + self.over.lead - 1, 0, axis)
        return stack

    def commit(self, place: Place, journal: Journal) -> None:
        """Puts the nodes in front of the loop, moves its readers over to them and writes down what was done."""
        loop = self.view.node
        name = node_name(loop)
        self.emit.insert_before(loop)
        origin = journal.origin(loop) or f"{place.path.rstrip('/')}/{name}"
        every = [inner for node in self.emit.nodes for inner in with_inner(node)]
        for node in every:
            node.metadata_props[LIFTED_FROM] = origin
        for old, new in self.replacements:
            replace_value(old, new)
        for node in self.emit.nodes:
            if node.op_type == "If":
                drop_unread_outputs(node)
        for proof, node in self.parts.nodes:
            node.name = f"{name}/{proof.carry.previous.name}"
            node.metadata_props[RECURRENCE] = str(proof.evolution)
            node.metadata_props[PROOF] = "; ".join(map(str, proof.obligations))
            journal.found(loop, f"{proof.carry.previous.name}: {proof.evolution}")
        ops = sorted({node.op_type for _, node in self.parts.nodes})
        journal.did(loop, f"lifted into {', '.join(ops)}" if ops else "computed for all iterations at once")
        sums = sorted({node.op_type for node in every if node.metadata_props.get(MARK) == "sums"})
        if sums:
            text = f"{', '.join(sums)} of all iterations at once: an engine may add in another order (last bits)"
            journal.did(loop, text)


def used_ports(view: View) -> list[Port]:
    """The loop's outputs that anything reads."""
    stacks = [output for output in view.scan_outputs if output.stacked is not None and is_used(output.stacked)]
    return [*stacks, *(carry for carry in view.carries if carry.final is not None and is_used(carry.final))]


def _in(port: Port, ports: Iterable[Port]) -> bool:
    return any(port is other for other in ports)


def _element(port: Port) -> ir.Value:
    return port.updated if isinstance(port, Carry) else port.element


def _reads(port: Port, carries: set[int], dependence: Dependence) -> bool:
    """Whether the output depends on one of these carries."""
    return any(carry in carries for carry in _carries_read(port, dependence))


def _carries_read(port: Port, dependence: Dependence) -> set[int]:
    own = {port.index} if isinstance(port, Carry) else set()
    return own | {
        carry.index for carry in dependence.view.carries if dependence.reaches(carry.previous, _element(port))
    }


def _pays(port: Port, view: View, attempt: Attempt) -> bool:
    """Whether taking this output out of a loop that stays gains anything: a recurrence that is more than a counter."""
    plain = (Invariant, Overwritten, Unknown)
    if all(isinstance(attempt.evolutions[index], plain) for index in _carries_read(port, attempt.dependence)):
        return False
    shape = attempt.over.types[_element(port)].shape
    one_element = shape is not None and all(dim == 1 for dim in shape)
    return isinstance(port, ScanOutput) or not one_element


def _split(
    view: View, dependence: Dependence, ports: Sequence[Port], stays: Container[int]
) -> tuple[list[Port], set[int]]:
    """The outputs that can be parted from those that stay, and the carries that these need (a fixed point)."""
    parted = [port for port in ports if id(port) not in stays]
    while True:
        kept = _needed(view, dependence, [port for port in ports if not _in(port, parted)])
        fewer = [port for port in parted if not _reads(port, kept, dependence)]
        if len(fewer) == len(parted):
            return parted, kept
        parted = fewer


def _needed(view: View, dependence: Dependence, ports: Iterable[Port]) -> set[int]:
    """Indices of the carries that these outputs depend on, and those that they depend on in turn."""
    needed: set[int] = set()
    work = [index for port in ports for index in _carries_read(port, dependence)]
    while work:
        index = work.pop()
        if index not in needed:
            needed.add(index)
            work.extend(_carries_read(view.carries[index], dependence))
    return needed


def _shrink(view: View, carries: Sequence[Carry], scan_outputs: Sequence[ScanOutput]) -> None:
    """The loop with only these carries and scan outputs.

    What stays may ask for the shape, or the type, of a carry that goes: that of its initial value (`Dependence`).
    """
    for carry in view.carries:
        if carry not in carries:
            replace_value(carry.previous, carry.initial)
    rebuild(dataclasses.replace(view, carries=tuple(carries), scan_outputs=tuple(scan_outputs)))

"""Lifts loops whose body is a known recurrence into recurrence nodes and vectorised ops.

Legality, each shown for the loop at hand or the loop stays:

1. The trip count is known before the loop starts (`patterns.trip`).
2. Each carry that an output depends on is a recognised recurrence (`patterns.evolution`), whose terms do not depend
   on the carry, nor two carries on each other.
3. Everything between the scan inputs, the states and the outputs has a rule that computes it for all iterations at
   once (`passes.over_time`): the same operator on the same elements.
4. What is moved out of the body can't fail where the loop runs zero times.
5. A state whose node wants one shape keeps its shape; AddStep grows as the Loop does.
6. The definitions of our own ops are never entered.

Preserves bits: every rounded operation stays, in its order along time. Reductions and products inside one iteration
add over the same elements, in the engine's own order.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.emit import Emitter
from looplift.passes.journal import Journal
from looplift.passes.over_time import NotOverTime, OverTime
from looplift.passes.over_time.rules import RULES
from looplift.passes.recurrence_nodes import MovingParts
from looplift.passes.surgery import replace_value
from looplift.passes.walk import Place, loops, node_name
from looplift.patterns.dependence import Dependence
from looplift.patterns.evolution import Evolution, evolution_of
from looplift.patterns.proof import Refusal
from looplift.patterns.trip import Trip, trip_of
from looplift.patterns.types import Types
from looplift.patterns.values import is_used
from looplift.patterns.view import ScanOutput, ScanView, View, view_of

LIFTED_FROM = "looplift.lifted_from"
RECURRENCE = "looplift.recurrence"


@dataclasses.dataclass(frozen=True)
class LiftRecurrences:
    """The pass; see the module's text for its conditions.

    Attributes:
        exact: False allows floating-point additions of one iteration to be joined.
    """

    exact: bool = True

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Lifts every loop that can be, innermost first; loops are gathered before anything is changed."""
        changed = False
        for node, place in loops(model):
            outcome = self.lift(node, place, journal)
            if isinstance(outcome, Refusal):
                journal.refuse(node, outcome)
            else:
                changed = True
        return changed

    def lift(self, node: ir.Node, place: Place, journal: Journal) -> None | Refusal:
        """Lifts one loop whole, or says which obligation failed first."""
        view = view_of(node, place.opset)
        if isinstance(view, Refusal):
            return view
        types = Types().with_body(view)
        trip = trip_of(view, types)
        if isinstance(trip, Refusal):
            return trip
        attempt = _Attempt(view, types, trip, exact=self.exact)
        try:
            results = attempt.results()
        except NotOverTime as refused:
            attempt.emit.discard()
            return refused.refusal
        _commit(attempt, results, place, journal)
        return None


class _Attempt:
    """The nodes that would stand for one loop. Nothing in the graph changes until they are committed."""

    def __init__(self, view: View, types: Types, trip: Trip, *, exact: bool) -> None:
        self.view, self.types, self.trip = view, types, trip
        dependence = Dependence(view, types)
        self.evolutions: dict[int, Evolution] = {
            carry.index: evolution_of(carry, view, types, dependence, exact=exact) for carry in view.carries
        }
        self.emit = Emitter(view.opset, types)
        self.parts = MovingParts(view, trip, self.evolutions, self.emit)
        self.over = OverTime(view, types, dependence, trip, self.emit, self.parts, RULES)

    def results(self) -> list[tuple[ir.Value, ir.Value]]:
        """(output of the loop, value that replaces it) for every output that is used."""
        pairs = []
        for output in self.view.scan_outputs:
            if output.stacked is not None and is_used(output.stacked):
                pairs.append((output.stacked, self._scan_output(output)))
        for carry in self.view.carries:
            if carry.final is not None and is_used(carry.final):
                pairs.append((carry.final, self.parts.final(carry, self.over)))
        return pairs

    def _scan_output(self, output: ScanOutput) -> ir.Value:
        stack = self.over.stack(output.element)
        if output.reverse:
            stack = self.parts.reverse(stack, self.over)
        if isinstance(self.view, ScanView) and (self.view.batched or output.axis):
            rank = self.over.rank(output.element) + 1
            axis = 1 if self.view.batched else output.axis % rank
            stack = self.emit.move_axis(stack, rank + self.over.lead - 1, 0, axis)
        return stack


def _commit(attempt: _Attempt, results: list[tuple[ir.Value, ir.Value]], place: Place, journal: Journal) -> None:
    """Puts the new nodes in, moves the readers over, takes the loop out and writes down what was done."""
    loop = attempt.view.node
    attempt.emit.insert_before(loop)
    for old, new in results:
        replace_value(old, new)
    for carry, node in attempt.parts.nodes:
        evolution = str(attempt.evolutions[carry.index])
        node.name = f"{node_name(loop)}/{carry.previous.name}"
        node.metadata_props[LIFTED_FROM] = f"{place.path.rstrip('/')}/{node_name(loop)}"
        node.metadata_props[RECURRENCE] = evolution
        journal.found(loop, f"{carry.previous.name}: {evolution}")
    journal.did(loop, f"lifted: {attempt.trip.fact.fact}")
    place.graph.remove(loop, safe=True)

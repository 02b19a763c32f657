"""Says in words what each loop of a model does, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from looplift.passes.journal import Journal
from looplift.passes.stack.stack_concats import Growth, growth_of
from looplift.passes.stack.stack_scatters import RowWrites, row_writes_of
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import behind, reads, with_inner
from looplift.patterns.graph.view import Carry, LoopView, View, view_of
from looplift.patterns.graph.walk import loops
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import Invariant, Unknown, evolution_of
from looplift.patterns.loops.rows.appends import Appends, appends_of
from looplift.patterns.loops.trip import trip_of

UNKNOWN_TRIPS = "not known before the loop runs"


def describe_loops(model: ir.Model, journal: Journal) -> None:
    """Notes the trip count and each carry's evolution for every loop."""
    for node, place in loops(model):
        view = view_of(node, place.opset)
        if isinstance(view, Refusal):
            journal.refuse(node, view)
            continue
        types = Types().with_body(view)
        dependence = Dependence(view, types)
        trip = trip_of(view, types)
        sentences = [f"{carry.previous.name}: {_words(carry, view, types, dependence)}" for carry in view.carries]
        text = UNKNOWN_TRIPS if isinstance(trip, Refusal) else trip.fact.fact
        journal.describe(node, trip_count=text, carries=sentences)


def describe_costs(model: ir.Model, journal: Journal, refused: Mapping[ir.Node, Refusal]) -> None:
    """Notes for every loop which of the nodes in it, or of those that it reads from, would have cost too much."""
    for node, _ in loops(model) if refused else ():
        inside = (inner for inner in with_inner(node) if inner in refused)
        made = (part.producer() for value in reads(node) for part in behind(value, _operands))
        costly = next(inside, None) or next((maker for maker in made if maker in refused), None)
        if costly is not None:
            journal.too_costly(node, refused[costly])


def _operands(value: ir.Value) -> Sequence[ir.Value | None]:
    node = value.producer()
    return () if node is None else node.inputs


def _words(carry: Carry, view: View, types: Types, dependence: Dependence) -> str:
    """For example ``add-step by 'step'``."""
    evolution = evolution_of(carry, view, types, dependence)
    if isinstance(evolution, Invariant):
        return "never changes"
    if not isinstance(evolution, Unknown):
        return str(evolution)
    if isinstance(view, LoopView):
        appends = appends_of(view, carry)
        if isinstance(appends, Appends):
            return f"a list that {'some iterations add' if appends.chosen else 'every iteration adds'} to"
        growth = growth_of(view, carry, types)
        if isinstance(growth, Growth):
            return f"an array that {'some iterations make' if growth.path else 'every iteration makes'} longer"
    if isinstance(row_writes_of(view, carry, types), RowWrites):
        return "an array of which every iteration writes a row"
    return str(evolution)

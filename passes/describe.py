"""Says in words what each loop of a model does, before anything is changed."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.journal import Journal
from looplift.passes.walk import loops
from looplift.patterns.dependence import Dependence
from looplift.patterns.evolution import Evolution, Invariant, evolution_of
from looplift.patterns.proof import Refusal
from looplift.patterns.trip import trip_of
from looplift.patterns.types import Types
from looplift.patterns.view import Carry, view_of


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
        sentences = [sentence(carry, evolution_of(carry, view, types, dependence)) for carry in view.carries]
        text = str(trip) if isinstance(trip, Refusal) else trip.fact.fact
        journal.describe(node, trip_count=text, carries=sentences)


def sentence(carry: Carry, evolution: Evolution) -> str:
    """For example ``v: add-step by 'step'``."""
    return f"{carry.previous.name}: " + ("never changes" if isinstance(evolution, Invariant) else str(evolution))

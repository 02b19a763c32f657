"""What a recogniser is asked and what it answers, and the obligations that several share."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.refusal import Obligation, Refusal
from looplift.patterns.graph.speculatable import broadcast_surely
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import Carry, LoopView, View
from looplift.patterns.loops.evolution import (
    Additions,
    AddStep,
    CellState,
    Continued,
    Evolution,
    LinearRecurrence,
    PrefixSum,
    Resets,
    RunningFlag,
)
from looplift.patterns.loops.trip import Trip


@dataclasses.dataclass(frozen=True)
class Question:
    """One carry of a loop with what is known of both."""

    carry: Carry
    evolution: Evolution
    view: View
    trip: Trip
    types: Types


@dataclasses.dataclass(frozen=True)
class RecurrenceProof:
    """A carry is a recurrence: its form, and each obligation with the fact that discharged it."""

    carry: Carry
    evolution: AddStep | PrefixSum | Additions | RunningFlag | Resets | LinearRecurrence | Continued | CellState
    obligations: tuple[Obligation, ...]


def keeps_shape(question: Question) -> Obligation | Refusal:
    """That no iteration changes the state's shape: by Scan's own rule, or because one trip round the body keeps it."""
    name, fact = question.carry.previous.name, question.types[question.carry.previous]
    if not isinstance(question.view, LoopView):
        return Obligation("the state keeps its shape", "a Scan's state may not change it")
    if fact.shape is None or None in fact.shape:
        initial = question.types[question.carry.initial]
        return Refusal(f"whether '{name}' keeps its shape is not known ({initial})", question.view.node)
    return Obligation("the state keeps its shape", f"{fact} before and after every iteration")


def series_proof(
    question: Question,
    evolution: PrefixSum | Additions | RunningFlag | Resets | LinearRecurrence | Continued | CellState,
    once: str,
    free: str,
) -> RecurrenceProof | Refusal:
    """The proof of a recurrence over a series: what one iteration does once, and what does not depend on the state."""
    shape = keeps_shape(question)
    if isinstance(shape, Refusal):
        return shape
    path = f"'{question.carry.previous.name}' reaches the update on one path"
    obligations = (question.trip.fact, Obligation(once, str(evolution)), Obligation(free, path), shape)
    return RecurrenceProof(question.carry, evolution, obligations)


def fits_state(question: Question, value: ir.Value | None) -> Obligation | Refusal:
    """That a value broadcasts to the state's shape, and does not widen it."""
    state, shape = question.types[question.carry.previous].shape or (), question.types[value].shape
    name = "" if value is None else value.name
    if shape is None or not broadcast_surely([state, shape]) or len(shape) > len(state):
        return Refusal(f"whether '{name}' broadcasts to the state is not known", question.view.node)
    return Obligation(f"'{name}' fits", "it broadcasts to the state")

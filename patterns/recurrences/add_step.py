"""Recognises add-step: ``v = v + step`` with a step that is the same in every iteration."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Obligation, Refusal
from looplift.patterns.loops.evolution import AddStep
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is an add-step, or the first obligation that failed.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one iteration adds once: the update is the previous value plus (minus) one value, through copies only; for
       integers, whose addition wraps, any number of values;
    3. the step depends on nothing that the loop changes;
    4. shape: none for a Loop, since the node grows its state as the Loop does; a Scan's state may not change.
    """
    evolution = question.evolution
    if not isinstance(evolution, AddStep):
        return Refusal(f"'{question.carry.previous.name}' is no add-step: {evolution}")
    steps = ", ".join(f"'{term.value.name}'" for term in evolution.steps if term.value is not None)
    return RecurrenceProof(
        question.carry,
        evolution,
        (
            question.trip.fact,
            Obligation("each iteration adds once", str(evolution)),
            Obligation("the step is the same in every iteration", f"{steps} read nothing that the loop changes"),
            Obligation("shape", "the node's state grows in the first iteration if the Loop's does"),
        ),
    )

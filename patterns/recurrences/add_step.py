"""Recognises add-step: ``v = v + step`` with a step that is the same in every iteration."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Obligation, Refusal
from looplift.patterns.graph.speculatable import broadcast_perhaps
from looplift.patterns.loops.evolution import AddStep
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is an add-step, or the first obligation that failed.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one iteration adds once: the update is the previous value plus (minus) one value, through copies only; for
       integers, whose addition wraps, any number of values;
    3. the step depends on nothing that the loop changes;
    4. shape: for a Loop only that the state and the steps may be of shapes that can be added, since the node grows its
       state as the Loop does, and an engine refuses a node that surely fails, even if it is not reached; a Scan's state
       may not change.
    """
    evolution = question.evolution
    if not isinstance(evolution, AddStep):
        return Refusal(f"'{question.carry.previous.name}' is no add-step: {evolution}")
    added = [term.value for term in evolution.steps if term.value is not None]
    shapes = [question.types[value].shape for value in (question.carry.initial, *added)]
    if not broadcast_perhaps(shapes):
        return Refusal("the state and the step are of shapes that can't be added", question.view.node)
    steps = ", ".join(f"'{value.name}'" for value in added)
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

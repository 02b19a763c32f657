"""Recognises recurrences in two nested loops: the outer one runs the inner one again and again from the same state."""

from __future__ import annotations

from looplift.patterns.continued import Continued
from looplift.patterns.proof import Obligation, Refusal
from looplift.patterns.recurrence import Question, RecurrenceProof, keeps_shape


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that all inner steps, one after the other, are the steps of one recurrence; or why not.

    Obligations:

    1. the trip count is known before the loop starts;
    2. the state goes from one inner recurrence straight into the next;
    3. what the inner steps read does not depend on the state;
    4. the state keeps its shape.
    """
    evolution, name = question.evolution, question.carry.previous.name
    if not isinstance(evolution, Continued):
        return Refusal(f"'{name}' is not carried on by an inner loop: {evolution}")
    shape = keeps_shape(question)
    if isinstance(shape, Refusal):
        return shape
    return RecurrenceProof(
        question.carry,
        evolution,
        (
            question.trip.fact,
            Obligation("the inner steps follow one another", str(evolution)),
            Obligation("what they read does not depend on the state", f"'{name}' reaches the update on one path"),
            shape,
        ),
    )

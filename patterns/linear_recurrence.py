"""Recognises element-wise linear recurrences: ``v = a[t]*v + b[t]``."""

from __future__ import annotations

from looplift.patterns.evolution import LinearRecurrence
from looplift.patterns.proof import Obligation, Refusal
from looplift.patterns.recurrence import Question, RecurrenceProof, keeps_shape


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is a linear recurrence, or the first obligation that failed.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one iteration multiplies once, element by element, then adds once (or not at all), each rounded by itself;
    3. neither factor nor addend depends on the carry itself;
    4. the state keeps its shape.
    """
    evolution = question.evolution
    if not isinstance(evolution, LinearRecurrence):
        return Refusal(f"'{question.carry.previous.name}' is no linear recurrence: {evolution}")
    shape = keeps_shape(question)
    if isinstance(shape, Refusal):
        return shape
    name = question.carry.previous.name
    return RecurrenceProof(
        question.carry,
        evolution,
        (
            question.trip.fact,
            Obligation("each iteration multiplies once, then adds once", str(evolution)),
            Obligation("factor and addend do not depend on the state", f"'{name}' reaches the update on one path"),
            shape,
        ),
    )

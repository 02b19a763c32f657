"""Recognises element-wise linear recurrences: ``v = a[t]*v + b[t]``."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.evolution import LinearRecurrence
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, series_proof


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
    return series_proof(
        question,
        evolution,
        "each iteration multiplies once, then adds once",
        "factor and addend do not depend on the state",
    )

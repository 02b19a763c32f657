"""Recognises recurrences in two nested loops: the outer one runs the inner one again and again from the same state."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.continued import Continued
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, series_proof


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that all inner steps, one after the other, are the steps of one recurrence; or why not.

    Obligations:

    1. the trip count is known before the loop starts;
    2. the state goes from one inner recurrence straight into the next;
    3. what the inner steps read does not depend on the state;
    4. the state keeps its shape.
    """
    evolution = question.evolution
    if not isinstance(evolution, Continued):
        return Refusal(f"'{question.carry.previous.name}' is not carried on by an inner loop: {evolution}")
    return series_proof(
        question, evolution, "the inner steps follow one another", "what they read does not depend on the state"
    )

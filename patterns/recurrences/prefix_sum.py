"""Recognises prefix sums: ``v = v + x[t]``."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.evolution import PrefixSum
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, series_proof


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is a prefix sum, or the first obligation that failed.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one iteration adds once (integers: any number of values), as for add-step;
    3. what is added does not depend on the carry itself;
    4. the state keeps its shape.
    """
    evolution = question.evolution
    if not isinstance(evolution, PrefixSum):
        return Refusal(f"'{question.carry.previous.name}' is no prefix sum: {evolution}")
    return series_proof(question, evolution, "each iteration adds once", "what is added does not depend on the state")

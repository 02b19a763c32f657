"""Recognises states that are set to a value now and then, and else kept or, if they are integers, added to."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Obligation, Refusal
from looplift.patterns.loops.evolution import Resets
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, series_proof

OLDEST = 11
"""Opset of CumSum."""


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is a sum with resets, or the last value that was set; or why not.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one condition decides for the whole state, and it does not depend on the carry;
    3. nor does the value, which has the shape of the state, nor what is added;
    4. what is added is of integers: a sum from the last reset on is the difference of two sums, which is exact where
       arithmetic wraps;
    5. the state keeps its shape, and there is a running sum for the count of resets (opset 11).
    """
    evolution = question.evolution
    if not isinstance(evolution, Resets):
        return Refusal(f"'{question.carry.previous.name}' is not set now and then: {evolution}")
    if question.view.opset < OLDEST:
        return Refusal(f"counting resets needs opset {OLDEST}", question.view.node)
    proof = series_proof(question, evolution, "each iteration sets, keeps or adds", "nothing read depends on the state")
    if isinstance(proof, Refusal):
        return proof
    state = question.types[question.carry.previous]
    if not question.types[evolution.value].same_shape(state):
        return Refusal(f"whether '{evolution.value.name}' has the shape of the state is not known", question.view.node)
    fits = Obligation("the value fits", "it has the shape of the state")
    return RecurrenceProof(proof.carry, proof.evolution, (*proof.obligations, fits))

"""Recognises truth values that are joined over time: ``v = v or x[t]``, and And and Xor."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.evolution import RunningFlag
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, fits_state, series_proof

OLDEST = 11
"""Opset of CumSum."""


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is a running Or, And or Xor, or the first obligation that failed.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one iteration joins the state with one value, by one operator;
    3. that value does not depend on the carry itself;
    4. the state keeps its shape, and the value broadcasts to it;
    5. a running sum is at hand (opset 11): how many values were true says what became of the state. It is counted in
       int64, which no loop makes overflow.
    """
    evolution = question.evolution
    if not isinstance(evolution, RunningFlag):
        return Refusal(f"'{question.carry.previous.name}' is no running flag: {evolution}")
    if question.view.opset < OLDEST:
        return Refusal(f"a {evolution} needs opset {OLDEST}", question.view.node)
    proof = series_proof(question, evolution, "each iteration joins once", "the value does not depend on the state")
    if isinstance(proof, Refusal):
        return proof
    fits = fits_state(question, evolution.value)
    if isinstance(fits, Refusal):
        return fits
    return RecurrenceProof(proof.carry, proof.evolution, (*proof.obligations, fits))

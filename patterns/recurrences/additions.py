"""Recognises several additions in every iteration: ``v = (v + x[t]) + y[t]``, each of which rounds."""

from __future__ import annotations

import onnx_ir as ir

from looplift.patterns.graph.refusal import Obligation, Refusal
from looplift.patterns.loops.evolution import Additions
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, fits_state, series_proof

SUMMED = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""Element types of which engines make a running sum; integers need none of this, since their additions join."""

OLDEST = 11
"""Opset of CumSum."""


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is a prefix sum of all that is added, one after the other, or why not.

    Obligations:

    1. the trip count is known before the loop starts;
    2. one iteration adds several values to the state, in an order that is kept;
    3. what is added does not depend on the carry itself;
    4. the state keeps its shape, and what is added broadcasts to it;
    5. a running sum is at hand: float or double, opset 11 or later. A step for each addition costs more otherwise than
       a loop does.
    """
    evolution = question.evolution
    if not isinstance(evolution, Additions):
        return Refusal(f"'{question.carry.previous.name}' is not added to in a row: {evolution}")
    state = question.types[question.carry.previous]
    if state.dtype not in SUMMED or question.view.opset < OLDEST:
        return Refusal("two additions in a row round twice, and joining them would round once", question.view.node)
    proof = series_proof(question, evolution, "each addition is a step", "what is added does not depend on the state")
    if isinstance(proof, Refusal):
        return proof
    fits = [fits_state(question, term.value) for term in evolution.addends]
    refusal = next((each for each in fits if isinstance(each, Refusal)), None)
    proven = tuple(each for each in fits if isinstance(each, Obligation))
    return refusal or RecurrenceProof(proof.carry, proof.evolution, (*proof.obligations, *proven))

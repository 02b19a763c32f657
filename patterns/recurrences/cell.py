"""Recognises recurrent cells: one step of an LSTM, GRU or RNN in each iteration."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.cells import CellState
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof, series_proof


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """A proof that the carry is a state of a cell that takes one step an iteration, or the obligation that failed.

    Obligations:

    1. the trip count is known before the loop starts;
    2. each iteration takes one step, from the states that the last one handed out (`patterns.loops.cells`);
    3. what the step reads does not depend on the cell's states, and its weights never change;
    4. the state keeps its shape.
    """
    evolution = question.evolution
    if not isinstance(evolution, CellState):
        return Refusal(f"'{question.carry.previous.name}' is no state of a cell: {evolution}")
    return series_proof(
        question, evolution, "each iteration takes one step", "what the cell reads does not depend on its states"
    )

"""Asks each recogniser in turn what a carry is."""

from __future__ import annotations

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.loops.evolution import (
    Additions,
    AddStep,
    CellState,
    Continued,
    Invariant,
    LinearRecurrence,
    Overwritten,
    PrefixSum,
    Resets,
    RunningFlag,
    Unknown,
)
from looplift.patterns.recurrences import (
    add_step,
    additions,
    cell,
    linear_recurrence,
    nested,
    prefix_sum,
    resets,
    running_flag,
)
from looplift.patterns.recurrences.recurrence import Question, RecurrenceProof

RECOGNISERS = {
    AddStep: add_step.recognise,
    PrefixSum: prefix_sum.recognise,
    Additions: additions.recognise,
    Resets: resets.recognise,
    RunningFlag: running_flag.recognise,
    LinearRecurrence: linear_recurrence.recognise,
    Continued: nested.recognise,
    CellState: cell.recognise,
}
"""Each form has one recogniser."""


def recognise(question: Question) -> RecurrenceProof | Refusal:
    """The proof that a carry is a recurrence, or why it is none."""
    evolution, name = question.evolution, question.carry.previous.name
    if isinstance(evolution, Unknown):
        return evolution.refusal
    if isinstance(evolution, Invariant):
        return Refusal(f"'{name}' never changes", question.view.node)
    if isinstance(evolution, Overwritten):
        return Refusal(f"'{name}' is overwritten in every iteration", question.view.node)
    return RECOGNISERS[type(evolution)](question)

"""One PrefixSum for a state that is added to several times in every iteration: a step for each addition."""

from __future__ import annotations

import math

import onnx_ir as ir

from looplift.passes.graph.trip_counts import to_vector
from looplift.passes.recurrences.nodes import new_node, signed, written
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.evolution import Additions, Term

KEEPS_ZEROS = 14
"""Opset from which Reshape can be told that an extent of 0 means 0."""


WIDEST = 256
"""Elements of a state up to which twice as many steps of a running sum are faster than a Loop (ONNX Runtime 1.32)."""


def all_additions(carry: Carry, evolution: Additions, over: OverTime, previous: bool) -> ir.Node:
    """PrefixSum (v_initial, x) of x ``[N * k, *state]``: the k addends of each of N iterations one after the other."""
    emit, dims = over.emit, over.types[carry.previous].shape or ()
    if over.lead != 1:
        raise Refused(Refusal("several additions in a row in a Scan with a batch axis", over.view.node))
    known = [dim for dim in dims if isinstance(dim, int) and dim > 0]
    if emit.opset < KEEPS_ZEROS and len(known) < len(dims):
        raise Refused(Refusal("extents may be 0, and opset 14 is needed", over.view.node))
    if len(known) == len(dims) and math.prod(known) > WIDEST:
        raise Refused(Refusal("so wide a state gains nothing by a step for each addition", over.view.node))
    count, state = to_vector(emit, over.trip_count()), emit.op("Shape", [carry.initial])
    rows = emit.op("Concat", [count, state], {"axis": 0})
    columns = [
        emit.unsqueeze(emit.op("Expand", [_rows(term, len(dims), over), rows]), [1]) for term in evolution.addends
    ]
    steps = emit.op("Concat", [emit.op("Mul", [count, emit.const([len(columns)])]), state], {"axis": 0})
    # Before opset 14 an extent of 0 is copied: only that of the iterations can be 0, and is 0 before, too.
    flags: dict[str, ir.Attr | int | list[int]] = {"allowzero": 1} if emit.opset >= KEEPS_ZEROS else {}
    series = emit.op("Reshape", [emit.op("Concat", columns, {"axis": 1}), steps], flags)
    return written(new_node("PrefixSum", [carry.initial, series], previous=previous), carry, over)


def of_iterations(rows: ir.Value, evolution: Additions, over: OverTime, *, previous: bool) -> ir.Value:
    """The states before or after each iteration, of those before or after each addition."""
    count = len(evolution.addends)
    return over.emit.slice(rows, 0 if previous else count - 1, INT64_MAX, 0, step=count)


def _rows(term: Term, rank: int, over: OverTime) -> ir.Value:
    """A term with time first, or, where it is the same in every iteration, without."""
    assert term.value is not None
    return signed(over.operand(term.value, rank), term, over)

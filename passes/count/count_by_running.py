"""Counts the iterations of a Loop whose exit test needs nothing but constants, by computing the test until it fails."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.count.count_while_loops import counted
from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import to_scalar
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant, scalar
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import LoopView, view_of
from looplift.patterns.graph.walk import loops
from looplift.patterns.loops.evaluate import Simulation

LONGEST = 5_000
"""Iterations that are tried."""


@dataclasses.dataclass(frozen=True)
class CountByRunning:
    """Gives a loop such as ``t = 0.0; while t < 1.0: t += 0.01`` its trip count as a constant.

    Legal if
    1. the body's cond is closed (`patterns.loops.evaluate`): made from constants, the iteration number, and carries
       that start as constants and are updated by closed values alone;
    2. computed iteration by iteration, it is false at last, after `LONGEST` iterations at most;
    3. the opset is 9 or later.

    M, if there is one, stays a bound, and so does the cond. Where the node has no cond input, the body's cond is
    obeyed, as for `CountWhileLoops`. Preserves bits: every op that is computed here rounds as the standard says.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        return any([_count(model, node, place.opset, journal) for node, place in loops(model)])


def _count(model: ir.Model, node: ir.Node, opset: int, journal: Journal) -> bool:
    view = view_of(node, opset)
    if not isinstance(view, LoopView) or opset < 9 or source(view.condition_out) is view.condition_in:
        return False
    if constant(view.condition_out, opset) is not None:
        return False
    number = trips(view, types_around(model, node).with_body(view))
    if number is None:
        return False
    emit = Emitter(opset, Types())
    limit = _limit(view, number, emit)
    emit.insert_before(node)
    true = view.condition is None or scalar(view.condition, opset) is True
    new = counted(view, limit, None if true else view.condition)
    emit.drop_unused()
    journal.did(new.node, f"counted {number} iterations before its exit test, made of constants, fails")
    return True


def trips(view: LoopView, types: Types) -> int | None:
    """How many iterations run if the first one does, M aside; None if that can't be found out."""
    simulation = Simulation(view, types)
    if not simulation.holds(view.condition_out):
        return None
    for number, (test,) in enumerate(simulation.run([view.condition_out]), start=1):
        if test.size != 1 or number > LONGEST:
            return None
        if not test.reshape(-1)[0]:
            return number
    return None


def _limit(view: LoopView, number: int, emit: Emitter) -> ir.Value:
    bound = emit.const(number)
    if view.max_trip is None:
        return bound
    known = scalar(view.max_trip, view.opset)
    if isinstance(known, int):
        return emit.const(min(known, number))
    given = to_scalar(emit, view.max_trip)
    return emit.op("Where", [emit.op("Less", [given, bound]), given, bound])

"""States that are set to a value now and then, in ordinary operators over all iterations at once."""

from __future__ import annotations

import math

import onnx_ir as ir

from looplift.passes.recurrences.nodes import prefix_sum
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.evolution import PrefixSum, Resets

WIDEST = 256
"""Elements of a state up to which it pays to hold all states and take them apart (ONNX Runtime 1.32)."""


def all_states(carry: Carry, evolution: Resets, over: OverTime) -> ir.Value:
    """The state after each iteration, time first.

    With c resets up to an iteration it is what the c-th reset set, or the initial value. Where integers are added: plus
    the sum of all that was added since, which is the sum of everything less the sum up to that reset.
    """
    emit = over.emit
    if over.lead != 1 or not over.varies(evolution.condition) or not over.varies(evolution.value):
        raise Refused(Refusal("resets by a condition, or to a value, that is always the same", over.view.node))
    known = [dim for dim in over.types[carry.previous].shape or () if isinstance(dim, int)]
    if len(known) == over.rank(carry.previous) and math.prod(known) > WIDEST:
        raise Refused(Refusal(f"so wide a state gains nothing by taking a {evolution} apart", over.view.node))
    chosen = emit.op("Reshape", [over.stack(evolution.condition), emit.const([-1])])
    chosen = chosen if evolution.when else emit.op("Not", [chosen])
    number = emit.op("CumSum", [emit.op("Cast", [chosen], {"to": int(ir.DataType.INT64)}), emit.const(0)])
    places = emit.op("Reshape", [emit.op("NonZero", [chosen]), emit.const([-1])])
    first = emit.unsqueeze(carry.initial, [0])
    if not evolution.addends:
        # What a choice between a value and itself is for: an engine that takes 0 for some -0 of a Where still does.
        test = over.operand(evolution.condition, over.rank(evolution.value))
        series = emit.op("Where", [test, over.stack(evolution.value), over.stack(evolution.value)])
        found = emit.op("Concat", [first, emit.op("Gather", [series, places], {"axis": 0})], {"axis": 0})
        states = emit.op("Gather", [found, number], {"axis": 0})
        return emit.op("Where", [test, states, states])
    values = emit.op("Gather", [over.stack(evolution.value), places], {"axis": 0})
    sums = prefix_sum(carry, PrefixSum(evolution.addends), over, False).outputs[1]
    since = emit.op("Sub", [values, emit.op("Gather", [sums, places], {"axis": 0})])
    found = emit.op("Concat", [emit.op("Sub", [first, first]), since], {"axis": 0})
    return emit.op("Add", [sums, emit.op("Gather", [found, number], {"axis": 0})])

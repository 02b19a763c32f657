"""One PrefixSum for truth values that are joined over time: how many were true, or false, says what they came to."""

from __future__ import annotations

import math

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import to_vector
from looplift.passes.recurrences.nodes import new_node
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.evolution import RunningFlag

WIDEST = 128
"""Elements of a state up to which counting in int64 is faster than a Scan of one byte each (ONNX Runtime 1.32)."""


def counted(carry: Carry, evolution: RunningFlag, over: OverTime, previous: bool) -> ir.Node:
    """PrefixSum (v_initial, x) in int64 of the true values; of the false ones for And."""
    emit, dims = over.emit, over.types[carry.previous].shape or ()
    if over.lead != 1:
        raise Refused(Refusal(f"a {evolution} in a Scan with a batch axis", over.view.node))
    known = [dim for dim in dims if isinstance(dim, int)]
    if len(known) == len(dims) and math.prod(known) > WIDEST:
        raise Refused(Refusal(f"so wide a state gains nothing by counting for a {evolution}", over.view.node))
    rows = emit.op("Concat", [to_vector(emit, over.trip_count()), emit.op("Shape", [carry.initial])], {"axis": 0})
    series = emit.op("Expand", [_ones(over.operand(evolution.value, len(dims)), evolution, emit), rows])
    node = new_node("PrefixSum", [_ones(carry.initial, evolution, emit), series], previous=previous)
    for output in node.outputs:
        output.type = ir.TensorType(ir.DataType.INT64)
    return emit.add(node)


def flags(counts: ir.Value, evolution: RunningFlag, emit: Emitter) -> ir.Value:
    """The truth values of these counts: none is false for And, one is true for Or, an odd number is for Xor."""
    if evolution.op == "And":
        return emit.op("Equal", [counts, emit.const(0)])
    if evolution.op == "Xor":
        counts = emit.op("Mod", [counts, emit.const(2)])
    return emit.op("Cast", [counts], {"to": int(ir.DataType.BOOL)})


def _ones(value: ir.Value, evolution: RunningFlag, emit: Emitter) -> ir.Value:
    counts = emit.op("Not", [value]) if evolution.op == "And" else value
    return emit.op("Cast", [counts], {"to": int(ir.DataType.INT64)})

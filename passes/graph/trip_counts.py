"""Trip counts as values of a graph: M and cond, which may have an axis of extent 1, made one number."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter

MAX_OF_INTEGERS = 12
"""Max and Min take int64 from this opset on."""


def to_scalar(emit: Emitter, value: ir.Value) -> ir.Value:
    """A tensor of one element without its axes."""
    if value.shape is not None and len(value.shape) == 0:
        return value
    return emit.op("Reshape", [value, emit.const(np.zeros(0, np.int64))])


def to_vector(emit: Emitter, value: ir.Value) -> ir.Value:
    """A tensor of one element with one axis."""
    if value.shape is not None and tuple(value.shape) == (1,):
        return value
    if value.shape is not None and len(value.shape) == 0:
        return emit.unsqueeze(value, [0])  # shape inference knows the number then, unlike that of a Reshape
    return emit.op("Reshape", [value, emit.const([1])])


def not_negative(emit: Emitter, limit: ir.Value, condition: ir.Value | None) -> ir.Value:
    """The number of iterations by M and cond: an int64 scalar (opset 9 or later)."""
    limit, zero = to_scalar(emit, limit), emit.const(0)
    if condition is None and emit.opset >= MAX_OF_INTEGERS:
        return emit.op("Max", [limit, zero])
    runs = emit.op("Greater", [limit, zero])
    if condition is not None:
        runs = emit.op("And", [runs, to_scalar(emit, condition)])
    return emit.op("Where", [runs, limit, zero])

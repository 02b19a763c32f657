"""A series, one element per time, as the standard forms need it: its length, its rows broadcast to the state."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms.call import Call, size
from looplift.passes.recurrences.forms.pieces import Count, extents
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.types import TensorType


def static_length(fact: TensorType) -> int | None:
    """The number of steps, if known."""
    length = fact.shape[0] if fact.shape else None
    return length if isinstance(length, int) else None


def length(emit: Emitter, series: ir.Value, fact: TensorType) -> Count:
    """The number of steps."""
    static = static_length(fact)
    return Count(emit.const(static) if static is not None else emit.extent(series, 0), static)


def element(fact: TensorType) -> TensorType:
    """The type of one element."""
    return TensorType(fact.dtype, None if fact.shape is None else fact.shape[1:])


def as_rows(emit: Emitter, call: Call, series: int, state: int) -> ir.Value:
    """The series with every element broadcast to the shape of the state; input numbers of both."""
    value, fact, like = call.input(series), call.facts[series], call.facts[state]
    own = element(fact)
    if own.shape is not None and own.same_shape(like):
        return value
    if size(like) == 0 and like.dtype is not None:
        # onnx's shape inference broadcasts 1 and 0 to 1, so no Expand: there is nothing to expand.
        rows = extents(emit, emit.extent(value, 0), call.input(state))
        nothing = ir.tensor(np.zeros(1, like.dtype.numpy()), dtype=like.dtype)
        return emit.op("ConstantOfShape", [rows], {"value": ir.AttrTensor("value", nothing)})
    if own.rank is not None and like.rank is not None:
        value = emit.unsqueeze(value, range(1, 1 + like.rank - own.rank))
    else:
        value = _with_rank(emit, value, call.input(state))
    steps = emit.extent(call.input(series), 0)
    return emit.op("Expand", [value, extents(emit, steps, call.input(state))])


def _with_rank(emit: Emitter, series: ir.Value, state: ir.Value) -> ir.Value:
    """The series with as many axes behind time as the state has; ranks are measured when the model runs."""
    shape, one = emit.op("Shape", [series]), ir.AttrTensor("value", ir.tensor(np.ones(1, np.int64)))
    ranks = [emit.op("Shape", [emit.op("Shape", [state])]), emit.op("Shape", [shape])]
    missing = emit.op("Sub", [emit.op("Add", [ranks[0], emit.const([1])]), ranks[1]])
    ones = emit.op("ConstantOfShape", [missing], {"value": one})
    parts = [emit.slice(shape, 0, 1, 0), ones, emit.slice(shape, 1, INT64_MAX, 0)]
    return emit.op("Reshape", [series, emit.op("Concat", parts, {"axis": 0})])

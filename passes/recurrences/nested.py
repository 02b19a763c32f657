"""One recurrence node for two nested loops: the inner steps of all outer iterations, one after the other.

With T inner steps in each of N outer iterations, the series that the steps read are laid out as ``[N * T, ...]``, and
so come the states. What has no time axis or is the same in every outer iteration is repeated, where it must be.
"""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.graph.trip_counts import not_negative, to_vector
from looplift.passes.recurrences.nodes import new_node, written
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.constants import INT64_MAX, scalar
from looplift.patterns.graph.own_nodes import flag, series
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.continued import Continued

KEEPS_ZEROS = 14
"""Opset from which Reshape can be told that an extent of 0 means 0."""


def all_steps(carry: Carry, evolution: Continued, over: OverTime, previous: bool) -> ir.Node:
    """The node that runs the inner steps of all outer iterations."""
    node, emit = evolution.node, over.emit
    if flag(node, "reverse"):
        raise Refused(Refusal("the inner recurrence runs backwards in time", node))
    if over.lead != 1:
        raise Refused(Refusal("an inner recurrence in a Scan with a batch axis", node))
    if node.op_type == "AddStep":
        limit, condition, _, step = node.inputs
        assert step is not None
        if any(value is not None and over.varies(value) for value in (limit, condition, step)):
            raise Refused(Refusal("what the inner AddStep reads varies", node))
        total = emit.op("Mul", [over.trip_count(), _steps(evolution, over)])
        inputs = [total, None, carry.initial, over.outside(step)]
        return written(new_node("AddStep", inputs, previous=previous), carry, over)
    inputs, flags = [carry.initial], {}
    for k, timed in series(node).items():
        value = node.inputs[k]
        assert value is not None
        invariant = not timed and not over.varies(value)
        inputs.append(over.outside(value) if invariant else _flat(value, timed, evolution, over))
        if node.op_type == "LinearRecurrence":
            flags[f"{'ab'[k - 1]}_invariant"] = invariant
    return written(new_node(node.op_type, inputs, previous=previous, **flags), carry, over)


def by_iteration(rows: ir.Value, evolution: Continued, over: OverTime) -> ir.Value:
    """The states of all steps as ``[N, T, *state]``."""
    count = [_vector(over.trip_count(), over), _vector(_steps(evolution, over), over)]
    return _reshape(rows, count, 1, over, evolution)


def outer_states(rows: ir.Value, evolution: Continued, over: OverTime, *, previous: bool) -> ir.Value:
    """The states before or after each outer iteration, of those before or after each step."""
    if _static_steps(evolution, over) in (None, 0):
        raise Refused(Refusal("whether the inner recurrence takes a step is not known", evolution.node))
    at = over.emit.const(0 if previous else -1)
    return over.emit.op("Gather", [by_iteration(rows, evolution, over), at], {"axis": 1})


def _static_steps(evolution: Continued, over: OverTime) -> int | None:
    node, opset = evolution.node, over.emit.opset
    if node.op_type == "AddStep":
        limit, runs = scalar(node.inputs[0], opset), node.inputs[1] is None or scalar(node.inputs[1], opset)
        return max(limit, 0) if isinstance(limit, int) and runs is True else None
    shapes = [over.types[node.inputs[k]].shape for k, timed in series(node).items() if timed]
    return next((shape[0] for shape in shapes if shape and isinstance(shape[0], int)), None)


def _steps(evolution: Continued, over: OverTime) -> ir.Value:
    """T, an int64 scalar."""
    emit, node, static = over.emit, evolution.node, _static_steps(evolution, over)
    if static is not None:
        return emit.const(static)
    if node.op_type == "AddStep":
        limit, runs = (None if value is None else over.outside(value) for value in node.inputs[:2])
        assert limit is not None
        return not_negative(emit, limit, runs)
    value = next(node.inputs[k] for k, timed in series(node).items() if timed)
    assert value is not None
    return emit.extent(over.stack(value), 1) if over.varies(value) else emit.extent(over.outside(value), 0)


def _flat(value: ir.Value, timed: bool, evolution: Continued, over: OverTime) -> ir.Value:
    """A series as ``[N * T, ...]``; one without inner time is repeated for each step."""
    emit, stack = over.emit, over.stack(value)
    steps = _vector(_steps(evolution, over), over)
    if not timed:
        shape = emit.op("Shape", [stack])
        wide = [emit.slice(shape, 0, 1, 0), steps, emit.slice(shape, 1, INT64_MAX, 0)]
        stack = emit.op("Expand", [emit.unsqueeze(stack, [1]), emit.op("Concat", wide, {"axis": 0})])
    total = emit.op("Mul", [_vector(over.trip_count(), over), steps])
    return _reshape(stack, [total], 2, over, evolution)


def _vector(number: ir.Value, over: OverTime) -> ir.Value:
    return to_vector(over.emit, number)


def _reshape(value: ir.Value, front: list[ir.Value], behind: int, over: OverTime, evolution: Continued) -> ir.Value:
    """The value with `front` in the place of its first `behind` extents."""
    emit = over.emit
    rest = emit.type_of(value).shape
    if emit.opset >= KEEPS_ZEROS:
        target = emit.op("Concat", [*front, emit.slice(emit.op("Shape", [value]), behind, INT64_MAX, 0)], {"axis": 0})
        return emit.op("Reshape", [value, target], {"allowzero": 1})
    known = [dim for dim in (rest or ())[behind:] if isinstance(dim, int) and dim > 0]
    if rest is None or len(known) != len(rest) - behind or _static_steps(evolution, over) in (None, 0):
        raise Refused(Refusal("extents may be 0, and opset 14 is needed", evolution.node))
    # The only extent that can be 0 is that of the outer iterations, where 0 copies an extent that is 0, too.
    return emit.op("Reshape", [value, emit.op("Concat", [*front, emit.const(known)], {"axis": 0})])

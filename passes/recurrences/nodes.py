"""One node of ``ai.looplift`` for a proven recurrence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.trip_counts import to_vector
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.shapes import advice
from looplift.patterns.graph.speculatable import broadcast_surely
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.evolution import AddStep, LinearRecurrence, PrefixSum, Term
from looplift.patterns.loops.trip import surely_runs
from looplift.runtime.ops import DOMAIN


def new_node(op_type: str, inputs: Sequence[ir.Value | None], *, previous: bool, **flags: bool) -> ir.Node:
    """A recurrence node; `previous` stacks the states before each step, not after it."""
    attributes = [ir.AttrInt64(name, int(flag)) for name, flag in {"emit_previous": previous, **flags}.items()]
    return ir.Node(DOMAIN, op_type, inputs, attributes, num_outputs=2)


def add_step(
    carry: Carry, evolution: AddStep, over: OverTime, limit: ir.Value, condition: ir.Value | None, previous: bool
) -> ir.Node:
    """AddStep (M, cond, v_initial, step)."""
    _check_sum(evolution.steps, over)
    step = _total([signed(over.outside(_value(term)), term, over) for term in evolution.steps], over)
    return written(new_node("AddStep", [limit, condition, carry.initial, step], previous=previous), carry, over)


def prefix_sum(carry: Carry, evolution: PrefixSum, over: OverTime, previous: bool) -> ir.Node:
    """PrefixSum (v_initial, x)."""
    _check_sum(evolution.addends, over)
    addends = _series_total(evolution.addends, carry, over)
    return written(new_node("PrefixSum", [carry.initial, addends], previous=previous), carry, over)


def linear_recurrence(carry: Carry, evolution: LinearRecurrence, over: OverTime, previous: bool) -> ir.Node:
    """LinearRecurrence (v_initial, a, b); an invariant a or b has no time axis, and says so by an attribute."""
    factor, addends = evolution.factor, evolution.addends
    a_stays = factor.value is None or not over.varies(factor.value)
    b_stays = all(not over.varies(_value(term)) for term in addends)
    if a_stays and b_stays and over.lead > 1:
        raise Refused(Refusal("neither factor nor addend varies over time and batch", over.view.node))
    if factor.value is None:
        a = _number(carry, over, -1 if factor.negated else 1)
    else:
        a = signed(over.outside(factor.value) if a_stays else _series(factor, carry, over), factor, over)
    _check_sum(addends, over)
    if addends and b_stays:
        b = _total([signed(over.outside(_value(term)), term, over) for term in addends], over)
    elif addends:
        b = _series_total(addends, carry, over)
    else:
        # x + (-0.0) is x for every x, -0.0 among them; for integers the zero has no sign.
        b = _number(carry, over, -0.0)
    if a_stays and b_stays:
        a, a_stays = _over_time(a, over), False
    node = new_node(
        "LinearRecurrence", [carry.initial, a, b], previous=previous, a_invariant=a_stays, b_invariant=b_stays
    )
    return written(node, carry, over)


def written(node: ir.Node, carry: Carry, over: OverTime) -> ir.Node:
    """The node, in the emitter and with the state's element type."""
    dtype = over.types[carry.initial].dtype
    for output in node.outputs:
        output.type = None if dtype is None else ir.TensorType(dtype)
    return over.emit.add(node)


def _value(term: Term) -> ir.Value:
    assert term.value is not None
    return term.value


def _series(term: Term, carry: Carry, over: OverTime) -> ir.Value:
    """A term's stack; behind a batch axis its elements need as many axes as the state's."""
    value = _value(term)
    if over.lead == 1 or not over.varies(value):
        return over.stack(value)
    return over.operand(value, over.rank(carry.previous))


def _series_total(terms: Sequence[Term], carry: Carry, over: OverTime) -> ir.Value:
    """The stack of the terms' sum: their elements broadcast, so their ranks are made equal."""
    if len(terms) == 1:
        return signed(_series(terms[0], carry, over), terms[0], over)
    values = [_value(term) for term in terms]
    rank = max(over.rank(value) for value in ([carry.previous, *values] if over.lead > 1 else values))
    operands = [over.operand(value, rank) for value in values]
    total = _total([signed(operand, term, over) for operand, term in zip(operands, terms, strict=True)], over)
    return total if any(over.varies(value) for value in values) else _over_time(total, over)


def _over_time(value: ir.Value, over: OverTime) -> ir.Value:
    """An invariant value repeated along a new time axis."""
    emit = over.emit
    count = to_vector(emit, over.trip_count())
    shape = emit.op("Concat", [count, emit.op("Shape", [value])], {"axis": 0})
    return emit.op("Expand", [value, shape])


def _number(carry: Carry, over: OverTime, number: float) -> ir.Value:
    dtype = over.types[carry.initial].dtype
    if dtype is None:
        raise Refused(Refusal(f"the element type of '{carry.previous.name}' is not known", over.view.node))
    return over.emit.tensor(ir.tensor(np.array(number).astype(dtype.numpy()), dtype=dtype))


def signed(value: ir.Value, term: Term, over: OverTime) -> ir.Value:
    """The value or its negative. Neg takes no unsigned type: there the value is subtracted from zero."""
    if not term.negated:
        return value
    if value.dtype is None:
        raise Refused(Refusal(f"the element type of '{_value(term).name}' is not known", over.view.node))
    if value.dtype.is_signed():
        return over.emit.op("Neg", [value])
    return over.emit.op("Sub", [over.emit.tensor(ir.tensor(np.zeros((), value.dtype.numpy()))), value])


def _check_sum(terms: Sequence[Term], over: OverTime) -> None:
    """Terms that the body adds to its state one by one have a sum of their own outside, which nothing may keep from
    being made where the body never ran."""
    if not surely_runs(over.trip) and not broadcast_surely([over.types[_value(term)].shape for term in terms]):
        shapes = " and ".join(f"'{_value(term).name}' {over.types[_value(term)]}" for term in terms)
        more = advice([over.types[_value(term)].shape for term in terms])
        told = f"the sum of {shapes} could fail where the loop runs zero times{more}"
        raise Refused(Refusal(told, over.view.node, unequal=more != ""))


def _total(values: Sequence[ir.Value], over: OverTime) -> ir.Value:
    """The terms' sum; several only where additions may be joined."""
    total = values[0]
    for value in values[1:]:
        total = over.emit.op("Add", [total, value])
    return total

"""Computes a counter from the iteration number instead of carrying it from iteration to iteration."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around, while_unchanged
from looplift.passes.graph.edit import rebuild, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.integers import Integers, constant
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import INT64_MAX, INT64_MIN, scalar
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import is_used, source
from looplift.patterns.graph.view import Carry, LoopView, view_of
from looplift.patterns.graph.walk import loops
from looplift.patterns.loops.induction import Motions, Progression

CARRIED = (ir.DataType.INT32, ir.DataType.INT64)
"""Integer types whose Add and Mul every opset and engine has."""


@dataclasses.dataclass(frozen=True)
class CountersFromIteration:
    """Writes a counter c, c + s, c + 2s, ... as c + s * i with the iteration number i; it is no longer carried.

    A loop that carries nothing else and stacks nothing is gone then.

    Legal if

    1. the Loop is counted: M is given, and the body's cond is its cond input or a constant true;
    2. the counter is an int32 or int64 that moves by a constant step s, wrapping around its type: the formula wraps
       to the same number, since both are equal modulo 2^32 or 2^64;
    3. its shape is known and stays, and is not below the iteration number's in rank (bodies may declare that as
       [1]): the formula has the counter's shape;
    4. its last value is not read, or the number of iterations n is computed before the loop: M where the cond holds,
       at least 0. The last value is then c + s * n, and the cond is known to hold one element;
    5. the opset is 9 or later, and from 11 on unless something is carried still: a Loop-1 with stacks wants a carry.

    Preserves bits.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        changed = False
        with while_unchanged() as forget:
            for node, place in loops(model):
                view = view_of(node, place.opset)
                if not isinstance(view, LoopView) or not view.carries or not _is_counted(view):
                    continue
                if _rewrite(view, types_around(model, node).with_body(view), journal):
                    changed = True
                    forget()
        return changed


def _is_counted(view: LoopView) -> bool:
    passes_on = source(view.condition_out) is view.condition_in
    return view.max_trip is not None and (passes_on or scalar(view.condition_out, view.opset) is True)


def _rewrite(view: LoopView, types: Types, journal: Journal) -> bool:
    motions = Motions(view, types)
    steps = {carry.index: step for carry in view.carries if (step := _step(carry, motions)) is not None}
    if not steps or view.opset < 9:  # from which on integers compare
        return False
    if view.opset < 11 and len(steps) == len(view.carries) and view.scan_outputs:
        return False  # a Loop of that time carries at least one value
    counters = [carry for carry in view.carries if carry.index in steps]
    names = [carry.previous.name for carry in counters]
    outside, inside = Emitter(view.opset, types), Emitter(view.opset, types)
    count = _iterations(view, outside)
    formulas = [_formula(carry, steps[carry.index], view.iteration, types, inside) for carry in counters]
    last = [_formula(carry, steps[carry.index], count, types, outside) for carry in counters]
    outside.insert_before(view.node)
    for node in reversed(inside.nodes):
        view.body.insert_before(view.body[0], node) if len(view.body) else view.body.append(node)
    for carry, formula, final in zip(counters, formulas, last, strict=True):
        replace_value(carry.previous, formula)
        if carry.final is not None:
            replace_value(carry.final, final)
    for name in names:
        journal.did(view.node, f"computed the counter '{name}' from the iteration number")
    _drop_carries(view.node, view.opset, set(steps))
    outside.drop_unused()
    return True


def _drop_carries(node: ir.Node, opset: int, dropped: set[int]) -> None:
    """Takes these carries out of the loop, or the loop out of its graph if nothing is left of it."""
    view = view_of(node, opset)  # anew: body outputs may have been replaced
    assert isinstance(view, LoopView)
    if len(dropped) == len(view.carries) and not view.scan_outputs and node.graph is not None:
        node.graph.remove(node, safe=True)
        return
    kept = tuple(carry for carry in view.carries if carry.index not in dropped)
    rebuild(dataclasses.replace(view, carries=kept))


def _step(carry: Carry, motions: Motions) -> int | None:
    """The step of a counter that the formula can replace; None for any other carry."""
    view, types, motion = motions.view, motions.types, motions.of(carry.previous)
    fact, numbered = types[carry.previous], types[view.iteration].rank
    if not isinstance(motion, Progression) or not motion.fills_type or motion.dtype not in CARRIED:
        return None
    if not fact.same_shape(types[carry.initial]) or fact.rank is None or numbered is None or numbered > fact.rank:
        return None
    last_is_read = carry.final is not None and is_used(carry.final)
    return None if last_is_read and not _condition_is_known(view, types) else motion.step


def _condition_is_known(view: LoopView, types: Types) -> bool:
    return view.condition is None or types[view.condition].shape in ((), (1,))


def _iterations(view: LoopView, emitter: Emitter) -> ir.Value:
    """max(M, 0), or 0 where the cond is false, as a scalar."""
    integers = Integers(emitter)
    assert view.max_trip is not None
    count = integers.maximum(integers.read(view.max_trip, INT64_MIN, INT64_MAX), constant(0))
    if view.condition is not None:
        holds = scalar(view.condition, view.opset)
        count = integers.select(bool(holds) if holds is not None else view.condition, count, constant(0))
    value = integers.written(count)
    return emitter.squeeze(value, [0]) if emitter.type_of(value).shape == (1,) else value


def _formula(carry: Carry, step: int, count: ir.Value, types: Types, emitter: Emitter) -> ir.Value:
    """initial + step * count, in the counter's type."""
    fact = types[carry.previous]
    assert fact.dtype is not None
    value = count if fact.dtype == ir.DataType.INT64 else emitter.op("Cast", [count], {"to": fact.dtype})
    if step != 1:
        value = emitter.op("Mul", [value, emitter.const(np.array(step, fact.dtype.numpy()))])
    starts_at_zero = scalar(carry.initial, emitter.opset) == 0
    if starts_at_zero and emitter.type_of(value).shape == fact.shape:
        return value
    return emitter.op("Add", [carry.initial, value])

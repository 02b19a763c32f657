"""Loops that an exporter unrolled in part are rolled up again.

TorchScript writes ``for i in range(100): x = x + s`` as a loop of 12 iterations whose body adds eight times, and a
second loop of 4. Rolled up, it is one loop of 100 iterations that adds once, which is a known recurrence.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.edit import as_body_output, rebuild, remove_node
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import INT64_MAX, constant, scalar
from looplift.patterns.graph.numbering import Numbering
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import UNKNOWN, Types
from looplift.patterns.graph.values import is_used, made_by, source
from looplift.patterns.graph.view import Carry, LoopView, is_loop, loop_view
from looplift.patterns.graph.walk import Place, loops

OLDEST = 12
"""Opset from which Min and Max take int64; constant trip counts need neither."""

LIFTABLE = frozenset({"Add", "Mul", "Neg", "SequenceInsert", "Sub", "Sum"})
"""What ends a step of a loop that is worth rolling up: one that can be lifted then. Others would only get slower."""

CANDIDATES = 512
"""Bound on the tuples of states that are tried as the first of several steps in one body."""


@dataclasses.dataclass(frozen=True)
class Reroll:
    """Makes one step per iteration of several, and one loop of two that continue one another.

    A loop is plain if
    1. it is a Loop with M and with carries, and nothing but its carries comes out of it;
    2. it runs M times unless its cond input is false: the body hands cond on, or a constant true;
    3. its body does not read the iteration number.

    Several steps, as k times as many iterations of one, are legal if the loop is plain and
    4. its body computes f(f(...f(carries))), k times the same f on all carries that change (value numbering: same
       operators, attributes and constants in the same order; what draws random numbers equals nothing). Then k*M
       iterations of f are the same operations in the same order;
    5. each step ends in operators that can be lifted (`LIFTABLE`); of the tuples of states that might come after the
       first step, `CANDIDATES` are tried.

    Two loops, as one that runs max(M1, 0) + max(M2, 0) iterations from the first one's initial values, are legal if
    6. both are plain, and stand in one graph;
    7. the first one's final values are the second one's initial values, all of them in this order, and are read by
       nothing else and not returned;
    8. their bodies compute the same from their carries, in the sense of 4;
    9. their cond inputs are one value, or each is true or left out.

    For both
    10. the new trip count fits into int64 where it is a constant. Others want opset 12, whose Min and Max take int64,
        and are cut to what int64 holds, which no machine runs to its end.

    Preserves bits: every operation stays, in its order.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rolls up what it can, in place; whether there was anything."""
        changed = False
        for node, place in loops(model):
            if is_loop(node) and node.graph is not None:
                changed |= _roll(node, place, journal)
        while any(_merge(node, place, journal) for node, place in loops(model) if is_loop(node)):
            changed = True
        return changed


def _plain_view(node: ir.Node, opset: int) -> LoopView | None:
    view = loop_view(node, opset)
    if isinstance(view, Refusal) or view.scan_outputs or view.max_trip is None or not view.carries:
        return None
    holds = source(view.condition_out) is view.condition_in or scalar(view.condition_out, opset) is True
    return view if holds and not is_used(view.iteration) else None


def _changing(view: LoopView) -> list[Carry]:
    return [carry for carry in view.carries if source(carry.updated) is not carry.previous]


def _roll(node: ir.Node, place: Place, journal: Journal) -> bool:
    """Finds k steps in a body and makes them k iterations."""
    view = _plain_view(node, place.opset)
    if view is None or view.max_trip is None:
        return False
    changing = _changing(view)
    numbering = Numbering()
    start = {carry.previous: numbering.symbol(carry.previous) for carry in changing}
    numbers = numbering.body(view.body, start)
    for states in _first_states(view, changing, numbers):
        steps = _steps(view, changing, states, numbering, numbers)
        emit = Emitter(place.opset, Types())
        trip = _product(emit, view.max_trip, steps) if steps > 1 else None
        if trip is None:
            continue
        emit.insert_before(node)
        after = {
            carry.index: as_body_output(view, state, UNKNOWN) for carry, state in zip(changing, states, strict=True)
        }
        carries = tuple(dataclasses.replace(c, updated=after.get(c.index, c.updated)) for c in view.carries)
        new = rebuild(dataclasses.replace(view, carries=carries, scan_outputs=(), max_trip=trip))
        journal.did(new.node, f"rolled up {steps} equal steps per iteration")
        return True
    return False


def _first_states(
    view: LoopView, changing: list[Carry], numbers: dict[ir.Value, int]
) -> Iterator[tuple[ir.Value, ...]]:
    """Tuples of body values that may be the carries after the first of several steps, early ones first."""
    last = [source(carry.updated).producer() for carry in changing]
    if not changing or any(node is None or node.graph is not view.body for node in last):
        return iter(())
    if any(node is not None and node.op_type not in LIFTABLE for node in last):
        return iter(())
    candidates = [
        [
            output
            for node in view.body
            for output in node.outputs
            if final is not None and node.op_type == final.op_type and node is not final and output in numbers
        ]
        for final in last
    ]
    return itertools.islice(itertools.product(*candidates), CANDIDATES)


def _steps(
    view: LoopView,
    changing: list[Carry],
    states: tuple[ir.Value, ...],
    numbering: Numbering,
    numbers: dict[ir.Value, int],
) -> int:
    """How many times the body does what leads to `states`; 0 if it is not that over and over."""
    known = set(numbers.values())
    goal = [numbering.of(carry.updated, numbers) for carry in changing]
    current = [numbers[state] for state in states]
    step = made_by(states, view.body)  # not the whole body again for each of its steps
    steps = 1
    while current != goal:
        renamed = {carry.previous: number for carry, number in zip(changing, current, strict=True)}
        table = numbering.body(step, renamed)
        following = [table[state] for state in states]
        if following == current or not known.issuperset(following):
            return 0
        current, steps = following, steps + 1
        if steps > len(numbers):
            return 0
    return steps


def _product(emit: Emitter, trip: ir.Value, factor: int) -> ir.Value | None:
    """max(M, 0) times a factor, or None if that can't be written."""
    limit = INT64_MAX // factor
    array = constant(trip, emit.opset)
    if array is not None:
        number = max(int(array.reshape(-1)[0]), 0) if array.size == 1 else None
        return None if number is None or number > limit else emit.const(np.full(array.shape, number * factor, np.int64))
    if emit.opset < OLDEST:
        return None
    return emit.op("Mul", [_clamped(emit, trip, limit), emit.const(factor)])


def _sum(emit: Emitter, first: ir.Value, second: ir.Value) -> ir.Value | None:
    """max(M1, 0) + max(M2, 0), or None if that can't be written."""
    arrays = [constant(value, emit.opset) for value in (first, second)]
    if all(array is not None and array.size == 1 for array in arrays):
        number = sum(max(int(array.reshape(-1)[0]), 0) for array in arrays if array is not None)
        return emit.const(number) if number <= INT64_MAX else None
    if emit.opset < OLDEST:
        return None
    return emit.op("Add", [_clamped(emit, value, INT64_MAX // 2) for value in (first, second)])


def _clamped(emit: Emitter, value: ir.Value, limit: int) -> ir.Value:
    return emit.op("Min", [emit.op("Max", [value, emit.const(0)]), emit.const(limit)])


def _merge(node: ir.Node, place: Place, journal: Journal) -> bool:
    """Joins a loop to the one that it continues, if there is one."""
    second = _plain_view(node, place.opset)
    before = second.carries[0].initial.producer() if second is not None else None
    if second is None or before is None or not is_loop(before) or before.graph is not node.graph:
        return False
    first = _plain_view(before, place.opset)
    if first is None or not _continues(first, second, place.opset):
        return False
    emit = Emitter(place.opset, Types())
    assert first.max_trip is not None
    assert second.max_trip is not None
    trip = _sum(emit, first.max_trip, second.max_trip)
    if trip is None:
        return False
    emit.insert_before(node)
    carries = tuple(
        dataclasses.replace(carry, initial=start.initial)
        for carry, start in zip(second.carries, first.carries, strict=True)
    )
    new = rebuild(dataclasses.replace(second, carries=carries, scan_outputs=(), max_trip=trip))
    journal.did(new.node, f"took over the iterations of '{before.name}', which it continues")
    journal.did(before, "continued by the next loop, which took its iterations over")
    journal.absorb(before, new.node)
    remove_node(before)
    return True


def _continues(first: LoopView, second: LoopView, opset: int) -> bool:
    """Whether the second loop does to the first one's results what the first did to get them."""
    if len(first.carries) != len(second.carries) or not _same_condition(first, second, opset):
        return False
    for before, after in zip(first.carries, second.carries, strict=True):
        final = before.final
        if final is None or after.initial is not final or len(final.uses()) != 1 or final.is_graph_output():
            return False
    numbering = Numbering()
    tables = [
        numbering.body(view.body, {carry.previous: numbering.symbol(carry.index) for carry in view.carries})
        for view in (first, second)
    ]
    updates = [
        [numbering.of(carry.updated, table) for carry in view.carries]
        for view, table in zip((first, second), tables, strict=True)
    ]
    return updates[0] == updates[1]


def _same_condition(first: LoopView, second: LoopView, opset: int) -> bool:
    if first.condition is not None and first.condition is second.condition:
        return True
    return _is_true(first, opset) and _is_true(second, opset)


def _is_true(view: LoopView, opset: int) -> bool:
    return view.condition is None or scalar(view.condition, opset) is True

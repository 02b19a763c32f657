"""Turns a Loop that ends when a counter passes a bound into one that runs a computed number of times."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.count.first_iteration import Given, before_first_iteration, first_iteration, replay, same
from looplift.passes.count.threshold import Threshold
from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import copy_node, rebuild
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.integers import Condition, Integer, Integers, constant
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import INT64_MAX, scalar
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import LoopView, view_of
from looplift.patterns.graph.walk import loops, node_name
from looplift.patterns.loops.exit_condition import Comparison, ExitTest, Flag, exit_test
from looplift.patterns.loops.induction import Motions, Progression

ENDLESS = constant(INT64_MAX)
FEASIBLE = 1 << 40
"""Iterations that a loop might be waited for; more than these (days at a microsecond each) count as endless."""
LONGEST_STRIDE = 1 << 20
"""Of an int64 counter: with it, int64 is not crossed in `FEASIBLE` iterations."""


@dataclasses.dataclass(frozen=True)
class CountWhileLoops:
    """Computes before a Loop how often its exit test lets it run; the test leaves the body.

    Iteration k ends with the test of iteration k + 1. Let K be the first k whose test fails; the loop runs
    min(M, K + 1) iterations if its cond is true at the start, else none. Where that cond is the same test of the
    counters' initial values (an ordinary while loop), min(M, K') with K' the first failure from there on, and no cond.

    Legal if

    1. the body's cond is a conjunction of comparisons and of values that are the same in every iteration; And, Not,
       Or under Not, and the cond input, which is true while the body runs, may stand in it;
    2. counters hold one element, and so does what is fixed. Where the rank of the latter is not known (in a function),
       that is enough if the cond input is the same test of the initial values, which engines read one element of; a
       node that fails on any other number of elements takes it;
    3. one side of each comparison is a progression: an integer (not uint64) that moves by a constant step, however it
       is spelled, also after a Cast to floating point; the other side is fixed, and the step leads towards it;
    4. the fixed side and the progression's first value can be computed by nodes that can't fail, since the loop may
       run no iteration;
    5. the progression does not wrap around its type before it passes the bound. By proof; or, for a step that is a
       power of two 2^j, by a test in the graph: what is congruent modulo 2^j stays so under wrapping, so if no such
       number lies between the bound and the end of the type, none ever will, and the loop is endless. Endless is
       M iterations if there is M, and INT64_MAX if not. The same for a float-borne counter, which sticks at 2^p.

    6. an int64 counter moves by `LONGEST_STRIDE` at most, and one that is compared in floating point starts so that it
       can't reach the end of int64 in `FEASIBLE` iterations;
    7. a test for inequality is one of integers, of a counter that moves by 1 or -1 and wraps, with a bound in its
       range; no loop goes on while a counter *equals* a bound, nor while a comparison with what may be NaN is false;
    8. the opset is 9 or later, from which on integers compare; 10 where Mod must tell whether a counter wraps, which
       starts anywhere and moves by more than 1.

    Numbers of iterations above `FEASIBLE` may come out as another number above it. A loop that never ends, or never
    would, gives no result, and so none that could differ. The arithmetic saturates, for any int64. Preserves bits.

    Where the node has no cond input, the body's cond is obeyed, as engines do, although the table in the Loop
    specification says that it is ignored; afterwards both readings agree.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        changed = False
        for node, place in loops(model):
            view = view_of(node, place.opset)
            if isinstance(view, LoopView) and source(view.condition_out) is not view.condition_in:
                changed |= _count(view, types_around(model, node).with_body(view), journal)
        return changed


def _count(view: LoopView, types: Types, journal: Journal) -> bool:
    emitter = Emitter(view.opset, types)
    trip = _trip_count(view, types, emitter)
    if isinstance(trip, Refusal):
        journal.refuse(view.node, trip, special=True)
    if trip is None or isinstance(trip, Refusal):
        emitter.discard()
        return False
    count, condition = trip
    reading = ", which the body's cond decides though the node has none," if view.condition is None else ""
    integers = Integers(emitter)
    max_trip = integers.single(integers.written(count))
    if max_trip.producer() in emitter.nodes:
        max_trip.name = f"{node_name(view.node)}/trip_count"
    emitter.insert_before(view.node)
    node = counted(view, max_trip, condition).node
    emitter.drop_unused()
    journal.did(node, f"computed before the loop how often it runs{reading} from the bound of its counter")
    return True


def counted(view: LoopView, max_trip: ir.Value | None, condition: ir.Value | None) -> LoopView:
    """The loop rebuilt to run `max_trip` iterations if `condition` is true (or left out); its body has no exit test."""
    copy = copy_node(view.condition_in)
    copy.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    view.body.append(copy)
    return rebuild(dataclasses.replace(view, max_trip=max_trip, condition=condition, condition_out=copy.outputs[0]))


def _trip_count(view: LoopView, types: Types, emitter: Emitter) -> tuple[Integer, ir.Value | None] | Refusal | None:
    """M and cond of the counted loop; None if the exit test is the same in every iteration."""
    motions = Motions(view, types)
    test = exit_test(motions)
    if isinstance(test, Refusal):
        return test
    if not test.comparisons:
        return None
    if view.opset < 9:
        return Refusal("integers compare only from opset 9 on", view.node)
    counting = Counting(view, types, Integers(emitter))
    count = _from_initial_values(motions, test, counting)
    condition = None
    if count is None:
        if test.unsettled is not None:
            return test.unsettled
        further = counting.until_failure(test, first_iteration(view, emitter))
        if isinstance(further, Refusal):
            return further
        count = counting.integers.add(counting.integers.maximum(further, constant(0)), 1)
        condition = view.condition if scalar(view.condition, view.opset) is not True else None
    return counting.limited(count), condition


def _from_initial_values(motions: Motions, test: ExitTest, counting: Counting) -> Integer | None:
    """The trip count if the cond input is the exit test of the initial values; None if that can't be shown."""
    view, emitter = motions.view, counting.integers.emitter
    if view.condition is None:
        return None
    given = before_first_iteration(motions, emitter)
    expected = replay(view.condition_out, given, view, motions.types, emitter)
    if isinstance(expected, Refusal) or not same(view.condition, expected, view.opset):
        return None
    count = counting.until_failure(test, given)
    return None if isinstance(count, Refusal) else count


@dataclasses.dataclass(frozen=True)
class Counting:
    """Counts how often the parts of an exit test hold in a row. Negative counts stand for none."""

    view: LoopView
    types: Types
    integers: Integers

    def until_failure(self, test: ExitTest, given: Given) -> Integer | Refusal:
        """How often the whole test holds, from the state that `given` describes on."""
        counts = [self._flag(flag, given) for flag in test.flags]
        counts += [self._comparison(comparison, given) for comparison in test.comparisons]
        least = ENDLESS
        written: list[Integer] = []
        for count in counts:
            if isinstance(count, Refusal):
                return count
            if not any(self._same(count, other) for other in written):
                least = self.integers.minimum(least, count)
                written.append(count)
        return least

    def limited(self, count: Integer) -> Integer:
        """min(M, count)."""
        limit = self.view.max_trip
        if limit is None:
            return count
        known = scalar(limit, self.view.opset)
        if isinstance(known, int) and known >= FEASIBLE:
            return count
        return self.integers.minimum(self.integers.read(limit, -INT64_MAX - 1, INT64_MAX), count)

    def _same(self, left: Integer, right: Integer) -> bool:
        if left.value is None or right.value is None:
            return left == right
        return same(left.value, right.value, self.view.opset)

    def _outside(self, value: ir.Value, given: Given) -> ir.Value | Refusal:
        return replay(value, given, self.view, self.types, self.integers.emitter)

    def _flag(self, flag: Flag, given: Given) -> Integer | Refusal:
        value = self._outside(flag.value, given)
        if isinstance(value, Refusal):
            return value
        known = scalar(value, self.view.opset)
        condition: Condition = bool(known) if known is not None else value
        chosen, other = (ENDLESS, constant(0)) if flag.wanted else (constant(0), ENDLESS)
        return self.integers.select(condition, chosen, other)

    def _comparison(self, comparison: Comparison, given: Given) -> Integer | Refusal:
        tested, bound_value = self._outside(comparison.tested, given), self._outside(comparison.bound, given)
        if isinstance(tested, Refusal):
            return tested
        if isinstance(bound_value, Refusal):
            return bound_value
        motion = comparison.motion
        start = self.integers.read(tested, motion.low, motion.high)
        unbounded = self._unbounded(comparison, start)
        if unbounded is not None:
            return unbounded
        if comparison.float_type is not None:
            bound = Threshold(comparison).of_value(bound_value, self.integers)
            return self._steps(comparison, start, bound, inclusive=False)
        assert comparison.bound_range is not None
        bound = self.integers.read(bound_value, *comparison.bound_range)
        if comparison.relation == "!=":
            return self._steps_to_equality(comparison, start, bound)
        return self._steps(comparison, start, bound, inclusive=comparison.relation in ("<=", ">="))

    def _unbounded(self, comparison: Comparison, start: Integer) -> Refusal | None:
        """In int64 saturation must mean "endless": no long stride, and no start next to the end but for exact tests."""
        motion = comparison.motion
        if motion.high - motion.low < FEASIBLE * LONGEST_STRIDE:
            return None
        if abs(motion.step) > LONGEST_STRIDE:
            return Refusal(f"an int64 counter that moves by {motion.step} may wrap around", comparison.node)
        if comparison.float_type is not None and not self._wraps_too_late(motion, start):
            return Refusal("an int64 counter that is compared in floating point starts anywhere", comparison.node)
        return None

    def _wraps_too_late(self, motion: Progression, start: Integer) -> bool:
        room = motion.high - start.high if motion.step > 0 else start.low - motion.low
        return room // abs(motion.step) >= FEASIBLE

    def _steps(self, comparison: Comparison, start: Integer, bound: Integer, *, inclusive: bool) -> Integer | Refusal:
        """ceil((bound - start) / step), or with `inclusive` one more where that divides; endless where it wraps."""
        step = comparison.motion.step
        endless = self._endless(comparison, start, bound, inclusive=inclusive)
        if isinstance(endless, Refusal):
            return endless
        ends = (bound, start) if step > 0 else (start, bound)
        # Rounded up: (distance + |step| - 1) / |step|. A distance below 0 gives at most 0, whichever way Div rounds.
        distance = self.integers.add(self.integers.subtract(*ends), abs(step) - 1 + inclusive)
        return self.integers.select(endless, ENDLESS, self.integers.divide(distance, abs(step)))

    def _endless(
        self, comparison: Comparison, start: Integer, bound: Integer, *, inclusive: bool
    ) -> Condition | Refusal:
        """Whether the counter reaches the end of its range before the bound, and then never reaches the bound."""
        motion = comparison.motion
        stride, climbs = abs(motion.step), motion.step > 0
        if self._wraps_too_late(motion, start):
            return False
        last = self._last(motion, start)
        worst = last if last is not None else constant(motion.high - stride + 1 if climbs else motion.low + stride - 1)
        if (bound.high + inclusive <= worst.low) if climbs else (bound.low - inclusive >= worst.high):
            return False
        if (stride & (stride - 1)) if motion.wraps else stride != 1:
            return Refusal(
                f"the counter may wrap around before it passes its bound, which a step of {motion.step} can't rule out",
                comparison.node,
            )
        if last is None:
            return Refusal("to see whether the counter wraps around needs Mod of opset 10", comparison.node)
        if climbs:
            return self.integers.less(self.integers.add(last, -1) if inclusive else last, bound)
        return self.integers.less(bound, self.integers.add(last, 1) if inclusive else last)

    def _last(self, motion: Progression, start: Integer) -> Integer | None:
        """The last value before the end of the range; None if the opset can't say."""
        stride = abs(motion.step)
        end = motion.high if motion.step > 0 else motion.low
        if stride == 1:
            return constant(end)
        if start.known:
            room = (end - start.low) % stride if motion.step > 0 else (start.low - end) % stride
            return constant(end - room if motion.step > 0 else end + room)
        if self.view.opset < 10:
            return None
        # Modulo first, so that end - start can't overflow.
        phase = self.integers.remainder(start, stride)
        if motion.step > 0:
            below = self.integers.remainder(self.integers.subtract(constant(end % stride + stride), phase), stride)
            return self.integers.subtract(constant(end), below)
        above = self.integers.remainder(self.integers.add(phase, stride - end % stride), stride)
        return self.integers.add(above, end)

    def _steps_to_equality(self, comparison: Comparison, start: Integer, bound: Integer) -> Integer | Refusal:
        """(bound - start) / step modulo the number of values in the range, for a step of 1 or -1."""
        motion = comparison.motion
        if abs(motion.step) != 1 or not motion.wraps:
            return Refusal(
                f"a counter that moves by {motion.step} may step over the bound it must meet", comparison.node
            )
        if bound.low < motion.low or bound.high > motion.high:
            return Refusal("the bound that the counter must meet may lie out of its range", comparison.node)
        ends = (bound, start) if motion.step > 0 else (start, bound)
        # Modulo 2^64 in int64, where a negative difference is one of 2^63 or more.
        distance = self.integers.wrapped_difference(*ends)
        behind = self.integers.less(distance, constant(0))
        round_trip = motion.high - motion.low + 1
        around = ENDLESS if round_trip > INT64_MAX else self.integers.add(distance, round_trip)
        return self.integers.select(behind, around, distance)

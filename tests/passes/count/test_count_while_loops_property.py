"""Random while loops against a simulation in plain Python: the count is right for every input."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from looplift.passes.count.count_while_loops import CountWhileLoops
from looplift.passes.graph.infer import infer_types
from looplift.passes.graph.shapes import prove_shapes
from looplift.passes.journal import Journal
from tests.passes.count.test_count_while_loops import CAP, count_alone, counter_loop, feeds, trips

INTS = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint32": np.uint32,
}
FLOATS = {"float16": (10, np.float16), "float": (1, np.float32), "double": (11, np.float64)}
OPS = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}


def simulate(holds, start, step, *, tests_updated, m, cond0) -> int | None:
    """Iterations of the loop, by running it; None if there are more than `CAP`."""
    goes_on, count, counter = cond0, 0, start
    with np.errstate(over="ignore"):
        while goes_on and (m is None or count < m):
            count += 1
            if count > CAP:
                return None
            previous, counter = counter, counter + step
            goes_on = holds(counter if tests_updated else previous)
    return count


def numbers(kind):
    """Numbers of an integer type: near zero, near its ends, anywhere."""
    limits = np.iinfo(kind)
    low, high = int(limits.min), int(limits.max)
    near = st.integers(max(low, -40), min(high, 40))
    return st.one_of(near, near, st.integers(low, low + 20), st.integers(high - 20, high), st.integers(low, high))


@dataclasses.dataclass(frozen=True)
class While:
    """A while loop over a counter, as a model and as numpy."""

    dtype: str
    relation: str
    mirrored: bool
    negated: bool
    float_name: str = ""
    casts_bound: bool = True

    def cast(self, number):
        return number.astype(FLOATS[self.float_name][1]) if self.float_name else number

    def holds(self, counter, bound) -> bool:
        pair = self.cast(counter), self.cast(bound)
        return bool(OPS[self.relation](*(reversed(pair) if self.mirrored else pair))) is not self.negated

    def text(self, counter: str, result: str) -> str:
        left, right, lines = counter, "n", ""
        if self.float_name:
            lines = f"l{result} = Cast<to = {FLOATS[self.float_name][0]}>({counter})\n"
            left = f"l{result}"
        if self.float_name and self.casts_bound:
            lines += f"r{result} = Cast<to = {FLOATS[self.float_name][0]}>(n)\n"
            right = f"r{result}"
        if self.mirrored:
            left, right = right, left
        lines += f"x{result} = {self.relation}({left}, {right})\n"
        return lines + f"{result} = {'Not' if self.negated else 'Identity'}(x{result})"


def case(draw, subject: While, start, bound):
    """A model of the loop, inputs of it, and how often it runs."""
    kind = INTS[subject.dtype]
    step, minus = draw(st.sampled_from([1, 1, 2, 4, 3, 5, 7, 64, 127])), draw(st.booleans())
    tests_updated, fixed_start = draw(st.booleans()), draw(st.booleans())
    m = draw(st.one_of(st.none(), st.integers(-2, 300)))
    cond_kind = draw(st.sampled_from(["same", "same", "true", "input", ""]))
    initial, flag = "c0" if fixed_start else "a", draw(st.booleans())
    before = counter_loop(
        subject.text("cu" if tests_updated else "cp", "co"),
        update=f"cu = {'Sub' if minus else 'Add'}(cp, one)",
        start=initial,
        dtype=subject.dtype,
        bound=subject.float_name if subject.float_name and not subject.casts_bound else subject.dtype,
        cond={"same": "go", "true": "true", "input": "c", "": ""}[cond_kind],
        max_trip="" if m is None else "M",
        before=f"c0 = Constant<value = {subject.dtype} {{{int(start)}}}>()\n{subject.text(initial, 'go')}",
        step=step,
        opset=18,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        cond0 = {"same": subject.holds(start, bound), "true": True, "input": flag, "": True}[cond_kind]
        signed = np.array(-step if minus else step).astype(kind)[()]
        expected = simulate(
            lambda x: subject.holds(x, bound), start, signed, tests_updated=tests_updated, m=m, cond0=cond0
        )
    return before, feeds(before, a=start, n=bound, m=m or 0, c=flag), expected


@st.composite
def integer_loops(draw):
    """Counters and bounds of one integer type."""
    name, relation = draw(st.sampled_from(sorted(INTS))), draw(st.sampled_from(sorted(OPS)))
    subject = While(name, relation, draw(st.booleans()), draw(st.booleans()) or relation == "Equal")
    start, bound = (INTS[name](draw(numbers(INTS[name]))) for _ in range(2))
    return case(draw, subject, start, bound)


@st.composite
def float_loops(draw):
    """Counters compared in floating point, near the numbers where it starts to round."""
    name, float_name = (
        draw(st.sampled_from(["int16", "int32", "int64", "uint8"])),
        draw(st.sampled_from(sorted(FLOATS))),
    )
    relation = draw(st.sampled_from(sorted(set(OPS) - {"Equal"})))
    casts_bound = draw(st.booleans())
    negated = casts_bound and draw(st.booleans())
    subject = While(name, relation, draw(st.booleans()), negated, float_name, casts_bound)
    kind, limits = INTS[name], np.iinfo(INTS[name])
    edge = draw(
        st.sampled_from([0, 256, 2048, 4096, 16384, 65520, 2**24, 2**25, 3 * 2**24, 2**31, 2**53, 2**54, 2**62])
    )
    sign = draw(st.sampled_from([1, -1]))
    near = sign * edge + draw(st.integers(-300, 300))
    start = kind(min(max(near + draw(st.integers(-300, 300)), int(limits.min)), int(limits.max)))
    if casts_bound:
        bound = kind(min(max(near, int(limits.min)), int(limits.max)))
    else:
        special = st.sampled_from([np.nan, np.inf, -np.inf, 0.5, -0.5, 2.0**31, 2.0**63, -(2.0**63), 1e30])
        number = draw(st.one_of(special, st.just(float(near)), st.floats(-400, 400)))
        with np.errstate(over="ignore"):
            bound = np.float64(number).astype(FLOATS[float_name][1])
    return case(draw, subject, start, bound)


def check(before, values, expected):
    after = before.clone()
    infer_types(after)
    prove_shapes(after)
    assume(CountWhileLoops()(after, Journal.begin(after)))
    count = trips(count_alone(after), values)
    if expected is None:
        assert count > CAP
    else:
        assert count == expected


def bounded(examples: int):
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@bounded(40)
@given(integer_loops())
def test_counts_as_the_loop_does(loop):
    check(*loop)


@bounded(40)
@given(float_loops())
def test_counts_as_the_loop_does_in_floating_point(loop):
    check(*loop)


@pytest.mark.slow
@bounded(1000)
@given(st.one_of(integer_loops(), float_loops()))
def test_counts_as_the_loop_does_at_length(loop):
    check(*loop)

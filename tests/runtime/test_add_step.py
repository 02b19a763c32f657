"""AddStep's numpy kernel against addition in order, bit for bit."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops.add_step.segments import Trajectory, from_bits
from tests.runtime.op_cases import INTEGERS, assert_same_bits, kernel, special_values

PRECISION = {np.dtype(ml_dtypes.bfloat16): 8, np.dtype("f2"): 11, np.dtype("f4"): 24, np.dtype("f8"): 53}
FLOATS = list(PRECISION)
MOST_PIECES = 128


def in_order(initial, step, count):
    """States 0 to count, [count + 1, *shape], added one after the other."""
    states = np.empty((count + 1, *initial.shape), initial.dtype)
    states[0] = initial
    with np.errstate(all="ignore"):
        for k in range(count):
            states[k + 1] = states[k] + step
    return states


def add_step(count, initial, step, wanted=(True, True), condition=None, **attributes):
    return kernel("AddStep", [np.array(count), condition, initial, step], wanted, **attributes)


def check(initial, step, count):
    """Every output in every combination of what is wanted."""
    states = in_order(initial, step, count)
    for emit_previous in (0, 1):
        final, rows = add_step(count, initial, step, emit_previous=emit_previous)
        assert_same_bits(final, states[-1])
        assert_same_bits(rows, states[:-1] if emit_previous else states[1:])
    final, rows = add_step(count, initial, step, wanted=(True, False))
    assert_same_bits(final, states[-1])
    assert rows is None
    final, _ = add_step(count, initial, step, wanted=(False, True))
    assert final is None


def check_every_state(initial, step, count):
    """The pieces themselves, of many columns at once, and that they are few."""
    with np.errstate(all="ignore"):
        trajectory = Trajectory.of(initial, step, count)
        assert_same_bits(trajectory.every(1, 0, count + 1), in_order(initial, step, count))
    begun = (trajectory.start <= count).sum(axis=0)
    assert begun.max() <= MOST_PIECES


def patterns(dtype, most):
    width = dtype.itemsize * 8
    number = st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1)
    return st.lists(st.tuples(number, number), min_size=1, max_size=most).map(
        lambda pairs: [from_bits(np.array(bits, np.int64), dtype) for bits in zip(*pairs, strict=True)]
    )


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), count=st.sampled_from([1, 2, 63, 1030, 2500]))
def test_any_bits(dtype, data, count):
    initial, step = data.draw(patterns(dtype, 6))
    check(initial, step, count)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.sampled_from([100, 1500]))
def test_any_bits_of_many_columns(dtype, seed, count):
    """Random patterns whose exponents are near each other, so that adding does something."""
    rng = np.random.default_rng(seed)
    fraction_bits = PRECISION[dtype] - 1
    exponents = (1 << (8 * dtype.itemsize - 1 - fraction_bits)) - 1
    high = rng.integers(0, exponents, 300)
    low = np.clip(high - rng.integers(-2, fraction_bits + 2, 300), 0, exponents - 1)
    sign = rng.integers(0, 2, (2, 300)) << (8 * dtype.itemsize - 1)
    fraction = rng.integers(0, 1 << fraction_bits, (2, 300))
    initial, step = from_bits(sign | (np.stack([high, low]) << fraction_bits) | fraction, dtype)
    check_every_state(initial, step, count)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ties_at_the_edges_of_every_binade(dtype):
    """Steps of n + 1/2 grid points, from states at both edges of a binade, toward zero and away, odd and even."""
    fraction_bits = PRECISION[dtype] - 1
    largest = (1 << fraction_bits) - 1
    exponents = (1 << (8 * dtype.itemsize - 1 - fraction_bits)) - 1
    chosen = range(0, exponents, max(1, exponents // 64))
    fractions = [0, 1, 2, 3, largest // 2, largest - 1, largest]
    bits = np.array([(e << fraction_bits) | f for e, f in itertools.product(chosen, fractions)])
    magnitude = from_bits(bits, dtype)
    following = from_bits(bits + 1, dtype)
    grid = following - magnitude
    halves = (np.array([0.5, 1.5, 2.5, 0.25, 0.75, 1.0, 37.5, 100.5])).astype(dtype)
    with np.errstate(all="ignore"):
        step = (grid[:, None] * halves).reshape(-1)
    initial = np.repeat(magnitude, halves.size)
    both = [(initial, step), (initial, -step), (-initial, step), (-initial, -step)]
    for start, move in both:
        check_every_state(start, move, 400)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(dtype):
    """Both zeros, both infinities, NaN, subnormals, the largest: each added to each."""
    values = special_values(dtype)
    initial, step = (a.reshape(-1) for a in np.meshgrid(values, values))
    check_every_state(initial, step, 1100)
    check(initial, step, 70)
    check(initial, step, 1100)
    zero = np.zeros(1, dtype)
    assert np.signbit(add_step(3, -zero, -zero)[0]).all()
    assert not np.signbit(add_step(3, -zero, zero)[0]).any()


@pytest.mark.parametrize(
    ("initial", "step", "count"),
    [
        (28.0, -0.764874, 200),  # an odd state reached from a finer grid: one equal move is not enough
        (96.0, -0.27118552, 500),  # the exact sum lies under the lower edge of the binade
        (0.0, 0.1, 5000),
        (-1000.0, 0.25, 5000),  # through zero, exactly
        (1000.0, -0.7, 5000),  # through zero, beside it
        (3e38, 1e36, 5000),  # to infinity
        (1e-45, 1e-45, 5000),
        (1.1754942e-38, -1e-45, 5000),
    ],
)
def test_trajectories_that_are_known_to_be_hard(initial, step, count):
    for dtype in FLOATS:
        with np.errstate(over="ignore"):
            start, move = (np.array([number], "f4").astype(dtype) for number in (initial, step))
        check(start, move, count)


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000, 65535, 65536])
@pytest.mark.parametrize("columns", [0, 1, 3, 64, 65])
def test_counts_and_columns(count, columns):
    rng = np.random.default_rng(count + columns)
    check(*rng.normal(size=(2, columns)).astype("f4"), count)


@pytest.mark.parametrize(("count", "columns"), [(65, 100_000), (1_000_000, 1), (1_000_000, 3)])
def test_large(count, columns):
    rng = np.random.default_rng(count)
    check(*(rng.normal(size=(2, columns)) * [[100], [0.01]]).astype("f4"), count)


def test_more_steps_than_a_float_counts():
    count = 2**24 + 3
    initial, step = np.array([0.5], "f4"), np.array([1 / 3], "f4")
    series = np.full(count + 1, step[0])
    series[0] = initial[0]
    expected = np.add.accumulate(series)
    final, rows = add_step(count, initial, step)
    assert_same_bits(rows[:, 0], expected[1:])
    assert_same_bits(final, expected[-1:])
    assert_same_bits(add_step(count, initial, step, wanted=(True, False))[0], expected[-1:])


def test_final_state_of_any_number_of_steps():
    many = 2**63 - 1
    initial = np.zeros(2, "f4")
    final, _ = add_step(many, initial, np.array([0.1, 1.0], "f4"), wanted=(True, False))
    assert final.tolist() == [2097152.0, 16777216.0]  # where the step is half a grid point
    whole = np.array([5], "i4")
    assert add_step(2**62 + 3, whole, whole, wanted=(True, False))[0].tolist() == [20]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("columns", [1, 7])
def test_integers_wrap(dtype, columns):
    top, bottom = np.iinfo(dtype).max, np.iinfo(dtype).min
    initial = np.array([top, bottom, 0, 1, top // 2, 3, 4][:columns], dtype)
    check(initial, initial[::-1].copy(), 3000)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 1100])
def test_any_rank(shape, count):
    rng = np.random.default_rng(1)
    check(*(np.asarray(rng.normal(size=shape), "f4") for _ in range(2)), max(count, 0))
    final, rows = add_step(count, np.zeros(shape, "f4"), np.zeros(shape, "f4"))
    assert final.shape == shape
    assert rows.shape == (max(count, 0), *shape)


@pytest.mark.parametrize("step_shape", [(), (1,), (3,), (2, 1), (1, 3)])
def test_step_broadcasts_to_the_state(step_shape):
    rng = np.random.default_rng(2)
    initial, step = rng.normal(size=(2, 3)).astype("f4"), np.asarray(rng.normal(size=step_shape), "f4")
    for count in (3, 1500):
        check(initial, step, count)


@pytest.mark.parametrize(
    ("before", "step_shape", "after"), [((), (3,), (3,)), ((3,), (1, 1), (1, 3)), ((1,), (0,), (0,))]
)
def test_state_grows_in_the_first_iteration(before, step_shape, after):
    initial, step = np.ones(before, "f4"), np.full(step_shape, 0.1, "f4")
    states = in_order(np.broadcast_to(initial, after), step, 2)
    final, rows = add_step(2, initial, step)
    assert_same_bits(final, states[2])
    assert_same_bits(rows, states[1:])

    final, rows = add_step(0, initial, step)
    assert_same_bits(final, initial)
    assert rows.shape == (0, *after)

    final, rows = add_step(0, initial, step, emit_previous=1)
    assert rows.shape == (0, *before)

    final, rows = add_step(1, initial, step, emit_previous=1)
    assert_same_bits(final, states[1])
    assert_same_bits(rows, initial[np.newaxis])

    with pytest.raises(LoopliftError, match="grows from"):
        add_step(2, initial, step, emit_previous=1)
    assert_same_bits(add_step(2, initial, step, wanted=(True, False), emit_previous=1)[0], states[2])


def test_condition():
    one = np.ones(1, "f4")
    for shape in ((), (1,)):
        assert add_step(3, one, one, condition=np.full(shape, True))[0].tolist() == [4]
        assert add_step(3, one, one, condition=np.full(shape, False))[0].tolist() == [1]


def test_results_are_new_arrays_and_inputs_are_kept():
    initial, step = np.zeros(3, "f4"), np.ones(3, "f4")
    for count in (0, 1, 5, 2000):
        final, rows = add_step(count, initial, step, emit_previous=1)
        final += 7
        rows += 7
        assert initial.tolist() == [0, 0, 0]
        assert step.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([None, None, np.zeros(1, "f4"), np.zeros(1, "f4")], "must be given"),
        ([np.array(1, "i4"), None, np.zeros(1, "f4"), np.zeros(1, "f4")], "M must be one int64"),
        ([np.array([1, 2]), None, np.zeros(1, "f4"), np.zeros(1, "f4")], "M must be one int64"),
        ([np.array(1), np.array(1), np.zeros(1, "f4"), np.zeros(1, "f4")], "cond must be one bool"),
        ([np.array(1), None, np.zeros(1, "f4"), np.zeros(1, "f8")], "one number type"),
        ([np.array(1), None, np.zeros(1, "?"), np.zeros(1, "?")], "one number type"),
        ([np.array(1), None, np.zeros(2, "f4"), np.zeros(3, "f4")], "do not broadcast"),
        ([np.array(2**40), None, np.zeros(1000, "f4"), np.zeros(1000, "f4")], "bytes"),
        ([np.array(2**62), None, np.zeros(1000, "f8"), np.zeros(1000, "f8")], "bytes"),
    ],
)
def test_errors(inputs, message):
    with pytest.raises(LoopliftError, match=message):
        kernel("AddStep", inputs)


def test_a_step_that_does_not_fit_is_no_error_where_nothing_is_added():
    initial, step = np.ones((2, 2), "f"), np.ones(3, "f")
    final, rows = add_step(0, initial, step)
    assert final.shape == (2, 2)
    assert rows.shape == (0, 2, 2)
    with pytest.raises(LoopliftError, match="do not broadcast"):
        add_step(1, initial, step)

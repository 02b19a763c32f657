"""The kernels in ONNX Runtime against our numpy kernels, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.runtime.kernel_cases import DTYPES, NodeCase, random_case, run_kernel, values
from tests.runtime.op_cases import assert_same_bits, special_values


def check(library, case: NodeCase, threads: int = 1) -> None:
    got, expected = run_kernel(library, case, threads), case.expected()
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert_same_bits(one, other)


def test_random_nodes(library) -> None:
    rng = np.random.default_rng(0)
    columns = 0
    for _ in range(300):
        case = random_case(rng)
        check(library, case)
        columns += case.columns
    assert columns > 100_000


@pytest.mark.slow
def test_many_random_nodes(library) -> None:
    rng = np.random.default_rng(99)
    for _ in range(4000):
        check(library, random_case(rng))


FLOATS = [dtype for dtype in DTYPES if dtype.kind not in "iu"]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_pair_and_triple_of_special_values(library, dtype) -> None:
    initial, a, b = (axis.reshape(1, -1) for axis in np.meshgrid(*[special_values(dtype)] * 3))
    check(library, NodeCase("LinearRecurrence", {"v_initial": initial[0], "a": a, "b": b}, (True, True), {}))
    check(library, NodeCase("PrefixSum", {"v_initial": initial[0], "x": a}, (True, True), {}))


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.itemsize == 2], ids=str)
def test_every_half_plus_and_times_some(library, dtype) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(1)
    x = values(rng, (9, every.size), dtype)
    check(library, NodeCase("PrefixSum", {"v_initial": every, "x": x}, (True, True), {}))
    check(library, NodeCase("LinearRecurrence", {"v_initial": every, "a": x, "b": x[::-1].copy()}, (True, True), {}))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 16, 21, 63, 64, 65, 300])
def test_every_width_and_direction(library, dtype, columns) -> None:
    rng = np.random.default_rng(columns)
    for reverse, emit_previous in itertools.product((0, 1), (0, 1)):
        inputs = {
            "v_initial": rng.normal(size=columns),
            "a": rng.normal(size=(200, columns)),
            "b": rng.normal(size=(200, columns)),
        }
        case = {name: (array * 9).astype(dtype) for name, array in inputs.items()}
        flags = {"reverse": reverse, "emit_previous": emit_previous}
        check(library, NodeCase("LinearRecurrence", case, (True, True), flags))


def test_threads_share_wide_states(library) -> None:
    rng = np.random.default_rng(5)
    for dtype in (np.dtype("f4"), np.dtype("i1"), np.dtype("f2")):
        initial, a, b = values(rng, (50_001,), dtype), values(rng, (9, 50_001), dtype), values(rng, (9, 1), dtype)
        check(
            library, NodeCase("LinearRecurrence", {"v_initial": initial, "a": a, "b": b}, (True, True), {}), threads=2
        )


F = np.float32
ONE, TWO, THREE = (np.zeros((time, 1), F) for time in (1, 2, 3))
M = np.array(3)


@pytest.mark.parametrize(
    ("op", "inputs", "flags", "message"),
    [
        ("AddStep", [np.array([1, 2]), None, ONE, ONE], {}, r"M must be one int64, not of shape \[2\]"),
        ("AddStep", [M, np.array([True, True]), ONE, ONE], {}, r"cond must be one bool, not of shape \[2\]"),
        ("AddStep", [M, None, np.zeros(2, F), np.zeros(3, F)], {}, r"v_initial \[2\] and step \[3\] do not broadcast"),
        ("AddStep", [M, None, F(0), np.zeros(3, F)], {"emit_previous": 1}, r"grows from \[\] to \[3\]"),
        ("PrefixSum", [TWO[0], F(0)], {}, "x is a scalar"),
        ("PrefixSum", [TWO[0], np.zeros((2, 4), F)], {}, r"an element of x has shape \[4\]"),
        ("LinearRecurrence", [TWO[0], TWO, THREE], {}, "a has 2 steps, b has 3 steps"),
        ("LinearRecurrence", [TWO[0], TWO, TWO], {"a_invariant": 1, "b_invariant": 1}, "no input has a time axis"),
        ("LinearRecurrence", [TWO[0], TWO, np.zeros((2, 4), F)], {}, r"an element of b has shape \[4\]"),
        ("LinearRecurrence", [TWO[0], np.zeros((2, 1, 1), F), TWO], {}, r"an element of a has shape \[1,1\]"),
    ],
)  # fmt: skip
def test_errors(library, op, inputs, flags, message) -> None:
    names = {"AddStep": ("M", "cond", "v_initial", "step"), "PrefixSum": ("v_initial", "x")}.get(
        op, ("v_initial", "a", "b")
    )
    case = NodeCase(op, dict(zip(names, map(_array, inputs), strict=True)), (True, True), flags)
    with pytest.raises(Exception, match=message):
        run_kernel(library, case)
    with pytest.raises(Exception, match=r"AddStep|PrefixSum|LinearRecurrence"):
        case.expected()


def _array(value):
    return None if value is None else np.asarray(value)


@pytest.mark.parametrize("shapes", [((1,), (5,)), ((5,), (4,)), ((2, 1), (3,)), ((), (2, 3)), ((3, 1), ())], ids=str)
@pytest.mark.parametrize("emit_previous", [0, 1])
def test_no_iterations_of_states_that_would_grow(library, shapes, emit_previous) -> None:
    initial, step = (np.ones(shape, F) for shape in shapes)
    inputs = {"M": np.array(-1), "cond": None, "v_initial": initial, "step": step}
    check(library, NodeCase("AddStep", inputs, (True, True), {"emit_previous": emit_previous}))
    grown = NodeCase("AddStep", {**inputs, "M": np.array(1)}, (True, True), {"emit_previous": emit_previous})
    if shapes != ((5,), (4,)):
        check(library, grown)


def test_only_the_last_of_a_state_that_grows(library) -> None:
    inputs = {"M": M, "cond": None, "v_initial": np.ones((), F), "step": np.ones(4, F)}
    check(library, NodeCase("AddStep", inputs, (True, False), {"emit_previous": 1}))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != np.float64], ids=str)
@pytest.mark.parametrize("columns", [1, 3, 70])
def test_the_last_of_very_many_steps(library, dtype, columns) -> None:
    """The states of floats come to rest, those of integers are known at once."""
    rng = np.random.default_rng(columns)
    initial, step = (rng.normal(size=(2, columns)) * 50).astype(dtype)
    step[step == 0] = 1
    for count in (1 << 40, (1 << 16) + 1, 1 << 16, 3 << 15):
        inputs = {"M": np.array(count), "cond": None, "v_initial": initial, "step": step}
        check(library, NodeCase("AddStep", inputs, (True, False), {}))


def test_more_rows_than_memory_is_an_error(library) -> None:
    inputs = {"M": np.array(1 << 60), "cond": None, "v_initial": np.ones(8, F), "step": np.ones(8, F)}
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        run_kernel(library, NodeCase("AddStep", inputs, (True, True), {}))

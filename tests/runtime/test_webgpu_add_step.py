"""AddStep's WebGPU kernel gives the bits of adding in order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.runtime.ops import all_ops
from looplift.runtime.webgpu import DeviceMemoryError, DeviceTensor, run_op
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.packages.package import package_of

from .webgpu_cases import FLOATS, INTEGERS, add_in_order, halves, random_bits, same_bits, similar, tiny

OP = all_ops()["AddStep"]
BOTH = (True, True)


def add_steps(
    device, count, initial, step, emit_previous=0, rows=None, cond=True, wanted=("v_final", "scan_output"), **tunables
):
    """Runs the package at its own interface: v_final and scan_output as numpy arrays."""
    inputs = {"m": np.array(count, np.uint32), "cond": np.array(cond), "v_initial": initial, "step": step}
    shapes = {"v_final": None, "scan_output": (count if rows is None else rows, initial.size)}
    results = run_package(
        package_of("looplift.runtime.ops.add_step"),
        device,
        {name: DeviceTensor.upload(device, value) for name, value in inputs.items()},
        {name: shapes[name] for name in wanted},
        {"emit_previous": emit_previous},
        tunables,
    )
    return tuple(results[name].numpy() if name in results else None for name in ("v_final", "scan_output"))


def check(device, count, initial, step, emit_previous=0, **tunables):
    if tunables.get("hardware_add") and not device.behaviour.adds_to_nearest_even:
        pytest.skip("this device's own additions do not round to nearest even")
    last, rows = add_in_order(count, initial, step, bool(emit_previous))
    final, stacked = add_steps(device, count, initial, step, emit_previous, **tunables)
    assert same_bits(final, last)
    assert same_bits(stacked, rows)


@pytest.mark.parametrize("make", [random_bits, similar, tiny], ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_every_type_in_every_shape_of_dispatch(device, dtype, make):
    """Kept runs (few columns, many rows), blocks of rows (many columns), and columns that do not fill a word."""
    random = np.random.default_rng(1)
    for count, columns, emit_previous in ((1, 1, 0), (2, 3, 1), (700, 1, 1), (520, 65, 0), (70, 1000, 1), (33, 513, 0)):
        initial, step = make(random, dtype, (columns,)), make(random, dtype, (columns,))
        check(device, count, initial, step, emit_previous)
        check(device, count, initial, step, emit_previous, fewest_invocations=4)  # more rows an invocation


@pytest.mark.parametrize("count", [3, 600])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_pair_of_special_values(device, dtype, count):
    limits = ml_dtypes.finfo(dtype)
    positive = [0, limits.smallest_subnormal, limits.tiny, 1, limits.max, np.inf, np.nan]
    values = np.array([sign * float(value) for value in positive for sign in (1, -1)]).astype(dtype)
    initial, step = (grid.reshape(-1) for grid in np.meshgrid(values, values))
    check(device, count, initial, step)
    check(device, count, initial, step, hardware_add=1)
    check(device, count, np.resize(initial, 512), np.resize(step, 512), 1, hardware_add=1, widest_kept_hardware=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ties_at_binade_edges(device, dtype):
    random = np.random.default_rng(2)
    check(device, 40, *halves(random, dtype, (2000,)))
    check(device, 600, *halves(random, dtype, (64,)))


@pytest.mark.parametrize("hardware_add", [0, 1])
@pytest.mark.parametrize("make", [random_bits, similar, tiny], ids=lambda make: make.__name__)
def test_the_devices_own_addition_is_taken_only_where_it_is_exact(device, make, hardware_add):
    random, dtype = np.random.default_rng(3), np.dtype("float32")
    initial, step = make(random, dtype, (4000,)), make(random, dtype, (4000,))
    initial[::7], step[::5], initial[::11] = 0, 0, -0.0
    check(device, 130, initial, step, 0, hardware_add=hardware_add)
    check(device, 65, initial, step, 1, hardware_add=hardware_add)
    check(device, 600, initial[:24], step[:24], 0, hardware_add=hardware_add)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_known_hard_trajectories(device, dtype):
    """A first state from a finer grid with an odd tie; a sum just under the binade's edge; crossing zero."""
    initial = np.array([28, 96, -28, 2**24, 1.5e-45, 0.0], dtype)
    step = np.array([-0.764874, -0.27118552, 0.764874, 0.5, 1e-45, 0.1], dtype)
    check(device, 3000, initial, step)


@pytest.mark.parametrize("count", [0, 65_534, 65_535, 65_536, 65_537])
@pytest.mark.parametrize("columns", [1, 4])
def test_around_the_loop_limit_of_a_driver(device, count, columns):
    """One driver silently ends every shader loop after 65,535 rounds; no invocation may need more."""
    random = np.random.default_rng(4)
    check(
        device,
        count,
        similar(random, np.dtype("float32"), (columns,)),
        similar(random, np.dtype("float32"), (columns,)),
    )


@pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
@pytest.mark.parametrize(("count", "columns"), [(2100, 520), (8300, 20)])
@pytest.mark.parametrize("hardware_add", [0, 1])
def test_blocks_of_rows_in_several_stretches(device, dtype, count, columns, hardware_add):
    """The states at which blocks begin are found in stretches; a later stretch begins at a state found by runs."""
    random = np.random.default_rng(13)
    initial, step = similar(random, dtype, (columns,)), similar(random, dtype, (columns,))
    initial[:2], step[1:3], step[4] = 0, 0, float(ml_dtypes.finfo(dtype).tiny)
    check(device, count, initial, step, widest_kept=0, widest_kept_hardware=0, hardware_add=hardware_add)


@pytest.mark.parametrize("columns", [511, 600])
def test_windows_begin_where_blocks_of_rows_do(device, columns, monkeypatch):
    """A binding that holds an odd multiple of 128 rows, and blocks of 256 rows (511 columns) or 32 (600)."""
    monkeypatch.setitem(device.limits, "maxStorageBufferBindingSize", 5 * 128 * columns * 4)
    random, dtype = np.random.default_rng(16), np.dtype("float32")
    initial, step = similar(random, dtype, (columns,)), similar(random, dtype, (columns,))
    check(device, 1501, initial, step, hardware_add=1, widest_kept_hardware=0)


@pytest.mark.parametrize("make", [random_bits, similar, tiny], ids=lambda make: make.__name__)
@pytest.mark.parametrize("columns", [128, 132, 1000])
@pytest.mark.parametrize("emit_previous", [0, 1])
def test_units_abreast(device, columns, emit_previous, make):
    """As on a device that is a CPU: many units an invocation, through all rows; not all fit, not all may be added."""
    random, dtype = np.random.default_rng(15), np.dtype("float32")
    initial, step = make(random, dtype, (columns,)), similar(random, dtype, (columns,))
    step[:columns:97] = 0
    abreast = {"hardware_add": 1, "abreast": 2, "fewest_abreast": 1, "widest_kept_hardware": 0}
    check(device, 70, initial, step, emit_previous, **abreast)
    check(device, 8192, initial, step, emit_previous, **abreast)
    final, rows = add_steps(device, 5, initial, step, emit_previous, rows=9, **abreast)
    last, first_rows = add_in_order(5, initial, step, bool(emit_previous))
    assert same_bits(final, last)
    assert same_bits(rows[:5], first_rows)
    assert not rows[5:].any()


def test_one_iteration_is_not_taken_for_true(device):
    """M and cond are kept on the device by their values."""
    for count in (1, 0, 1):
        inputs = [np.array(count), np.array(True), np.ones(40, np.float32), np.ones(40, np.float32)]
        result = run_op(OP, inputs, {}, (True, False), device=device)
        assert count == 0 or same_bits(result[0].numpy(), np.full(40, 2, np.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_runs_of_a_column_fit_their_table(dtype):
    """The kernel's walk, in numpy: the table holds 8 * precision + 36 runs of a column, and none has more."""
    precision = ml_dtypes.finfo(dtype).nmant + 1
    random = np.random.default_rng(14)
    step = similar(random, dtype, (6000,))
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp2(random.uniform(-2, precision + 2, 6000))
        initial = (step.astype(np.float64) * ratio * random.choice([-1, 1], 6000)).astype(dtype)
    initial[:500], step[:500] = (half[:500] for half in halves(random, dtype, (6000,)))
    initial[500:1000], step[500:1000] = random_bits(random, dtype, (500,)), random_bits(random, dtype, (500,))
    assert 2 * precision < most_runs(initial, step) <= 8 * precision + 36


def most_runs(initial, step):
    """The most runs that any column has before it reaches a fixed point."""
    bits = np.dtype(f"i{initial.itemsize}")
    fraction = 2 ** (ml_dtypes.finfo(initial.dtype).nmant) - 1
    value, runs = initial.view(bits).copy(), 0
    with np.errstate(all="ignore"):
        while True:
            after = (value.view(initial.dtype) + step).view(bits)
            then = (after.view(initial.dtype) + step).view(bits)
            nan = (after.view(initial.dtype) != after.view(initial.dtype)) | (after == value)
            if nan.all():
                return runs
            delta = after - value
            steady = (((value ^ after) | (value ^ then)) & ~fraction == 0) & (then - after == delta) & (delta != 0)
            room = np.where(delta > 0, fraction - (value & fraction), np.maximum(value & fraction, 1) - 1)
            reach = np.where(steady, np.maximum(room // np.where(delta == 0, 1, np.abs(delta)), 1), 1)
            value, runs = np.where(nan, value, value + reach * delta).astype(bits), runs + 1


@pytest.mark.parametrize("count", [10**6, 2**24 + 3, 2**32 - 1])
def test_the_last_state_alone_does_not_walk_every_row(device, count):
    random, dtype = np.random.default_rng(5), np.dtype("float32")
    initial, step = random_bits(random, dtype, (3000,)), random_bits(random, dtype, (3000,))
    final, _ = add_steps(device, count, initial, step, wanted=("v_final",))
    expected, _ = OP.numpy([np.array(count), None, initial, step], {}, (True, False))
    assert same_bits(final, expected)


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 1200),
    columns=st.integers(1, 40),
    dtype=st.sampled_from([*FLOATS, *INTEGERS]),
    emit_previous=st.integers(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_case_is_bit_equal(device, count, columns, dtype, emit_previous, seed):
    random = np.random.default_rng(seed)
    check(device, count, random_bits(random, dtype, (columns,)), similar(random, dtype, (columns,)), emit_previous)


class TestContract:
    """The package's own interface: M is a limit, the caller gives the rows, the tail is zero."""

    initial = np.array([1, -0.0, np.nan, 4, 5], np.float32)
    step = np.array([1, 2, 3, 4, 0.1], np.float32)

    @pytest.mark.parametrize(("limit", "rows"), [(3, 7), (7, 3), (0, 4), (5, 0), (600, 520), (520, 600)])
    @pytest.mark.parametrize("columns", [1, 4, 5])
    def test_runs_the_smaller_of_limit_and_rows(self, device, limit, rows, columns):
        initial, step, executed = self.initial[:columns], self.step[:columns], min(limit, rows)
        last, stacked = add_in_order(executed, initial, step)
        for fewest_invocations in (4, 1024):
            final, got = add_steps(device, limit, initial, step, rows=rows, fewest_invocations=fewest_invocations)
            assert same_bits(final, last)
            assert same_bits(got[:executed], stacked)
            assert not got[executed:].view(np.uint32).any()

    @pytest.mark.parametrize("emit_previous", [0, 1])
    def test_false_runs_nothing(self, device, emit_previous):
        final, rows = add_steps(device, 5, self.initial, self.step, emit_previous, cond=False)
        assert same_bits(final, self.initial)
        assert not rows.view(np.uint32).any()

    def test_cond_may_be_uint32_and_of_rank_one(self, device):
        final, _ = add_steps(device, 2, self.initial, self.step, cond=np.array([1], np.uint32))
        assert same_bits(final, add_in_order(2, self.initial, self.step)[0])


class TestRunOp:
    """The ONNX op on the device has the numpy kernel's shapes and values."""

    @pytest.mark.parametrize(
        ("initial", "step"),
        [((), ()), ((3,), ()), ((2, 3), (3,)), ((1,), (4,)), ((0,), (0,)), ((2, 0), (1, 0)), ((), (2, 2))],
    )
    @pytest.mark.parametrize("emit_previous", [0, 1])
    def test_shapes_broadcast(self, device, initial, step, emit_previous):
        random = np.random.default_rng(6)
        inputs = [
            np.array([5]),
            np.array(True),
            *(np.asarray(random.standard_normal(shape, np.float32)) for shape in (initial, step)),
        ]
        results = run_op(OP, inputs, {"emit_previous": emit_previous}, BOTH, device=device)
        grows = np.broadcast_shapes(initial, step) != initial
        if emit_previous and grows:
            assert results is None  # an error, which the numpy kernel tells
            return
        for result, expected in zip(results, OP.numpy(inputs, {"emit_previous": emit_previous}, BOTH), strict=True):
            assert same_bits(result.numpy(), expected)

    def test_only_what_is_wanted(self, device):
        inputs = [np.array(5), None, np.ones(3, np.float32), np.ones(3, np.float32)]
        final, rows = run_op(OP, inputs, {}, (False, True), device=device)
        assert final is None
        assert rows.shape == (5, 3)
        assert run_op(OP, inputs, {}, (True,), device=device)[0].numpy().tolist() == [6, 6, 6]

    @pytest.mark.parametrize("count", [0, -1, 2**32])
    def test_leaves_to_numpy_what_is_not_for_the_device(self, device, count):
        inputs = [np.array(count), None, np.ones(3, np.float32), np.ones(3, np.float32)]
        assert run_op(OP, inputs, {}, (True, False), device=device) is None

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            (0, np.array([1, 2])),
            (0, np.array(3, np.int32)),
            (1, np.array([True, True])),
            (2, np.array([True])),
            (3, None),
        ],
        ids=str,
    )
    def test_leaves_to_numpy_what_is_not_valid(self, device, place, value):
        """It has the message for the user."""
        inputs = [np.array(3), np.array(True), np.ones(3, np.float32), np.ones(3, np.float32)]
        inputs[place] = value
        assert run_op(OP, inputs, {}, (True, False), device=device) is None

    def test_values_stay_on_the_device(self, device):
        step = np.full(3, 0.1, np.float32)
        first, _ = run_op(OP, [np.array(5), None, np.ones(3, np.float32), step], {}, (True, False), device=device)
        second, _ = run_op(OP, [np.array(7), None, first, step], {}, (True, False), device=device)
        assert isinstance(first, DeviceTensor)
        assert same_bits(second.numpy(), add_in_order(12, np.ones(3, np.float32), step)[0])

    def test_an_output_beyond_the_largest_buffer_is_refused(self, device):
        inputs = [np.array(2**31), None, np.ones(3, np.float32), np.ones(3, np.float32)]
        with pytest.raises(DeviceMemoryError, match=r"larger than the largest buffer.*numpy"):
            run_op(OP, inputs, {}, (False, True), device=device)
        with pytest.warns(RuntimeWarning, match="AddStep runs on numpy instead"):
            assert run_op(OP, inputs, {}, (False, True), device=device, auto=True) is None


@pytest.mark.slow
class TestLarge:
    @pytest.mark.parametrize("make", [random_bits, similar, tiny], ids=lambda make: make.__name__)
    def test_a_million_columns(self, device, make):
        random, dtype = np.random.default_rng(7), np.dtype("float32")
        initial, step = make(random, dtype, (10**6,)), make(random, dtype, (10**6,))
        for hardware_add in (0, 1):
            check(device, 20, initial, step, hardware_add=hardware_add)

    def test_a_million_columns_of_ties(self, device):
        initial, step = halves(np.random.default_rng(8), np.dtype("float32"), (10**6,))
        check(device, 20, initial, step, hardware_add=1)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_a_million_columns_of_every_float_end_where_they_should(self, device, dtype):
        random = np.random.default_rng(9)
        initial, step = random_bits(random, dtype, (10**6,)), random_bits(random, dtype, (10**6,))
        with np.errstate(invalid="ignore"):
            step[::2] = (initial[::2].astype(np.float64) * random.uniform(-0.1, 0.1, 500_000)).astype(dtype)
        final, _ = add_steps(device, 1000, initial, step, wanted=("v_final",))
        assert same_bits(final, add_last_in_order(1000, initial, step))

    @pytest.mark.parametrize("columns", [1, 3])
    def test_a_million_rows(self, device, columns):
        random, dtype = np.random.default_rng(10), np.dtype("float32")
        for _ in range(5):
            check(device, 10**6, similar(random, dtype, (columns,)), similar(random, dtype, (columns,)))

    @pytest.mark.parametrize(("count", "columns"), [(400, 10**5), (40_000_000, 1), (20_000_000, 2), (400_000, 101)])
    def test_more_than_one_binding_holds(self, device, count, columns):
        """160 MB and more: the output is bound in windows where the device's limit is 128 MiB."""
        random, dtype = np.random.default_rng(11), np.dtype("float32")
        initial, step = similar(random, dtype, (columns,)), similar(random, dtype, (columns,))
        _, rows = add_steps(device, count, initial, step, wanted=("scan_output",))
        expected, _ = OP.numpy([np.array(count), None, initial, step], {}, (False, True))[::-1]
        assert same_bits(rows, expected)

    def test_more_workgroups_than_one_side_of_the_grid_holds(self, device):
        random, dtype = np.random.default_rng(12), np.dtype("int32")
        initial, step = random_bits(random, dtype, (20_000_000,)), random_bits(random, dtype, (20_000_000,))
        final, rows = add_steps(device, 1, initial, step)
        assert same_bits(final, initial + step)
        assert same_bits(rows[0], initial + step)

    def test_more_workgroups_abreast_than_one_side_of_the_grid_holds(self, device):
        random, dtype = np.random.default_rng(17), np.dtype("float32")
        initial, step = similar(random, dtype, (5_000_000,)), similar(random, dtype, (5_000_000,))
        check(device, 1, initial, step, hardware_add=1, abreast=2, fewest_abreast=1)


def add_last_in_order(count, initial, step):
    state = initial.copy()
    with np.errstate(all="ignore"):
        for _ in range(count):
            state = state + step
    return state

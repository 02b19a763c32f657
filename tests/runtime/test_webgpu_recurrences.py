"""PrefixSum and LinearRecurrence on WebGPU give the bits of the numpy kernels, which walk through time in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.runtime.ops import all_ops
from looplift.runtime.webgpu import DeviceTensor, run_op
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.packages.package import package_of

from .webgpu_cases import FLOATS, INTEGERS, random_bits, same_bits, similar, tiny

PREFIX_SUM, LINEAR = all_ops()["PrefixSum"], all_ops()["LinearRecurrence"]
BOTH = (True, True)
MAKERS = [random_bits, similar, tiny]


def check(device, op, inputs, attributes):
    results = run_op(op, inputs, attributes, BOTH, device=device)
    assert results is not None, "the kernel did not take the case"
    for result, expected in zip(results, op.numpy(inputs, attributes, BOTH), strict=True):
        assert same_bits(result.numpy(), expected)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_every_type(device, dtype, make):
    random = np.random.default_rng(1)
    attributes = {"emit_previous": int(make is tiny), "reverse": int(make is similar)}
    state, x, a = make(random, dtype, (40,)), make(random, dtype, (30, 40)), similar(random, dtype, (30, 40))
    check(device, PREFIX_SUM, [state, x], attributes)
    check(device, LINEAR, [state, a, x], attributes)
    check(device, LINEAR, [state, x, a], attributes)


@settings(max_examples=20, deadline=None)
@given(
    time=st.integers(1, 80),
    columns=st.integers(8, 20).map(lambda quarter: 4 * quarter),
    dtype=st.sampled_from(FLOATS),
    makers=st.tuples(*[st.sampled_from(MAKERS)] * 3),
    flags=st.tuples(*[st.integers(0, 1)] * 2),
    invariant=st.sampled_from([(0, 0), (1, 0), (0, 1)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_linear_recurrence_is_bit_equal(device, time, columns, dtype, makers, flags, invariant, seed):
    random = np.random.default_rng(seed)
    a, b = ((columns,) if fixed else (time, columns) for fixed in invariant)
    inputs = [make(random, dtype, shape) for make, shape in zip(makers, ((columns,), a, b), strict=True)]
    names = ("emit_previous", "reverse", "a_invariant", "b_invariant")
    check(device, LINEAR, inputs, dict(zip(names, (*flags, *invariant), strict=True)))


@pytest.mark.parametrize("reverse", [0, 1])
def test_many_chunks_of_time(device, reverse):
    random, dtype = np.random.default_rng(2), np.dtype("float32")
    state, x = similar(random, dtype, (32,)), similar(random, dtype, (5000, 32))
    check(device, PREFIX_SUM, [state, x], {"reverse": reverse})
    check(device, LINEAR, [state, x / np.float32(9), x], {"reverse": reverse})


@settings(max_examples=20, deadline=None)
@given(
    time=st.integers(512, 1200),
    columns=st.sampled_from([4, 8, 28]),
    dtype=st.sampled_from(INTEGERS),
    flags=st.tuples(*[st.integers(0, 1)] * 2),
    invariant=st.sampled_from([(0, 0), (1, 0), (0, 1)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_long_narrow_series_of_integers_go_block_by_block(device, time, columns, dtype, flags, invariant, seed):
    random = np.random.default_rng(seed)
    shapes = ((columns,), *((columns,) if fixed else (time, columns) for fixed in invariant), (time, columns))
    state, a, b, x = (random_bits(random, dtype, shape) for shape in shapes)
    attributes = dict(zip(("emit_previous", "reverse"), flags, strict=True))
    check(device, PREFIX_SUM, [state, x], attributes)
    names = ("a_invariant", "b_invariant")
    check(device, LINEAR, [state, a, b], {**attributes, **dict(zip(names, invariant, strict=True))})


@pytest.mark.parametrize("op", [PREFIX_SUM, LINEAR], ids=lambda op: op.name)
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("names", [["v_final"], ["scan_output"], ["v_final", "scan_output"]], ids="+".join)
def test_blocks_in_several_chunks_of_time(device, op, reverse, names):
    """200 rows in chunks of 64, these in blocks of 16: the last chunk and its last block are shorter."""
    random, dtype = np.random.default_rng(6), np.dtype("int32")
    ports = [port.name for port in op.schema.inputs]
    inputs = dict(
        zip(ports, (random_bits(random, dtype, (64,)), *random_bits(random, dtype, (2, 200, 64))), strict=False)
    )
    small = {"shortest_blocked": 1, "fewest_block_rows": 8, "most_block_rows": 16, "most_blocks": 4}
    package, tensors = package_of(op.package), {port: DeviceTensor.upload(device, v) for port, v in inputs.items()}
    results = run_package(package, device, tensors, dict.fromkeys(names), {"reverse": reverse}, small)
    expected = op.numpy(list(inputs.values()), {"reverse": reverse}, BOTH)
    for name, value in zip(("v_final", "scan_output"), expected, strict=True):
        assert name not in names or same_bits(results[name].numpy(), value)


def test_product_and_sum_are_rounded_apart(device):
    """A fused operation would leave the product's rounding error instead of zero."""
    factor = np.full((1, 32), 1 + 2**-12, np.float32)
    term = np.full((1, 32), -(1 + 2**-11), np.float32)
    final, _ = run_op(LINEAR, [factor[0], factor, term], {}, (True, False), device=device)
    assert final.numpy().tolist() == [0.0] * 32


def test_elements_broadcast_to_the_state(device):
    random, dtype = np.random.default_rng(3), np.dtype("float32")
    state, x = similar(random, dtype, (4, 16)), similar(random, dtype, (9, 16))
    check(device, PREFIX_SUM, [state, x], {})
    check(device, LINEAR, [state, similar(random, dtype, (9, 4, 1)), similar(random, dtype, ())], {"b_invariant": 1})


@pytest.mark.parametrize(
    ("state", "series"), [((8,), (5, 8)), ((64,), (0, 64)), ((64,), (5, 2, 64)), ((64,), ())], ids=str
)
def test_leaves_to_numpy_what_is_not_for_the_device(device, state, series):
    """Few columns, no steps, an element larger than the state, no time axis."""
    assert (
        run_op(PREFIX_SUM, [np.zeros(state, np.float32), np.zeros(series, np.float32)], {}, BOTH, device=device) is None
    )


def test_leaves_odd_columns_of_a_small_type_to_numpy(device):
    inputs = [np.zeros(65, np.float16), np.zeros((5, 65), np.float16)]
    assert run_op(PREFIX_SUM, inputs, {}, BOTH, device=device) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", [PREFIX_SUM, LINEAR], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_million_columns(device, op, dtype, make):
    random = np.random.default_rng(4)
    inputs = [make(random, dtype, (10**6,)), *(make(random, dtype, (3, 10**6)) for _ in op.schema.inputs[1:])]
    check(device, op, inputs, {})


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [0, 1])
def test_more_than_one_binding_holds(device, reverse):
    random, dtype = np.random.default_rng(5), np.dtype("float32")
    check(
        device,
        PREFIX_SUM,
        [similar(random, dtype, (100_000,)), similar(random, dtype, (400, 100_000))],
        {"reverse": reverse},
    )

"""PrefixSum against addition in order, and its definition in ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from looplift.runtime.errors import LoopliftError
from tests.runtime.op_cases import (
    INTEGERS,
    assert_definition_agrees,
    assert_same_bits,
    kernel,
    one_node,
    run_ort,
    special_values,
)

DTYPES = [np.dtype(ml_dtypes.bfloat16), np.dtype("f2"), np.dtype("f4"), np.dtype("f8"), *INTEGERS]


def in_order(initial, x, reverse=0, emit_previous=0):
    """Final state and rows, [time, *state], added one after the other."""
    rows = np.empty((len(x), *initial.shape), initial.dtype)
    state = initial
    with np.errstate(all="ignore"):
        for now in range(len(x))[:: -1 if reverse else 1]:
            updated = np.asarray(np.add(state, x[now]))
            rows[now] = state if emit_previous else updated
            state = updated
    return state, rows


def check(initial, x):
    for flags in ({}, {"reverse": 1}, {"emit_previous": 1}, {"reverse": 1, "emit_previous": 1}):
        final, rows = in_order(initial, x, **flags)
        got_final, got_rows = kernel("PrefixSum", [initial, x], **flags)
        assert_same_bits(got_final, final)
        assert_same_bits(got_rows, rows)
        only, nothing = kernel("PrefixSum", [initial, x], (True, False), **flags)
        assert_same_bits(only, final)
        assert nothing is None
        nothing, only = kernel("PrefixSum", [initial, x], (False, True), **flags)
        assert_same_bits(only, rows)
        assert nothing is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), time=st.sampled_from([0, 1, 2, 9, 70]), columns=st.sampled_from([1, 3, 40]))
def test_any_bits(dtype, data, time, columns):
    size = (time + 1) * columns
    raw = data.draw(hnp.arrays(np.uint8, size * dtype.itemsize))
    values = raw.view(dtype).reshape(time + 1, columns)
    check(values[0], values[1:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 16, 128, 129, 1000])
def test_sums_are_not_made_in_pairs(dtype, columns):
    """Long enough that adding in pairs, or in a wider type, would round elsewhere."""
    rng = np.random.default_rng(columns)
    x = (rng.normal(size=(700, columns)) * 50).astype(dtype)
    check(np.asarray(x[0] * 3, dtype), x)


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
def test_special_values(dtype):
    grid = np.meshgrid(*[special_values(dtype)] * 3)
    initial, *x = (axis.reshape(-1) for axis in grid)
    check(initial, np.array(x))
    check(initial[:40], np.array(x)[:, :40])


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 2), (0,), (2, 0)])
@pytest.mark.parametrize("time", [0, 1, 5, 600])
def test_any_rank(shape, time):
    rng = np.random.default_rng(time)
    check(np.asarray(rng.normal(size=shape), "f4"), rng.normal(size=(time, *shape)).astype("f4"))


@pytest.mark.parametrize("element", [(), (3,), (1, 3), (2, 1), (1,)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_elements_broadcast_to_the_state(element, order):
    rng = np.random.default_rng(7)
    initial = rng.normal(size=(2, 3)).astype("f4", order=order)
    x = np.asarray(rng.normal(size=(6, *element)), "f4", order=order)
    check(initial, x)
    for opset in (8, 17):
        assert_definition_agrees("PrefixSum", opset, {"v_initial": initial, "x": x}, reverse=1)


def test_inputs_are_kept_and_results_are_new():
    initial, x = np.zeros(3, "f4"), np.ones((4, 3), "f4")
    for time in (0, 4):
        final, rows = kernel("PrefixSum", [initial, x[:time]], emit_previous=1)
        final += 5
        rows += 5
        assert not initial.any()
        assert (x == 1).all()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([None, np.zeros((2, 1), "f4")], "v_initial must be given"),
        ([np.zeros(1, "f4"), None], "x must be given"),
        ([np.zeros(1, "f4"), np.zeros((2, 1), "f8")], "one number type"),
        ([np.zeros(1, "?"), np.zeros((2, 1), "?")], "one number type"),
        ([np.zeros((), "f4"), np.zeros((), "f4")], "time must be its first axis"),
        ([np.zeros(1, "f4"), np.zeros((2, 3), "f4")], "may not change its shape"),
        ([np.zeros(3, "f4"), np.zeros((2, 2, 3), "f4")], "may not change its shape"),
        ([np.zeros(3, "f4"), np.zeros((2, 1, 3), "f4")], "may not change its shape"),
        ([np.zeros((1 << 20, 1 << 10), "u1"), np.broadcast_to(np.uint8(1), (1 << 20, 1))], "bytes"),
    ],
)
def test_errors(inputs, message):
    with pytest.raises(LoopliftError, match=message):
        kernel("PrefixSum", inputs)


@pytest.mark.parametrize("opset", range(8, 29))
@pytest.mark.parametrize("flags", [{}, {"emit_previous": 1}, {"reverse": 1}], ids=str)
def test_definition_in_every_opset(opset, flags):
    rng = np.random.default_rng(opset)
    for time, known in [(0, True), (0, False), (6, False)]:
        inputs = {"v_initial": rng.normal(size=3).astype("f4"), "x": rng.normal(size=(time, 3)).astype("f4")}
        shapes = None if known else {"v_initial": ["n"], "x": ["t", "n"]}
        assert_definition_agrees("PrefixSum", opset, inputs, shapes=shapes, **flags)


@pytest.mark.parametrize("shape", [(), (2, 3), (0,), (2, 0, 1)])
@pytest.mark.parametrize("opset", [8, 13, 17])
def test_definition_of_any_rank(shape, opset):
    for time in (0, 4):
        inputs = {"v_initial": np.full(shape, 0.1, "f4"), "x": np.full((time, *shape), 0.3, "f4")}
        assert_definition_agrees("PrefixSum", opset, inputs, reverse=1, emit_previous=1)
        assert_definition_agrees("PrefixSum", opset, inputs, (True, False))
        assert_definition_agrees("PrefixSum", opset, inputs, (False, True))


@pytest.mark.parametrize("dtype", ["f2", "f8", "i1", "u1", "i4", "u4", "i8", "u8"])
def test_definition_of_other_types(dtype):
    x = (np.arange(60).reshape(20, 3) * 7 % 100).astype(dtype)
    assert_definition_agrees("PrefixSum", 17, {"v_initial": x[0], "x": x})


def test_definition_refuses_a_state_that_grows():
    inputs = {"v_initial": np.zeros(1, "f4"), "x": np.zeros((2, 3), "f4")}
    for opset in (8, 13, 17):
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            run_ort(one_node("PrefixSum", opset, inputs), inputs)


@pytest.mark.parametrize("element", [(5,), (2, 5), (1,), ()])
@pytest.mark.parametrize("opset", [8, 11, 17])
def test_elements_that_do_not_fit_are_no_error_where_there_is_no_step(element, opset):
    case = {"v_initial": np.full(3, 0.5, "f4"), "x": np.empty((0, *element), "f4")}
    symbols = {"v_initial": ["v"], "x": ["t", *(f"x{k}" for k in range(len(element)))]}
    for flags in ({}, {"reverse": 1}, {"emit_previous": 1}):
        assert_definition_agrees("PrefixSum", opset, case, shapes=symbols, **flags)
    assert kernel("PrefixSum", list(case.values()))[1].shape == (0, 3)

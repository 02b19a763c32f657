"""LinearRecurrence against products and sums in order, and its definition in ONNX Runtime."""

from __future__ import annotations

import itertools

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
FLAGS = [
    {"reverse": reverse, "emit_previous": emit_previous} for reverse, emit_previous in itertools.product((0, 1), (0, 1))
]


def in_order(initial, a, b, reverse=0, emit_previous=0, a_invariant=0, b_invariant=0):
    """Final state and rows, [time, *state], one rounding after each product and one after each sum."""
    time = len(b if a_invariant else a)
    rows = np.empty((time, *initial.shape), initial.dtype)
    state = initial
    with np.errstate(all="ignore"):
        for now in range(time)[:: -1 if reverse else 1]:
            product = np.multiply(a if a_invariant else a[now], state)
            updated = np.asarray(np.add(product, b if b_invariant else b[now]))
            rows[now] = state if emit_previous else updated
            state = updated
    return state, rows


def check(initial, a, b, **invariant):
    for flags in FLAGS:
        final, rows = in_order(initial, a, b, **flags, **invariant)
        got_final, got_rows = kernel("LinearRecurrence", [initial, a, b], **flags, **invariant)
        assert_same_bits(got_final, final)
        assert_same_bits(got_rows, rows)
        only, nothing = kernel("LinearRecurrence", [initial, a, b], (True, False), **flags, **invariant)
        assert_same_bits(only, final)
        assert nothing is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), time=st.sampled_from([0, 1, 2, 9, 70]), columns=st.sampled_from([1, 3, 20]))
def test_any_bits(dtype, data, time, columns):
    raw = data.draw(hnp.arrays(np.uint8, (2 * time + 1) * columns * dtype.itemsize))
    values = raw.view(dtype).reshape(2 * time + 1, columns)
    check(values[0], values[1 : time + 1], values[time + 1 :])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 5, 33, 300])
@pytest.mark.parametrize("invariant", [{}, {"a_invariant": 1}, {"b_invariant": 1}], ids=str)
def test_long(dtype, columns, invariant):
    rng = np.random.default_rng(columns)
    a = np.asarray(rng.normal(size=(600, columns)), "f4").astype(dtype)
    b = np.asarray(rng.normal(size=(600, columns)) * 9, "f4").astype(dtype)
    if "a_invariant" in invariant:
        a = a[0]
    if "b_invariant" in invariant:
        b = b[0]
    check(np.ones(columns, dtype), a, b, **invariant)


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
def test_special_values(dtype):
    initial, a, b = (axis.reshape(1, -1) for axis in np.meshgrid(*[special_values(dtype)] * 3))
    check(initial[0], a, b)


def test_product_and_sum_are_not_fused():
    """(1 + eps)^2 - (1 + 2 eps) is 0 if the product rounds first, and eps^2 if it does not."""
    eps = np.finfo("f4").eps
    a = np.full((300, 1), 1 + eps, "f4")
    b = np.full((300, 1), -(1 + 2 * eps), "f4")
    _, rows = kernel("LinearRecurrence", [np.full(1, 1 + eps, "f4"), a, b])
    assert rows[0] == 0


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("time", [0, 1, 5, 600])
def test_any_rank(shape, time):
    rng = np.random.default_rng(time)
    initial, a, b = (np.asarray(rng.normal(size=size), "f4") for size in (shape, (time, *shape), (time, *shape)))
    check(initial, a, b)
    check(initial, np.asarray(0.5, "f4"), b, a_invariant=1)


@pytest.mark.parametrize(("a_element", "b_element"), [((), (3,)), ((2, 1), (1, 1)), ((2, 3), ()), ((3,), (2, 3))])
@pytest.mark.parametrize("invariant", [{}, {"a_invariant": 1}, {"b_invariant": 1}], ids=str)
def test_elements_broadcast_to_the_state(a_element, b_element, invariant):
    rng = np.random.default_rng(7)
    initial = rng.normal(size=(2, 3)).astype("f4")
    a = np.asarray(rng.normal(size=a_element if "a_invariant" in invariant else (6, *a_element)), "f4")
    b = np.asarray(rng.normal(size=b_element if "b_invariant" in invariant else (6, *b_element)), "f4")
    check(initial, a, b, **invariant)
    for opset in (8, 17):
        inputs = {"v_initial": initial, "a": a, "b": b}
        assert_definition_agrees("LinearRecurrence", opset, inputs, reverse=1, **invariant)


ONE, TWO, THREE = (np.zeros((time, 1), "f4") for time in (1, 2, 3))


@pytest.mark.parametrize(
    ("inputs", "flags", "message"),
    [
        ([None, TWO, TWO], {}, "v_initial must be given"),
        ([TWO[0], None, TWO], {}, "a must be given"),
        ([TWO[0], TWO, TWO.astype("f8")], {}, "one number type"),
        ([TWO[0], TWO, THREE], {}, "a has 2 steps, b has 3 steps"),
        ([TWO[0], ONE, THREE], {}, "a has 1 steps, b has 3 steps"),
        ([TWO[0], TWO[0, 0], TWO], {}, "a is a scalar"),
        ([TWO[0], TWO, TWO], {"a_invariant": 1, "b_invariant": 1}, "no input has a time axis"),
        ([TWO[0], np.zeros((2, 4), "f4"), TWO], {}, "an element of a has shape"),
        ([TWO[0], TWO, np.zeros((2, 4), "f4")], {}, "an element of b has shape"),
        ([TWO[0], np.zeros(4, "f4"), TWO], {"a_invariant": 1}, "an element of a has shape"),
    ],
)
def test_errors(inputs, flags, message):
    with pytest.raises(LoopliftError, match=message):
        kernel("LinearRecurrence", inputs, **flags)


@pytest.mark.parametrize("opset", range(8, 29))
@pytest.mark.parametrize("invariant", [{}, {"a_invariant": 1}, {"b_invariant": 1}], ids=str)
def test_definition_in_every_opset(opset, invariant):
    rng = np.random.default_rng(opset)
    for time, known in [(0, True), (0, False), (6, False)]:
        a, b = rng.normal(size=(2, time, 3)).astype("f4")
        if "a_invariant" in invariant:
            a = np.asarray(0.9, "f4")
        if "b_invariant" in invariant:
            b = np.asarray([1, 2, 3], "f4")
        inputs = {"v_initial": rng.normal(size=3).astype("f4"), "a": a, "b": b}
        flags = {"reverse": opset % 2, "emit_previous": opset // 2 % 2}
        symbols = {name: [f"{name}{axis}" for axis in range(array.ndim)] for name, array in inputs.items()}
        shapes = None if known else symbols
        assert_definition_agrees("LinearRecurrence", opset, inputs, shapes=shapes, **flags, **invariant)


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3), (0,), (2, 0, 1)])
def test_definition_of_any_rank(shape, flags):
    for opset, time in itertools.product((8, 13, 17), (0, 4)):
        inputs = {
            "v_initial": np.full(shape, 0.1, "f4"),
            "a": np.full((time, *shape), 0.7, "f4"),
            "b": np.full((time, *shape), 0.3, "f4"),
        }
        assert_definition_agrees("LinearRecurrence", opset, inputs, **flags)


@pytest.mark.parametrize("dtype", ["f8", "i4", "u4", "i8", "u8"])
def test_definition_of_other_types(dtype):
    """Not float16: ONNX Runtime computes it in float32 and does not round between Mul and Add."""
    series = (np.arange(60).reshape(20, 3) * 7 % 100).astype(dtype)
    assert_definition_agrees("LinearRecurrence", 17, {"v_initial": series[0], "a": series, "b": series[::-1].copy()})


@pytest.mark.parametrize(
    ("a", "b"), [(TWO, THREE), (THREE, TWO), (ONE, THREE), (TWO, np.zeros((2, 4), "f4")), (np.zeros((2, 4), "f4"), TWO)]
)
def test_definition_refuses_what_the_kernel_refuses(a, b):
    inputs = {"v_initial": np.zeros(1, "f4"), "a": a, "b": b}
    for opset in (8, 13, 17):
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            run_ort(one_node("LinearRecurrence", opset, inputs), inputs)


@pytest.mark.parametrize("element", [(5,), (2, 5), (5, 3), (1,), ()])
@pytest.mark.parametrize("opset", [8, 11, 17])
@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_elements_that_do_not_fit_are_no_error_where_there_is_no_step(element, opset, flags):
    initial, series = np.full(3, 0.5, "f4"), np.empty((0, *element), "f4")
    symbols = {"v_initial": ["v"], "a": ["t", *(f"a{k}" for k in range(len(element)))], "b": None}
    for b, b_invariant in ((series, 0), (np.ones(element, "f4"), 1)):
        case = {"v_initial": initial, "a": series, "b": b}
        assert kernel("LinearRecurrence", list(case.values()), b_invariant=b_invariant)[1].shape == (0, 3)
        options = {**flags, "b_invariant": b_invariant}
        assert_definition_agrees("LinearRecurrence", opset, case, shapes=symbols, **options)

"""AddStep's definition as a Loop, run by ONNX Runtime, against the numpy kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.runtime.errors import LoopliftError
from tests.runtime.op_cases import INTEGERS, assert_definition_agrees, assert_same_bits, kernel, one_node, run_ort

OPSETS = range(8, 29)


def inputs(count, initial, step, condition=None):
    return {"M": np.array(count), "cond": condition, "v_initial": initial, "step": step}


def columns(dtype="f4"):
    return np.array([0, 1, -2, 100], "f4").astype(dtype), np.array([0.1, -0.3, 7, -3], "f4").astype(dtype)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("emit_previous", [0, 1])
def test_every_opset(opset, emit_previous):
    assert_definition_agrees("AddStep", opset, inputs(5, *columns()), emit_previous=emit_previous)


@pytest.mark.parametrize("dtype", [np.dtype("f2"), np.dtype("f4"), np.dtype("f8"), *INTEGERS], ids=str)
def test_every_type_that_onnxruntime_adds(dtype):
    if dtype.name in ("uint16", "int16"):
        pytest.skip("ONNX Runtime has no Add of 16-bit integers")
    assert_definition_agrees("AddStep", 17, inputs(1100, *columns(dtype)))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 2), (0,), (2, 0, 3)])
@pytest.mark.parametrize("count", [-3, 0, 1, 4])
@pytest.mark.parametrize("opset", [8, 10, 11, 13, 17, 21])
def test_every_rank_of_known_and_unknown_shape(shape, count, opset):
    initial, step = np.full(shape, 0.5, "f4"), np.full(shape, 0.1, "f4")
    case = inputs(count, initial, step)
    for emit_previous in (0, 1):
        assert_definition_agrees("AddStep", opset, case, emit_previous=emit_previous)
        symbols = {"v_initial": [f"d{axis}" for axis in range(len(shape))]}
        assert_definition_agrees("AddStep", opset, case, shapes=symbols, emit_previous=emit_previous)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
@pytest.mark.parametrize("condition", [None, np.array(True), np.array(False)], ids=str)
def test_unused_outputs_and_conditions(wanted, condition):
    for opset in (11, 12, 17):
        assert_definition_agrees("AddStep", opset, inputs(3, *columns(), condition), wanted)


def test_count_of_one_axis():
    case = inputs(3, *columns()) | {"M": np.array([3])}
    for opset in (9, 17):
        assert_definition_agrees("AddStep", opset, case)


@pytest.mark.parametrize(("before", "step"), [((), (3,)), ((3,), (1, 1)), ((2, 1), (3,))])
@pytest.mark.parametrize("opset", [8, 11, 17, 25])
def test_state_that_grows(before, step, opset):
    initial, step = np.full(before, 0.5, "f4"), np.full(step, 0.1, "f4")
    for count in (0, 1, 3):
        assert_definition_agrees("AddStep", opset, inputs(count, initial, step), wanted=(True, False))
        assert_definition_agrees("AddStep", opset, inputs(count, initial, step))
    assert_definition_agrees("AddStep", opset, inputs(1, initial, step), emit_previous=1)
    two = inputs(2, initial, step)
    with pytest.raises(LoopliftError):
        kernel("AddStep", list(two.values()), emit_previous=1)
    if np.add(initial, step).size == initial.size:
        return  # ONNX Runtime stacks rows of different rank if they have as many elements
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        run_ort(one_node("AddStep", opset, two, emit_previous=1), two)


@pytest.mark.parametrize(
    ("before", "step"), [((3,), (5,)), ((3,), (2, 5)), ((4, 3), (5,)), ((2, 1), (3, 3)), ((0,), (3,))]
)
@pytest.mark.parametrize("opset", [8, 10, 11, 17, 25])
def test_a_step_that_does_not_fit_is_no_error_where_nothing_is_added(before, step, opset):
    initial, step = np.full(before, 0.5, "f4"), np.full(step, 0.1, "f4")
    for case in (inputs(0, initial, step), inputs(-1, initial, step), inputs(3, initial, step, np.array(False))):
        shapes = {"v_initial": [f"a{k}" for k in range(len(before))], "step": [f"b{k}" for k in range(step.ndim)]}
        for emit_previous in {0, int(opset >= 11)}:
            assert_definition_agrees("AddStep", opset, case, shapes=shapes, emit_previous=emit_previous)
            assert_definition_agrees("AddStep", opset, case, (True, False), shapes=shapes, emit_previous=emit_previous)


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=7),
    count=st.integers(0, 2000),
    emit_previous=st.integers(0, 1),
)
def test_any_values(values, count, emit_previous):
    initial, step = np.array(values, "f4").T.copy()
    case = inputs(count, initial, step)
    want = kernel("AddStep", list(case.values()), emit_previous=emit_previous)
    for got, expected in zip(MODEL[emit_previous](case), want, strict=True):
        assert_same_bits(got, expected)


def _compiled(emit_previous):
    model = one_node(
        "AddStep", 17, inputs(1, *columns()), shapes={"v_initial": ["n"], "step": ["n"]}, emit_previous=emit_previous
    )
    return lambda case: run_ort(model, case)


MODEL = [_compiled(0), _compiled(1)]

"""AddStep in standard ops: the form that is chosen, and that it gives the loop's bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import model, ops
from tests.passes.lowering_cases import TRIPS, Engines, loop_nodes, lower, numbers
from tests.passes.places import assert_same_everywhen, everywhere

LOOP = """
    y, z = Loop (M, c, v) <body = body (int64 i, bool on, p) => (bool still, q, r) {{
        still = Identity (on)
        q = Add (p, s)
        r = Identity ({row})
    }}>"""


def add_step(
    dtype: str = "float",
    shape: str = "[2,3]",
    step: str = "[3]",
    *,
    row: str = "q",
    outputs: str = "yz",
    opset: int = 17,
    count: int | None = None,
    rank: int = 2,
):
    """A Loop that adds a step; `outputs` are y (the last state) and z (the stack), `count` a constant M."""
    results = {"y": f"{dtype}[l] y1, int64[m] y2", "z": f"{dtype}[{','.join(['n', *['k'] * rank])}] z"}
    declared = ", ".join(results[name] for name in outputs)
    limit = "int64 M" if count is None else "int64 unused"
    constants = "int64[1] flat = {-1}" + ("" if count is None else f", int64 M = {{{count}}}")
    body = LOOP.format(row=row)
    if "z" not in outputs:
        body = body.replace("y, z =", "y =").replace(", r)", ")").replace(f"r = Identity ({row})", "")
    if "y" in outputs:  # a state that grows has no rank to declare
        body += "y1 = Reshape (y, flat) y2 = Shape (y)"
    text = f"main ({limit}, bool c, {dtype}{shape} v, {dtype}{step} s) => ({declared}) <{constants}> {{ {body} }}"
    return model(text.replace("[]", ""), opset)


def check(subject, dtype: str, shape: tuple[int, ...], step: tuple[int, ...], trips=TRIPS, *, ort: bool = True):
    """Lowers the model and compares; gives the lowered model."""
    result = lower(subject)
    engines = Engines(subject, result, ort=ort)
    if "Loop" in loop_nodes(result):  # ONNX Runtime forgets the shapes of no rows
        trips = [trip for trip in trips if trip > 0]
    names = [value.name for value in subject.graph.inputs]
    for trip in trips:
        for flag in (True, False) if "Loop" not in loop_nodes(result) else (True,):
            feeds = {
                names[0]: np.array(trip),
                "c": np.array(flag),
                "v": numbers(dtype, shape, 1),
                "s": numbers(dtype, step, 2),
            }
            engines.agree(feeds)
    return result


@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_narrow_floats_add_up_in_cumsum(dtype, row, outputs):
    result = check(add_step(dtype, row=row, outputs=outputs), dtype, (2, 3), (3,))
    assert "CumSum" in ops(result.graph)
    assert loop_nodes(result) == []


@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "int8", "uint8", "int16", "uint16"])
def test_integers_have_a_closed_form(dtype, row, outputs):
    result = check(add_step(dtype, row=row, outputs=outputs), dtype, (2, 3), (3,), [*TRIPS, 300])
    assert not {"CumSum", "If"} & set(ops(result.graph))
    assert loop_nodes(result) == []


@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_round_at_every_step_in_a_scan(dtype, row):
    result = check(add_step(dtype, row=row), dtype, (2, 3), (3,), ort=dtype == "float16")
    assert loop_nodes(result) == ["Scan"]


@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_before_opset_11_floats_run_a_scan_and_integers_none(dtype, opset, row, outputs):
    result = check(add_step(dtype, row=row, outputs=outputs, opset=opset), dtype, (2, 3), (3,))
    assert loop_nodes(result) == (["Scan"] if dtype == "float" else [])


@pytest.mark.parametrize("opset", [*range(8, 27)])
@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_every_opset(dtype, opset):
    result = check(add_step(dtype, opset=opset), dtype, (2, 3), (3,), ort=opset < 25)
    assert len(loop_nodes(result)) == (opset < 9 or (opset < 11 and dtype == "float"))


@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize("row", ["p", "q"])
def test_a_wide_state_runs_a_scan(row, outputs):
    result = check(add_step(shape="[40,60]", step="[60]", row=row, outputs=outputs), "float", (40, 60), (60,))
    assert loop_nodes(result) == ["Scan"]


def test_an_unknown_width_is_measured_where_only_the_last_state_is_wanted():
    subject = add_step(shape="[a,b]", step="[b]", outputs="y")
    assert "If" in ops(lower(subject).graph)
    check(subject, "float", (2, 3), (3,))
    check(subject, "float", (9, 9), (9,))
    assert loop_nodes(lower(add_step(shape="[a,b]", step="[b]", outputs="yz"))) == []


@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 16])
@pytest.mark.parametrize("opset", [8, 10, 17])
def test_a_few_iterations_are_written_out_where_cumsum_is_not_at_hand(opset, count, outputs, row):
    text = str(count)
    subject = add_step(shape="[40,60]", step="[60]", row=row, outputs=outputs, opset=opset, count=int(text))
    result = check(_always(subject), "float", (40, 60), (60,), [0])
    assert loop_nodes(result) == []
    assert ops(result.graph).count("Add") <= max(count, 0) + 1


@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("opset", [10, 11, 17])
@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_a_negative_count_runs_nothing_without_a_cond_too(dtype, opset, row, outputs):
    check(_always(add_step(dtype, row=row, outputs=outputs, opset=opset)), dtype, (2, 3), (3,))


def _always(subject):
    """The same Loop without a cond."""
    node = next(node for node in subject.graph if node.op_type == "Loop")
    node.replace_input_with(1, None)
    return subject


@pytest.mark.parametrize("dtype", ["float", "int32"])
@pytest.mark.parametrize("outputs", ["y", "z", "yz"])
@pytest.mark.parametrize(("shape", "step"), [((), (3,)), ((2, 1), (3,)), ((1, 3), (2, 1)), ((3,), (2, 3))])
def test_a_state_that_grows_keeps_its_first_shape_if_no_iteration_runs(shape, step, outputs, dtype):
    grown = len(np.broadcast_shapes(shape, step))
    subject = add_step(dtype, str(list(shape)), str(list(step)), outputs=outputs, rank=grown)
    result = check(subject, dtype, shape, step)
    assert loop_nodes(result) == []


def test_states_before_a_step_that_may_grow_stay_in_the_loop():
    result = check(add_step("float", "[a,3]", "[b,3]", row="p"), "float", (2, 3), (2, 3))
    assert loop_nodes(result) == ["Loop"]


@pytest.mark.parametrize("dtype", ["float", "int64", "int8", "float16"])
@pytest.mark.parametrize("row", ["p", "q"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 3)])
def test_scalars_and_empty_states(shape, row, dtype):
    text = str(list(shape)) if shape else "[]"
    check(add_step(dtype, text, text, row=row, rank=len(shape)), dtype, shape, shape)


def test_negative_zeros_stay():
    subject = add_step(shape="[1]", step="[1]", rank=1)
    engines = Engines(subject, lower(subject))
    for v, s in [(-0.0, -0.0), (-0.0, 0.0), (0.0, -0.0)]:
        engines.agree(
            {"M": np.array(3), "c": np.array(True), "v": np.float32([v]), "s": np.float32([s])},
        )


def test_infinities_and_nans():
    subject = add_step(shape="[4]", step="[4]", rank=1)
    feeds = {"v": np.float32([np.inf, -np.inf, np.nan, 3e38]), "s": np.float32([-np.inf, 1, 1, 3e38])}
    Engines(subject, lower(subject)).agree({"M": np.array(5), "c": np.array(True), **feeds})


def test_in_every_place():
    loop = """y, t = Loop (M, c, v) <body = add (int64 i, bool on, float[2] p) => (bool still, float[2] q, float[2] r) {
        still = Identity(on)
        q = Add(p, s)
        r = Identity(q)
    }>"""
    for place, subject in everywhere(loop).items():
        result = lower(subject)
        assert loop_nodes(result) == [], place
        assert_same_everywhen(subject, result)


DTYPES = ["float", "double", "float16", "int64", "int32", "uint8"]
EXTENTS = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_add_step(data):
    dtype, shape = data.draw(st.sampled_from(DTYPES)), data.draw(EXTENTS)
    step = tuple(data.draw(st.sampled_from([1, extent])) for extent in shape[data.draw(st.integers(0, len(shape))) :])
    named = [data.draw(st.sampled_from([str(extent), f"d{extent}"])) for extent in shape]
    texts = [f"[{','.join(named)}]", str(list(step))]
    subject = add_step(
        dtype,
        *texts,
        row=data.draw(st.sampled_from("pq")),
        outputs=data.draw(st.sampled_from(["y", "z", "yz"])),
        opset=data.draw(st.sampled_from([14, 17, 23] if dtype == "uint8" else [9, 11, 13, 17, 23])),
        rank=len(shape),
    )
    check(subject, dtype, shape, step, [data.draw(st.integers(-1, 40))])

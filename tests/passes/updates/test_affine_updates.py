"""Updates that are affine in their state, written as a product and a sum."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifting import loops_left

import looplift
from looplift.passes import run_pipeline
from looplift.passes.updates.affine_updates import AffineUpdates
from tests.helpers import apply, model, ops
from tests.passes.places import everywhere

LOOP = """main (int64 M, {kind}[4] v, {kind}[4] a, {kind}[T,4] xs) => ({kind}[4] y, {kind}[n,4] z) {{
    y, z = Loop (M, , v) <body = b (int64 i, bool c, {kind}[4] p) => (bool d, {kind}[4] q, {kind}[4] r) {{
        d = Identity (c) x = Gather (xs, i) {body} r = Identity (q) }}>
}}"""

AVERAGES = {
    "v + a*(x - v)": "m = Sub (x, p) n = Mul (a, m) q = Add (p, n)",
    "x + a*(v - x)": "m = Sub (p, x) n = Mul (m, a) q = Add (n, x)",
    "v - a*(v - x)": "m = Sub (p, x) n = Mul (m, a) q = Sub (p, n)",
    "a*(v + x)": "m = Add (p, x) q = Mul (m, a)",
    "-(v + x)*a": "m = Add (p, x) n = Neg (m) q = Mul (n, a)",
    "v - a*x*v": "m = Mul (a, x) n = Mul (m, p) q = Sub (p, n)",
    "v*a + v*x": "m = Mul (a, p) n = Mul (p, x) q = Add (m, n)",
    "v*a*x": "m = Mul (a, p) q = Mul (m, x)",
    "v + x + v": "m = Add (p, x) q = Add (m, p)",
}
DIVIDED = {"v + (x - v)/a": "m = Sub (x, p) n = Div (m, a) q = Add (p, n)", "v/x/a": "m = Div (p, x) q = Div (m, a)"}


def feeds(kind: str, length: int = 9, seed: int = 0) -> dict[str, np.ndarray]:
    """Any integers; floats around one, with factors below it."""
    random = np.random.default_rng(seed)
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    shapes = {"v": (4,), "a": (4,), "xs": (length, 4)}
    if dtype.kind == "i":
        info = np.iinfo(dtype)
        drawn = {name: random.integers(info.min, info.max, shape, dtype) for name, shape in shapes.items()}
    else:
        drawn = {name: random.uniform(0.1, 0.9, shape).astype(dtype) for name, shape in shapes.items()}
    return drawn | {"M": np.array(length)}


def run(subject: ir.Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return looplift.Session(subject, device="numpy").run(None, inputs)


@pytest.mark.parametrize("name", [*AVERAGES, *DIVIDED])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_are_lifted_where_they_may_round_otherwise(name, kind):
    subject = model(LOOP.format(kind=kind, body={**AVERAGES, **DIVIDED}[name]))
    assert loops_left(run_pipeline(subject)[0]) == 1
    result, _ = run_pipeline(subject, exact=False)
    assert loops_left(result) == 0
    assert "LinearRecurrence" in ops(result.graph)
    inputs = feeds(kind)
    for want, got in zip(run(subject, inputs), run(result, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=64 * np.finfo(want.dtype).eps)


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("kind", ["int32", "int64", "int8"])
def test_integers_keep_their_bits(name, kind):
    subject = model(LOOP.format(kind=kind, body=AVERAGES[name]))
    result, _ = run_pipeline(subject)
    assert loops_left(result) == 0
    for seed in range(3):
        inputs = feeds(kind, seed=seed)
        for want, got in zip(run(subject, inputs), run(result, inputs), strict=True):
            assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("int64", DIVIDED["v + (x - v)/a"]),
        ("uint8", AVERAGES["v - a*(v - x)"]),
        ("float", "m = Mul (p, p) q = Sub (p, m)"),
        ("float", "m = Add (p, x) n = Div (a, m) q = Add (p, n)"),
        ("float", "m = Tanh (p) n = Sub (x, m) q = Add (p, n)"),
        ("float", "m = Sub (x, p) n = ReduceSum (m) q = Mul (n, a)"),
    ],
)
def test_what_is_not_affine_stays(kind, body):
    apply(model(LOOP.format(kind=kind, body=body)), AffineUpdates(exact=False), expect=False)


def test_a_known_recurrence_is_left_alone():
    body = "m = Mul (p, a) q = Add (m, x)"
    apply(model(LOOP.format(kind="float", body=body)), AffineUpdates(exact=False), expect=False)


TWO = """main (int64 M, float[4] v, float[4] u, float[T,4] xs) => (float[4] y, float[4] y2) {
    y, y2 = Loop (M, , v, u) <body = b (int64 i, bool c, float[4] p, float[4] p2)
        => (bool d, float[4] q, float[4] q2) {
        d = Identity (c) x = Gather (xs, i)
        m = Sub (x, p) n = Mul (p2, m) q = Add (p, n)
        q2 = Tanh (p2) }>
}"""


def test_a_factor_that_stays_in_the_loop_is_no_gain():
    apply(model(TWO), AffineUpdates(exact=False), expect=False)


def test_a_factor_from_another_recurrence_is():
    result, _ = run_pipeline(model(TWO.replace("Tanh (p2)", "Add (p2, u)")), exact=False)
    assert loops_left(result) == 0


GROWS = """main (int64 M, float[1] v, float[4] a) => (float[4] y) {
    y = Loop (M, , v) <body = b (int64 i, bool c, float[k] p) => (bool d, float[j] q) {
        d = Identity (c) m = Sub (a, p) n = Mul (a, m) q = Add (p, n) }>
}"""


def test_a_state_that_changes_its_shape_stays():
    apply(model(GROWS), AffineUpdates(exact=False), expect=False)


AVERAGE = """y, t = Loop (M, c, v) <body = b (int64 i, bool on, float[2] p) => (bool still, float[2] q, float[2] r) {
    still = Identity (on) m = Sub (s, p) n = Mul (s, m) q = Add (p, n) r = Identity (q) }>"""


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body"])
def test_everywhere(place):
    subject = everywhere(AVERAGE)[place]
    result = apply(subject, AffineUpdates(exact=False))
    graphs = [result.graph, *result.functions.values()]
    found = [op for graph in graphs for op in ops(graph)]
    assert found.count("Mul") == 2
    assert found.count("Add") == 2


def test_without_types_nothing_is_done():
    """A function's values have none: whether they are integers is not known."""
    apply(everywhere(AVERAGE)["function"], AffineUpdates(exact=False), expect=False)


@st.composite
def affine_bodies(draw) -> str:
    """Random sums, differences and products of the state p, and of a and x, of which only one is multiplied by p."""
    lines: list[str] = []

    def expression(depth: int, moves: bool) -> str:
        if depth == 0:
            return "p" if moves else draw(st.sampled_from("ax"))
        op = draw(st.sampled_from(["Add", "Sub", "Mul", "Neg"]))
        left = expression(depth - 1, moves)
        name = f"t{len(lines)}"
        if op == "Neg":
            lines.append(f"{name} = Neg ({left})")
        else:
            right = expression(draw(st.integers(0, depth - 1)), moves and op != "Mul" and draw(st.booleans()))
            sides = (left, right) if draw(st.booleans()) else (right, left)
            name = f"t{len(lines)}"
            lines.append(f"{name} = {op} ({sides[0]}, {sides[1]})")
        return name

    result = expression(draw(st.integers(1, 4)), True)
    return " ".join([*lines, f"q = Identity ({result})"])


@settings(max_examples=60, deadline=None)
@given(body=affine_bodies(), seed=st.integers(0, 9))
def test_any_affine_update_of_integers_is_lifted_with_its_bits(body, seed):
    subject = model(LOOP.format(kind="int32", body=body))
    inputs = feeds("int32", seed=seed)
    once = run(subject, inputs | {"M": np.array(1)})[0]
    after_next = run(subject, inputs | {"M": np.array(1), "v": inputs["v"] + np.int32(1)})[0]
    assume((once != after_next).all() and (once != inputs["v"]).any())  # or the state cancels out, or never changes
    result, _ = run_pipeline(subject)
    assert loops_left(result) == 0
    for want, got in zip(run(subject, inputs), run(result, inputs), strict=True):
        assert want.tobytes() == got.tobytes()

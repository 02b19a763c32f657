"""What is computed to optimize a model is bounded before it is computed, and computed once."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from looplift.passes import run_pipeline
from looplift.passes.count.count_by_running import trips
from looplift.patterns.graph import constants
from looplift.patterns.graph.budget import MOST_WORK, Budget, one_budget
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import TRAITS, Trait
from looplift.patterns.graph.shapes import MOST, entries
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import LoopView, loop_view
from looplift.patterns.loops import evaluate as simulation
from looplift.patterns.loops.evaluate import SETTLED

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def output(text: str) -> ir.Value:
    return ir.from_onnx_text(HEADER + text).graph.outputs[0]


DOUBLED = "\n".join(f"d{k + 1} = Concat <axis = 0> (d{k}, d{k})" for k in range(40))
LARGE = {
    "concat": f"g () => (d40) <int64[2] d0 = {{1, 2}}> {{ {DOUBLED} }}",
    "broadcast": """g () => (y) <int64[1] n = {4000}, int64[2] c = {4000, 1}, int64[2] r = {1, 4000}> {
        z = ConstantOfShape (n)
        a = Reshape (z, c)
        b = Reshape (z, r)
        y = Less (a, b)
    }""",
    "fill": "g () => (y) <int64[1] n = {700000000}> { y = ConstantOfShape (n) }",
    "expand": "g () => (y) <int64[1] n = {700000000}, int64[1] x = {1}> { y = Expand (x, n) }",
    "range": "g () => (y) <int64 a = {0}, int64 b = {4611686018427387904}, int64 c = {1}> { y = Range (a, b, c) }",
    "gather": "g () => (y) <int64[2] n = {1, 4000}, int64[1] m = {4000}> { a = ConstantOfShape (n) "
    "i = ConstantOfShape <value = int64[1] {0}> (m) y = Gather <axis = 0> (a, i) }",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_no_large_constant_is_computed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    run = constants._run

    def watched(*args: object) -> constants.Array | None:
        found = run(*args)  # type: ignore[arg-type]
        made.append(0 if found is None else found.size)
        return found

    monkeypatch.setattr(constants, "_run", watched)
    with one_budget() as budget:
        assert constant(output(text), 17) is None
    assert max(made, default=0) <= constants.LIMIT
    assert budget.refused


def test_a_constant_is_computed_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    run = constants._run
    monkeypatch.setattr(constants, "_run", lambda *args: runs.append(1) or run(*args))
    value = output("g () => (y) <int64 a = {2}, int64 b = {3}> { y = Add (a, b) }")
    with one_budget():
        assert constant(value, 17) == constant(value, 17) == 5
    assert len(runs) == 1


def test_the_work_of_all_is_bounded() -> None:
    value = output("g () => (y) <int64 a = {2}, int64 b = {3}> { y = Add (a, b) }")
    with one_budget() as budget:
        budget.work = 100
        assert constant(value, 17) is None
    assert "too long" in str(next(iter(budget.refused.values())))


def test_the_size_of_every_result_is_known() -> None:
    own = {"Concat", "ConstantOfShape", "Expand", "Gather", "NonZero", "Range"}
    assert TRAITS[Trait.BROADCASTS] | TRAITS[Trait.NO_LARGER] | own >= TRAITS[Trait.FOLDS] | SETTLED


def test_inputs_that_do_not_fit_are_refused() -> None:
    node = ir.node("Gather", inputs=[ir.val("x")])
    assert "not what it takes" in str(Budget().spend(node, [None]))


TRIED = """g (float x) => (float y) {{
  M = Constant <value = int64 {{0}}> ()
  y = Loop (M, , x) <body = b (int64 i, bool c, float p) => (bool d, float q) {{
    shape = Constant <value = int64[1] {{{size}}}> ()
    big = ConstantOfShape <value = int64[1] {{1}}> (shape)
    r = ReduceProd <keepdims = 0> (big)
    now = Add (r, i)
    end = Constant <value = int64 {{40}}> ()
    d = Less (now, end)
    q = Add (p, p)
  }}>
}}"""


def test_a_loop_is_not_tried_where_a_value_in_it_is_large() -> None:
    _, (finding,) = run_pipeline(ir.from_onnx_text(HEADER + TRIED.format(size=700_000_000)))
    assert "ConstantOfShape would take 5,600,000,000 bytes" in finding.reason


def test_a_loop_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    iterations = []
    call = simulation._Program.__call__
    monkeypatch.setattr(simulation._Program, "__call__", lambda *args: iterations.append(1) or call(*args))
    model = ir.from_onnx_text(
        HEADER
        + """g () => (float y) <float start = {0}, float step = {0.25}, float end = {5}> {
  y = Loop (, , start) <body = b (int64 i, bool c, float t) => (bool d, float u) {
    u = Add (t, step)
    d = Less (u, end)
  }>
}"""
    )
    with one_budget():
        for _ in range(2):
            view = loop_view(model.graph[0], 17)
            assert isinstance(view, LoopView)
            assert trips(view, Types().with_body(view)) == 20
    assert len(iterations) == 20


def test_extents_are_few_and_asked_for_once() -> None:
    asked = []

    def shape_of(value: ir.Value) -> None:
        asked.append(value)

    doubled = "\n".join(f"d{k + 1} = Mul (d{k}, d{k})" for k in range(30))
    assert entries(output(f"g (int64[N] d0) => (d30) {{ {doubled} }}"), shape_of, 17) is None
    assert len(asked) < 100
    assert entries(output(LARGE["concat"]), shape_of, 17) is None
    assert MOST_WORK > MOST

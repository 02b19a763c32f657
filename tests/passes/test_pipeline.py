"""The pipeline as a whole: what it promises of every result, and that a broken one is dropped."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from lifting import count, parse

from looplift.passes import pipeline, run_pipeline
from looplift.passes.lift.definitions import add_definitions
from looplift.passes.postconditions import violation
from looplift.runtime.errors import LoopliftError

LOOP = """
agraph (int64 n, float[4] x, float[4] step) => (float[4] v) {
  v = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] u) { co = Identity(ci) u = Add(p, step) }>
}"""


def test_the_argument_is_not_changed():
    model = parse(LOOP)
    before = ir.to_proto(model).SerializeToString()
    run_pipeline(model)
    assert ir.to_proto(model).SerializeToString() == before


def test_twice_is_once():
    once, _ = run_pipeline(parse(LOOP))
    twice, findings = run_pipeline(once)
    assert findings == ()
    assert ir.to_proto(once) == ir.to_proto(twice)


NEST = """
agraph (int64 n, int64 m, float[3] x, float[3] s) => (float[3] v, float[A,B,3] q) {
  v, q = Loop (n, "", x) <body = b (int64 i, bool ci, float[3] p) => (bool co, float[3] u, float[C,3] o) {
    co = Identity(ci)
    t = Tanh(p)
    u, o = Loop (m, "", t) <body = d (int64 j, bool cj, float[3] w) => (bool cq, float[3] z, float[3] y) {
      cq = Identity(cj)
      k = Cast<to = 1>(j)
      e = Mul(s, k)
      z = Add(w, e)
      y = Identity(w)
    }>
  }>
}"""


def test_what_stands_for_an_inner_loop_is_normalised_with_the_body_around_it():
    once, _ = run_pipeline(parse(NEST))
    twice, _ = run_pipeline(once)
    assert ir.to_proto(once) == ir.to_proto(twice)
    outside = [node.op_type for node in once.graph]
    assert outside[-2:] == ["Max", "Loop"], "the inner loop's trip count is the same in every iteration"


def test_definitions_are_not_entered():
    once, _ = run_pipeline(parse(LOOP))
    add_definitions(once)
    (function,) = once.functions.values()
    assert "Loop" in [node.op_type for node in function]
    again, findings = run_pipeline(once)
    assert findings == ()
    assert count(again) == {"AddStep": 1}


def test_a_broken_result_is_dropped(monkeypatch, caplog):
    def breaks(model: ir.Model) -> None:
        model.graph.outputs[0].name = "other"

    monkeypatch.setattr(pipeline, "fix_names", breaks)
    result, (finding,) = run_pipeline(parse(LOOP))
    assert count(result)["Loop"] == 1
    assert not finding.lifted
    assert "inputs or outputs changed" in finding.reason


def _moved(model: ir.Model) -> None:
    first = model.graph[0]
    model.graph.remove(first)
    model.graph.append(first)


def _undefined(model: ir.Model) -> None:
    model.functions.clear()


@pytest.mark.parametrize(("harm", "words"), [(_moved, "before it is made"), (_undefined, "no definition")])
def test_post_conditions(harm, words):
    text = LOOP.replace("v = Loop", "k = Neg(x) v = Loop").replace('(n, "", x)', '(n, "", k)')
    result, _ = run_pipeline(parse(text))
    assert violation(parse(text), result) is None
    harm(result)
    assert words in (violation(parse(text), result) or "")


def test_an_unknown_target_is_an_error():
    with pytest.raises(LoopliftError, match="unknown target"):
        run_pipeline(parse(LOOP), target="cuda")


ROWS_IN_A_LOOP = """
agraph (int64 k, float[T,3] xs, float[3] v) => (float[3] y) {
  shape = Shape(xs) zero = Constant<value_int = 0>() n = Gather(shape, zero)
  y = Loop (k, "", v) <body = b (int64 i, bool ci, float[3] p) => (bool co, float[3] u) {
    co = Identity(ci)
    u = Loop (n, "", p) <body = d (int64 j, bool cj, float[3] w) => (bool cq, float[3] z) {
      cq = Identity(cj) x = Gather(xs, j) h = Mul(w, w) z = Sub(h, x)
    }>
  }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_what_stands_for_a_loop_over_rows_is_normalised_too(target):
    """Whether there are rows is the same in every outer iteration."""
    once, _ = run_pipeline(parse(ROWS_IN_A_LOOP), target=target)
    assert "Greater" in [node.op_type for node in once.graph]
    twice, _ = run_pipeline(once, target=target)
    assert ir.to_proto(once) == ir.to_proto(twice)


def a_loop(body: str, kind: str, before: str = "", step: str = "s") -> str:
    """A Loop whose body makes q of p; `before` stands in front of it, and `step` is what q may read as s."""
    return f"""
    agraph (int64 n, {kind}[3] v, {kind}[3] s0) => ({kind}[3] y) {{
      s = Identity(s0) {before} t = Identity({step})
      y = Loop (n, "", v) <body = b (int64 i, bool ci, {kind}[3] p) => (bool co, {kind}[3] q) {{
        co = Identity(ci) {body} }}>
    }}"""


def chained(*ops: str, length: int = 400) -> str:
    """q as p through so many operators, in turns."""
    lines = [f"a{k + 1} = {ops[k % len(ops)]}(a{k}, s)" for k in range(length)]
    return " ".join(["a0 = Identity(p)", *lines, f"q = Identity(a{length})"])


def doubled(op: str, name: str, of: str, times: int = 60) -> str:
    """`name` as an operator of itself, so many times over: 2^times ways lead through it."""
    lines = [f"{name}{k + 1} = {op}({name}{k}, {name}{k})" for k in range(times)]
    return " ".join([f"{name}0 = Identity({of})", *lines])


HALF = "one = Constant<value_float = 0.5>() "


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (a_loop(chained("Add"), "int64"), "AddStep"),
        (a_loop(chained("Sub", "Add", "Mul"), "int64"), "LinearRecurrence"),
        (a_loop(chained("Mul"), "float"), "LinearRecurrence"),  # of as many times as many steps
        (a_loop(chained("Tanh").replace(", s)", ")"), "float"), "Loop"),
        (a_loop(doubled("Add", "a", "p") + " q = Add(a60, s)", "int64"), "LinearRecurrence"),
        (a_loop(doubled("Add", "a", "p") + " q = Add(a60, s)", "float"), "Loop"),
        (a_loop("q = Add(p, t)", "float", HALF + doubled("Add", "c", "one"), "c60"), "AddStep"),
        (a_loop("q = Add(p, t)", "float", doubled("Add", "c", "s"), "c60"), "AddStep"),
    ],
)
def test_deep_bodies_and_shared_values_are_followed_once(text, becomes):
    """No recursion as deep as the model, and no work for every way through it."""
    result, _ = run_pipeline(parse(text))
    assert becomes in [node.op_type for node in result.graph]

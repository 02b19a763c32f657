"""Rewrites around recurrence nodes: before and after, and the rules in somebody else's rule set."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from lifting import assert_equal, count, lift, nodes, parse
from onnxscript.rewriter import RewriteRuleSet

from looplift.passes.lift.lift_rule import rules

LOOP = """
agraph (int64 n, float[4] x, float[4] step) => ({outputs}) {{
  v, s = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] u, float[4] o) {{
    co = Identity(ci) u = Add(p, step) o = Identity({stacked})
  }}>
  {rest}
}}"""
LAST = "k = Constant<value_int = -1>() last = Gather(s, k)"
FIRST = "z = Constant<value_ints = [0]>() k = Constant<value_ints = [3]>() first = Slice(s, z, k, z)"


def text(rest: str, outputs: str, stacked: str = "u") -> str:
    return LOOP.format(rest=rest, outputs=outputs, stacked=stacked)


def feeds(*trips: int) -> list[dict]:
    return [{"n": np.array(n), "x": np.ones(4, "f"), "step": np.full(4, 0.1, "f")} for n in trips]


def test_the_last_state_is_the_final_one():
    source = text(LAST, "float[4] last")
    lifted, _ = lift(source)
    assert "Gather" not in count(lifted)
    assert_equal(source, lifted, *feeds(1, 2, 17))


def test_a_gather_of_the_final_state_of_a_node_without_a_stack_stays():
    source = """
    agraph (int64 n, int64 m, float[4] x, float[4] step) => (float last, float[4] w) {
      v = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] u) {
        co = Identity(ci) u = Add(p, step)
      }>
      k = Constant<value_int = -1>()
      last = Gather(v, k)
      w = Loop (m, "", x) <body = d (int64 j, bool cj, float[4] q) => (bool cq, float[4] t) {
        cq = Identity(cj) t = Tanh(q)
      }>
    }"""
    lifted, _ = lift(source)  # which runs the pipeline on the result, too
    assert count(lifted)["Gather"] == 1
    assert_equal(source, lifted, *({**feed, "m": np.array(2)} for feed in feeds(0, 1, 17)))


@pytest.mark.parametrize(
    ("rest", "stacked"),
    [
        (LAST, "p"),  # the last previous state is another one
        (LAST.replace("-1", "-2"), "u"),
        (LAST.replace("Gather(s", "Gather<axis = 1>(s"), "u"),
    ],
)
def test_another_row_is_not_the_final_state(rest, stacked):
    axis = "float[N] last" if "axis" in rest else "float[4] last"
    source = text(rest, axis, stacked)
    lifted, _ = lift(source)
    assert count(lifted)["Gather"] == 1
    assert_equal(source, lifted, *feeds(2, 17))


def test_the_first_states_stop_the_node_early():
    source = text(FIRST, "float[R,4] first")
    lifted, _ = lift(source)
    assert "Slice" not in count(lifted)
    assert count(lifted)["Min"] == 1
    assert_equal(source, lifted, *feeds(-1, 0, 1, 2, 3, 17))


def test_the_first_states_are_cut_where_the_final_one_is_read_too():
    source = text(FIRST, "float[R,4] first, float[4] v")
    lifted, _ = lift(source)
    assert count(lifted)["Slice"] == 1
    assert_equal(source, lifted, *feeds(0, 1, 17))


SCAN = """
agraph (float[4] v0, float[T,4] x) => (float[4] v, float[T,4] s) {{
  v, s = Scan <num_scan_inputs = 1, scan_input_directions = [{read}], scan_output_directions = [{written}],
    body = b (float[4] p, float[4] t) => (float[4] u, float[4] o) {{ u = Add(p, t) o = Identity(u) }}> (v0, x)
}}"""


@pytest.mark.parametrize(("read", "written", "flips"), [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1)])
def test_both_directions_go_into_the_node(read, written, flips):
    source = SCAN.format(read=read, written=written)
    lifted, _ = lift(source)
    assert nodes(lifted) == ["PrefixSum"]
    assert count(lifted).get("Slice", 0) == flips
    (node,) = [node for node in lifted.graph if node.op_type == "PrefixSum"]
    assert node.attributes.get("reverse", ir.AttrInt64("reverse", 0)).as_int() == int(bool(read and written))
    random = np.random.default_rng(0)
    feed = {"v0": np.ones(4, "f"), "x": random.standard_normal((5, 4)).astype("f")}
    assert_equal(source, lifted, feed, {**feed, "x": feed["x"][:0]}, {**feed, "x": feed["x"][:1]})


def test_the_lift_in_another_rule_set():
    source = text(LAST, "float[4] last, float[R,4] s")
    model = parse(source)
    assert RewriteRuleSet([*rules()]).apply_to_model(model) == 2
    assert nodes(model) == ["AddStep"]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert_equal(source, model, *feeds(1, 2, 17))


def test_the_rule_leaves_what_it_can_not_prove():
    model = parse(text("", "float[4] v").replace("Add(p, step)", "Tanh(p)"))
    assert RewriteRuleSet([*rules()]).apply_to_model(model) == 0
    assert count(model)["Loop"] == 1

"""The lowering as a whole: what is left of our domain, what the report says, functions, nodes without a form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import looplift
from looplift.passes import run_pipeline
from looplift.passes.clean.inline_loops import InlineLoops
from looplift.passes.journal import Journal
from looplift.patterns.graph.walk import loops
from tests.helpers import model, ops
from tests.passes.lowering_cases import Engines, loop_nodes, lower, numbers

STEP = """main (int64 M, {kind}[2] v, {kind}[2] s) => ({kind}[2] y) {{
    y = Loop (M, , v) <body = body (int64 i, bool on, p) => (bool still, q) {{
        still = Identity (on)
        q = Add (p, s)
    }}>
}}"""


@pytest.mark.parametrize(
    ("kind", "way", "lifted"), [("float", "CumSum", True), ("int64", "arithmetic", True), ("float16", "a Scan", False)]
)
def test_the_report_says_what_became_of_a_loop(kind, way, lifted):
    _, (finding,) = run_pipeline(model(STEP.format(kind=kind)), target="standard")
    assert f"AddStep became {way} in standard ops" in finding.actions
    assert finding.lifted == lifted
    assert ("smallest" in finding.reason) == (not lifted)


def test_the_report_names_the_opset_that_would_do():
    _, (finding,) = run_pipeline(model(STEP.format(kind="float"), opset=8), target="standard")
    assert not finding.lifted
    assert "needs opset 9" in finding.reason


def test_the_report_names_the_opset_that_has_cumsum():
    _, (finding,) = run_pipeline(model(STEP.format(kind="float"), opset=10), target="standard")
    assert "AddStep became a Scan in standard ops of opset 10 (CumSum came with 11)" in finding.actions


def test_the_result_is_lowered_once():
    result = lower(model(STEP.format(kind="float")))
    again, findings = run_pipeline(result, target="standard")
    assert findings == ()
    assert ops(again.graph) == ops(result.graph)


def test_a_node_that_has_no_form_is_replaced_by_its_definition():
    """States before a step that may grow: our lift leaves the loop, but a model may come with such a node."""
    loop = """main (int64 M, float[a] v, float[b] s) => (float[n,k] z) {
        y, z = Loop (M, , v) <body = body (int64 i, bool on, p) => (bool still, q, r) {
            still = Identity (on)
            q = Add (p, s)
            r = Identity (p)
        }>
    }"""
    kernel, _ = run_pipeline(model(loop))
    assert "AddStep" in ops(kernel.graph)
    result = lower(kernel)
    assert loop_nodes(result) == ["Loop"]
    engines = Engines(kernel, result)
    for trips, v, s in [(3, 2, 2), (1, 1, 4), (1, 2, 2)]:
        engines.agree({"M": np.array(trips), "v": numbers("float", (v,), 1), "s": numbers("float", (s,), 2)})


FUNCTIONS = """
<ir_version: 8, opset_import: ["": 17, "local": 1]>
main (int64 M, float[2] v, float[2] s) => (float[2] y, float[2] z) {
    y = local.outer (M, v, s)
    half = local.plain (v)
    z = local.outer (M, half, s)
}
<domain: "local", opset_import: ["": %d, "local": 1]>
outer (M, v, s) => (y) { y = local.inner (M, v, s) }
<domain: "local", opset_import: ["": %d]>
inner (M, v, s) => (y) {
    y = Loop (M, , v) <body = body (int64 i, bool on, p) => (bool still, q) {
        still = Identity (on)
        q = Add (p, s)
    }>
}
<domain: "local", opset_import: ["": 17]>
plain (x) => (y) { y = Add (x, x) }
"""


def test_functions_that_hold_loops_are_taken_into_their_callers():
    subject = model(FUNCTIONS % (17, 17))
    copy = subject.clone()
    assert InlineLoops()(copy, Journal.begin(copy))
    assert not InlineLoops()(copy, Journal.begin(copy))
    assert [function.name for function in copy.functions.values()] == ["plain"]
    assert len(loops(copy)) == 2
    result = lower(subject)
    assert loop_nodes(result) == []
    engines = Engines(subject, result)
    for trips in (-1, 0, 1, 5):
        engines.agree({"M": np.array(trips), "v": numbers("float", (2,), 1), "s": numbers("float", (2,), 2)})


def test_large_functions_are_not_copied():
    """A function of a megabyte is taken in where it is called once, not where it is called through two calls."""
    many = ", ".join(["1"] * 140_000)
    large = FUNCTIONS % (17, 17)
    large = large.replace("y = Loop", f"big = Constant<value_ints = [{many}]>() y = Loop").replace(
        "Add (p, s)", "Pow (p, s)"
    )
    twice = model(large)
    assert not InlineLoops()(twice, Journal.begin(twice))
    once = model(large.replace("z = local.outer (M, half, s)", "z = Identity(half)"))
    assert InlineLoops()(once, Journal.begin(once))


def test_functions_that_call_others_twice_sixty_deep_stay():
    deep = "".join(
        f"""<domain: "local", opset_import: ["": 17, "local": 1]>
        f{k} (M, v, s) => (y) {{ t = local.f{k + 1} (M, v, s) y = local.f{k + 1} (M, t, s) }}"""
        for k in range(60)
    )
    text = FUNCTIONS % (17, 17)
    subject = model(
        text.replace("local.outer", "local.f0")
        .replace("inner (M, v, s) => (y) {", "f60 (M, v, s) => (y) {")
        .replace("local.inner", "local.f60")
        + deep
    )
    assert not InlineLoops()(subject, Journal.begin(subject))


@pytest.mark.parametrize("versions", [(17, 13), (13, 17)])
def test_functions_of_another_opset_stay(versions):
    copy = model(FUNCTIONS % versions)
    assert not InlineLoops()(copy, Journal.begin(copy))


def test_the_front_door_takes_the_target():
    subject = ir.to_proto(model(STEP.format(kind="float")))
    result = looplift.optimize(subject, target="standard")
    assert {node.op_type for node in result.graph.node} & {"Loop", "Scan", "AddStep"} == set()
    assert [opset.domain for opset in result.opset_import] == [""]

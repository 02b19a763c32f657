"""A loop whose recurrences become Scans in standard ops stays where that would spare its iterations nothing."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from lifting import loops_left

from looplift.passes import run_pipeline
from tests.helpers import model
from tests.passes.lowering_cases import Engines, loop_nodes, numbers

LINEAR = "m = Mul (p, s) q = Add (m, x)"
HOISTED = "n = Neg (x) m = Mul (p, s) q = Add (m, n)"
TWO_LINEAR = """m = Mul (p, s) q = Add (m, x)
                m2 = Mul (p2, x) q2 = Add (m2, s)"""
OTHER = "h = Mul (p2, p2) q2 = Sub (h, p2)"

SCAN = """main (float[4] v, float[4] u, float[4] s, float[T,4] xs) => (float[4] y, float[4] y2, float[T,4] z, float[T,4] z2) {{
    y, y2, z, z2 = Scan (v, u, xs) <num_scan_inputs = 1, body = b (float[4] p, float[4] p2, float[4] x)
        => (float[4] q, float[4] q2, float[4] r, float[4] r2) {{ {step} r = Identity (q) r2 = Identity (q2) }}>
}}"""

LOOP = """main (int64 M, float[4] v, float[4] u, float[4] s, float[T,4] xs) => (float[4] y, float[4] y2, float[n,4] z, float[n,4] z2) {{
    y, y2, z, z2 = Loop (M, , v, u) <body = b (int64 i, bool c, float[4] p, float[4] p2)
        => (bool d, float[4] q, float[4] q2, float[4] r, float[4] r2) {{
        d = Identity (c) x = Gather (xs, i) {step} r = Identity (q) r2 = Identity (q2) }}>
}}"""

WIDE_ADD = """main (float[4096] v, float[4096] s) => (float[4096] y, float[40,4096] z) {
    many = Constant <value = int64[1] {40}> ()
    ticks = ConstantOfShape (many)
    y, z = Scan (v, ticks) <num_scan_inputs = 1, body = b (float[4096] p, float t) => (float[4096] q, float[4096] r) {
        q = Add (p, s) r = Identity (q) }>
}"""


def one(text: str, step: str) -> str:
    """The loop of `text` with only the first of its two states."""
    for second in (", float[4] u", ", float[4] y2", ", float[T,4] z2", ", float[n,4] z2", ", float[4] p2", ", u"):
        text = text.replace(second, "")
    text = text.replace("y, y2, z, z2", "y, z").replace(", float[4] q2", "").replace(", float[4] r2", "")
    return text.replace("r2 = Identity (q2)", "").format(step=step)


def lower(text: str):
    """The model in standard ops, and what is said of its loops."""
    subject = model(text)
    result, findings = run_pipeline(subject, target="standard")
    return subject, result, findings


def agree(subject: ir.Model, result: ir.Model, rows: int | None = None) -> None:
    """The same bits for a few lengths, of the series too unless it has this many rows."""
    engines = Engines(subject, result)
    for length in (1, 2, 17):
        values = {name: numbers("float", (4,), k) for k, name in enumerate("vus")}
        values |= {"xs": np.tanh(numbers("float", (rows or length, 4), 5)), "M": np.array(length)}
        engines.agree({value.name: values[value.name] for value in subject.graph.inputs})


@pytest.mark.parametrize(
    "text",
    [
        one(SCAN, LINEAR),
        SCAN.format(step=TWO_LINEAR),
        SCAN.format(step=f"{LINEAR} {OTHER}"),
        WIDE_ADD,
    ],
)
def test_a_scan_that_does_no_more_than_its_recurrences_stays(text):
    subject, result, findings = lower(text)
    assert ir.to_proto(result) == ir.to_proto(subject)
    assert not any(finding.lifted for finding in findings)


def test_the_reason_is_given():
    _, _, (finding,) = lower(one(SCAN, LINEAR))
    assert finding.reason.startswith(
        "in standard ops, Scans of its recurrences would do no less work in each iteration"
    )


@pytest.mark.parametrize("text", [one(SCAN, LINEAR), SCAN.format(step=TWO_LINEAR)])
def test_for_our_kernels_it_is_lifted(text):
    result, _ = run_pipeline(model(text))
    assert loops_left(result) == 0


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (one(SCAN, HOISTED), ["Scan"]),
        (one(LOOP, LINEAR), ["Scan"]),
        (LOOP.format(step=TWO_LINEAR), ["Scan", "Scan"]),
        (LOOP.format(step=f"{HOISTED} {OTHER}"), ["Scan", "Loop"]),
    ],
)
def test_a_loop_that_is_spared_something_does_not(text, left):
    subject, result, _ = lower(text)
    assert loop_nodes(result) == left
    agree(subject, result)


def test_a_sum_leaves_a_scan_that_stays_for_another_state():
    """A CumSum costs the iterations nothing."""
    subject, result, _ = lower(SCAN.format(step=f"q = Add (p, x) {OTHER}"))
    (scan,) = [node for node in result.graph if node.op_type == "Scan"]
    assert [node.op_type for node in scan.attributes["body"].as_graph()] == ["Mul", "Sub", "Identity"]
    agree(subject, result)


INNER = """main (int64 M, float[4] v, float[4] s, float[5,4] xs) => (float[4] y, float[n,4] z) {
    y, z = Loop (M, , v) <body = b (int64 i, bool c, float[4] p) => (bool d, float[4] q, float[4] r) {
        d = Identity (c)
        q = Scan (p, xs) <num_scan_inputs = 1, body = b2 (float[4] p2, float[4] x) => (float[4] q2) {
            m = Mul (p2, s) q2 = Add (m, x) }>
        r = Identity (q)
    }>
}"""


def test_an_inner_loop_is_lifted_for_the_outer_one():
    subject, result, _ = lower(INNER)
    assert loop_nodes(result) == ["Scan"]
    agree(subject, result, rows=5)


ALONE = """main (float[4] v, float[K,4] s, float[T,4] xs) => (float[K,4] y, float[K,T,4] z) {
    y, z = Scan (s) <num_scan_inputs = 1, body = outer (float[4] s1) => (float[4] last, float[T,4] rows) {
        last, rows = Scan (v, xs) <num_scan_inputs = 1, body = b (float[4] p, float[4] x) => (float[4] q, float[4] r) {
            m = Mul (p, s1) q = Add (m, x) r = Identity (q) }>
    }>
}"""


MULTIPLIED = one(LOOP, "q = Mul (p, x)")
NESTED = """main (int64 M, float[4] v, float[4] s) => (float[4] y, float[n,4] z) {
    three = Constant <value = int64 {3}> ()
    y, z = Loop (M, , v) <body = b (int64 i, bool c, float[4] p) => (bool d, float[4] q, float[4] r) {
        d = Identity (c)
        q = Loop (three, , p) <body = b2 (int64 j, bool e, float[4] p2) => (bool f, float[4] q2) {
            f = Identity (e) q2 = Add (p2, s) }>
        r = Identity (q)
    }>
}"""


@pytest.mark.parametrize(
    "text",
    [MULTIPLIED, NESTED, INNER, ALONE, one(LOOP, LINEAR), one(SCAN, HOISTED), LOOP.format(step=f"{LINEAR} {OTHER}")],
)
def test_lowering_twice_is_lowering_once(text):
    _, once, _ = lower(text)
    twice, _ = run_pipeline(once, target="standard")
    assert ir.to_proto(once) == ir.to_proto(twice)


def test_a_product_alone_adds_nothing():
    subject, result, _ = lower(MULTIPLIED)
    (scan,) = [node for node in result.graph.all_nodes() if node.op_type == "Scan"]
    assert [node.op_type for node in scan.attributes["body"].as_graph()] == ["Mul", "Identity"]
    agree(subject, result)

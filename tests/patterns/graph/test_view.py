"""Views of Loop and Scan: what they hold, and which nodes have none."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.view import LoopView, ScanView, view_of


def view(nodes: str, inputs: str, opset: int = 17):
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> agraph ({inputs}) => (float[N] v) {{ {nodes} }}'
    (node,) = [node for node in ir.from_onnx_text(text).graph if node.op_type in ("Loop", "Scan")]
    return view_of(node, opset)


def test_loop():
    found = view(
        'v, w, s = Loop (n, "", x, y) <body = b (int64 i, bool ci, float[2] p, float[2] q) => '
        "(bool co, float[2] pn, float[2] qn, float[2] so) "
        "{ co = Identity(ci) pn = Add(p, q) qn = Identity(q) so = Identity(p) }>",
        "int64 n, float[2] x, float[2] y",
    )
    assert isinstance(found, LoopView)
    assert (found.max_trip.name, found.condition) == ("n", None)
    assert [c.previous.name for c in found.carries] == ["p", "q"]
    assert [c.final.name for c in found.carries] == ["v", "w"]
    assert found.scan_outputs[0].stacked.name == "s"


def test_outputs_left_out_are_none():
    found = view(
        'v = Loop (n, "", x, x) <body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] pn, float[2] qn) '
        "{ co = Identity(ci) pn = Add(p, q) qn = Identity(q) }>",
        "int64 n, float[2] x",
    )
    assert found.carries[1].final is None


def test_scan():
    found = view(
        "v, s = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_directions = [1], body = b (float[2] p, float[2] t) "
        "=> (float[2] pn, float[2] so) { pn = Add(p, t) so = Identity(pn) }> (x, y)",
        "float[2] x, float[2,9] y",
    )
    assert isinstance(found, ScanView)
    assert (found.scan_inputs[0].axis, found.scan_inputs[0].reverse) == (1, False)
    assert (found.scan_outputs[0].axis, found.scan_outputs[0].reverse) == (0, True)


def test_scan_8_has_a_batch():
    found = view(
        "v, s = Scan <num_scan_inputs = 1, directions = [1], body = b (float[2] p, float[2] t) "
        '=> (float[2] pn, float[2] so) { pn = Add(p, t) so = Identity(pn) }> ("", x, y)',
        "float[1,2] x, float[1,9,2] y",
        8,
    )
    assert found.batched
    assert found.sequence_lengths is None
    assert found.scan_inputs[0].reverse


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ('v = Loop (n, "", x) <body = b (int64 i, bool ci) => (bool co) { co = Identity(ci) }>', "inputs"),
        (
            'v, w = Loop (n, "", x) <body = b (int64 i, bool ci, p) => (bool co, q) { co = Identity(ci) q = Identity(p) }>',
            "outputs",
        ),
        ('v = Loop (n, "", x)', "no body"),
        ("v = Scan <body = b (t) => (q) { q = Identity(t) }> (x)", "num_scan_inputs"),
        ("v = Scan <num_scan_inputs = 3, body = b (t) => (q) { q = Identity(t) }> (x)", "do not match"),
        (
            "v = Scan <num_scan_inputs = 1, scan_input_directions = [2], body = b (t) => (q) { q = Identity(t) }> (x)",
            "direction",
        ),
        (
            "v = Scan <num_scan_inputs = 1, scan_input_axes = [0, 1], body = b (t) => (q) { q = Identity(t) }> (x)",
            "one per",
        ),
    ],
)
def test_malformed_nodes_are_refused(nodes, reason):
    found = view(nodes, "int64 n, float[2] x")
    assert isinstance(found, Refusal)
    assert reason in str(found)

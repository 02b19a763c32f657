"""Types of body values, from facts alone."""

from __future__ import annotations

import onnx_ir as ir

from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import view_of


def carries(text: str, opset: int = 17) -> list[str]:
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    (node,) = [node for node in model.graph if node.op_type in ("Loop", "Scan")]
    view = view_of(node, opset)
    types = Types().with_body(view)
    return [str(types[carry.previous]) for carry in view.carries]


def body(update: str, inputs: str = "float[4] x, float[4] s") -> str:
    return f"""agraph (int64 n, {inputs}) => (float[N] v) {{
      v = Loop (n, "", x) <body = b (int64 i, bool ci, p) => (bool co, u) {{ co = Identity(ci) {update} }}>
    }}"""


def test_a_state_keeps_its_shape():
    assert carries(body("u = Add(p, s)")) == ["float[4]"]


def test_a_symbol_is_kept():
    assert carries(body("u = Add(p, s)", "float[D] x, float[D] s")) == ["float['D']"]


def test_a_state_that_may_grow_loses_its_extent():
    assert carries(body("u = Add(p, s)", "float[1] x, float[4] s")) == ["float[?]"]
    assert carries(body("u = Add(p, s)", "float[D] x, float[4] s")) == ["float[?]"]


def test_a_state_that_changes_rank_loses_its_shape():
    assert carries(body("u = Add(p, s)", "float[4] x, float[4,4] s")) == ["float[...]"]


def test_what_the_body_declares_is_not_believed():
    text = """agraph (int64 n, float[4] x, float[2,4] s) => (float[N] v) {
      v = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] u) { co = Identity(ci) u = Add(p, s) }>
    }"""
    assert carries(text) == ["float[...]"]


def test_a_scan_may_not_change_the_shape_of_a_state():
    text = """agraph (float[A] x, float[T,4] s) => (float[N] v) {
      v = Scan <num_scan_inputs = 1, body = b (p, t) => (u) { u = Add(p, t) }> (x, s)
    }"""
    assert carries(text) == ["float[4]"]

"""What verify makes of sums that an engine adds in an order of its own, and that it still sees real differences."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

import looplift
from looplift.checking.compare import Tolerance, compare

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[T,64] x, float[64,64] w) => (float[T,64] y) {
  y = Scan <num_scan_inputs = 1, body = b (float[64] r) => (float[64] o) { o = MatMul(r, w) }> (x)
}"""


def test_a_product_over_time_is_marked_and_reported():
    model = ir.from_onnx_text(TEXT)
    (finding,) = looplift.explain(model)
    assert finding.lifted
    assert any("another order" in action for action in finding.actions)


def test_verify_takes_other_last_bits_of_sums_as_equal():
    model = ir.from_onnx_text(TEXT)
    random = np.random.default_rng(0)
    feeds = {"x": random.standard_normal((300, 64)).astype("f"), "w": random.standard_normal((64, 64)).astype("f")}
    assert looplift.verify(model, looplift.optimize(model), feeds, cases=8)


def test_verify_still_sees_a_wrong_product():
    model = onnx.parser.parse_model(TEXT)
    wrong = looplift.optimize(model)
    (product,) = [node for node in wrong.graph.node if node.op_type == "MatMul"]
    product.input[0], product.input[1] = product.input[0], "w2"
    wrong.graph.node.insert(0, onnx.helper.make_node("Transpose", ["w"], ["w2"], perm=[1, 0]))
    assert not looplift.verify(model, wrong, cases=8)


def test_last_bits_are_measured_against_the_largest_element():
    one = np.array([1.0, 1e-9, np.inf], "f")
    other = np.array([1.0 + 2e-5, -1e-9, np.inf], "f")
    assert compare(one, other, Tolerance(last_bits=True)).equal
    assert not compare(one, other).equal
    assert not compare(one, one * np.float32(1.01), Tolerance(last_bits=True)).equal
    assert not compare(one, np.array([1.0, 1e-9, 5.0], "f"), Tolerance(last_bits=True)).equal

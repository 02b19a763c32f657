"""0 + -0 is 0, also where ONNX Runtime sees the first 0 when it loads the model."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from helpers import assert_same, model, ops, run_ort

from looplift.passes import run_pipeline
from looplift.patterns.graph.values import nodes_within

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x, float[3] w) => (float[3] y) <{zero}> {{ {body} }}'
MINUS = {"x": np.full(3, -0.0, np.float32), "w": np.ones(3, np.float32)}


@pytest.mark.parametrize("zero", ["float z = {0}", "float[1] z = {0}"])
@pytest.mark.parametrize(("added", "left_out"), [("Add(z, a)", True), ("Add(a, z)", True), ("Sub(z, n)", False)])
def test_onnxruntime_leaves_out_the_addition_of_a_constant_zero(zero, added, left_out):
    """Add: IEEE 754 says that 0 + -0 is 0. ONNX Runtime is wrong."""
    text = HEAD.format(zero=zero, body=f"a = Mul(x, w) n = Neg(a) t = {added} y = Mul(t, w)")
    session = onnxruntime.InferenceSession(ir.to_proto(ir.from_onnx_text(text)).SerializeToString())
    assert np.signbit(session.run(None, MINUS)[0]).all() == left_out


STEPS = """agraph (int64 n, float[3] step, float[r,3] x) => (float[3] y, float[3] s, float[k,3] t) {{
  z = Constant<value = float[{extents}] {{{zeros}}}>() shape = Constant<value_ints = [3]>()
  zero = Expand(z, shape)
  y, s, t = Loop (n, "", zero, zero) <body = b (int64 i, bool ci, float[3] p, float[3] q)
      => (bool co, float[3] p1, float[3] q1, float[3] r) {{
    co = Identity(ci) p1 = Add(p, {step}) row = Gather(x, i) q1 = Add(q, row) r = Identity(p1)
  }}>
}}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize(("extents", "zeros"), [("", "0"), ("1", "0"), ("3", "0, 0, 0")])
def test_sums_that_begin_at_a_constant_zero(target, extents, zeros):
    text = STEPS.format(extents=extents, zeros=zeros, step="step").replace("float[] {", "float {")
    before = model(text)
    after, _ = run_pipeline(before, target=target)
    for trips in (0, 1, 3):
        feed = {"n": np.array(trips), "step": MINUS["x"], "x": np.full((3, 3), -0.0, np.float32)}
        assert_same(before, after, feed)
        assert not np.signbit(run_ort(after, feed)[0]).any()


STAYS = """agraph (int64 n, float[3] w, float[3] v) => (float[3] y, float s) {{
  zero = Constant<value_float = 0.0>()
  y, s = Loop (n, "", v, zero) <body = b (int64 i, bool ci, float[3] p, float q) => (bool co, float[3] r, float q1) {{
    co = Identity(ci) a = Mul(p, w) t = Add(a, {added}) u = Tanh(t) r = Mul(u, w) q1 = Identity(q)
  }}>
}}"""


@pytest.mark.parametrize("added", ["q", "zero"])
def test_a_zero_that_was_carried_and_one_that_was_constant_before(added):
    """The one is an Add with a constant now; of the other the engine has made what it makes of it."""
    before = model(STAYS.format(added=added))
    after, _ = run_pipeline(before)
    names = [node.op_type for node in nodes_within(after.graph)]
    assert ("Sub" in names) == (added == "q")
    assert ("Add" in names or "Add" in ops(after.graph)) == (added == "zero")
    for trips in (0, 1, 2):
        assert_same(before, after, {"n": np.array(trips), "w": MINUS["w"], "v": MINUS["x"]})

"""What ONNX Runtime's optimizers make of a model costs no lift."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import looplift
from tests.helpers import assert_same, model

CHOICE = """g (float[T] x, float[1] s) => (float[1] f, float[?,1] z) {
  l = Shape(x)
  zero = Constant<value = int64 {0}>()
  n = Gather(l, zero)
  f, z = Loop (n, , s) <body = b (int64 i, bool c, float[1] p) => (bool d, float[1] q, float[1] o) {
    d = Identity(c)
    r = Gather(x, i)
    none = Constant<value = float {0}>()
    up = Greater(r, none)
    q = If (up) <then_branch = t () => (float[1] y) { y = Add(p, r) },
                 else_branch = e () => (float[1] w) { half = Constant<value = float {0.5}>() m = Mul(r, half) w = Sub(p, m) }>
    o = Identity(q)
  }>
}"""
ROWS = """g (float[T,N,8] x, float[8] g, float[8,4] k, float[N,4] h) => (float[?,?] f, float[?,?,?] z) {
  two = Constant<value = float {2}>()
  little = Constant<value = float {0.00001}>()
  s = Pow(x, two)
  mean = ReduceMean<axes = [-1]>(s)
  e = Add(mean, little)
  root = Sqrt(e)
  part = Div(x, root)
  normed = Mul(part, g)
  a = MatMul(normed, k)
  l = Shape(a)
  zero = Constant<value = int64 {0}>()
  n = Gather(l, zero)
  f, z = Loop (n, , h) <body = b (int64 i, bool c, float[?,?] p) => (bool d, float[?,?] q, float[?,?] o) {
    d = Identity(c) r = Gather(a, i) m = Mul(r, p) q = Add(m, r) o = Identity(q) }>
}"""
FEEDS = {
    CHOICE: {"x": np.array([1, -2, 3], np.float32), "s": np.array([0.5], np.float32)},
    ROWS: {
        "x": np.ones((3, 2, 8), np.float32),
        "g": np.ones(8, np.float32),
        "k": np.ones((8, 4), np.float32),
        "h": np.ones((2, 4), np.float32),
    },
}


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED"])
@pytest.mark.parametrize("text", FEEDS, ids=["a choice", "rows"])
def test_lifts_what_onnx_runtime_optimized(text, level, tmp_path):
    assert looplift.explain(model(text))[0].lifted
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    onnxruntime.InferenceSession(ir.to_proto(model(text)).SerializeToString(), options)
    optimized = onnx.load(options.optimized_model_filepath)
    assert looplift.explain(optimized)[0].lifted
    for target in ("kernel", "standard"):
        assert_same(ir.from_proto(optimized), ir.from_proto(looplift.optimize(optimized, target=target)), FEEDS[text])


def test_a_constant_may_be_an_initializer_of_a_branch():
    """As which ONNX Runtime leaves what torch exports; large ones stay."""
    spelled = "(float[1] w) { half = Constant<value = float {0.5}>()"
    assert spelled in CHOICE
    before = model(CHOICE.replace(spelled, "(float[1] w) <float half = {0.5}> {"))
    assert looplift.explain(before)[0].lifted
    for target in ("kernel", "standard"):
        assert_same(before, looplift.optimize(before, target=target), FEEDS[CHOICE])


def test_a_branch_may_return_an_initializer():
    before = model(
        CHOICE.replace("(float[1] y) { y = Add(p, r) }", "(float[1] y) <float[1] y = {2}> { }").replace("{ }>", "{}>")
    )
    for target in ("kernel", "standard"):
        assert_same(before, looplift.optimize(before, target=target), FEEDS[CHOICE])

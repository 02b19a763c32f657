"""Types of ONNX Runtime's own operators: what it computes of every kind that is believed, and a loop behind them."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import looplift
from looplift.patterns.graph.operator_types import _BROADCASTS, _LIKE_FIRST, _PRODUCTS, NOT_IN_ONNX
from looplift.patterns.graph.types import Types, infer_node
from tests.helpers import model

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
NODES = {
    "BiasGelu": ("BiasGelu(x, b)", {"x": (2, 3, 4), "b": (4,)}),
    "FastGelu": ("FastGelu(x)", {"x": (2, 3, 4)}),
    "Gelu": ("Gelu(x)", {"x": (2, 3, 4)}),
    "QuickGelu": ("QuickGelu(x)", {"x": (2, 3, 4)}),
    "SkipLayerNormalization": ("SkipLayerNormalization(x, y, g)", {"x": (2, 3, 4), "y": (2, 3, 4), "g": (4,)}),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization(x, y, g)",
        {"x": (2, 3, 4), "y": (2, 3, 4), "g": (4,)},
    ),
    "SimplifiedLayerNormalization": ("SimplifiedLayerNormalization(x, g)", {"x": (2, 3, 4), "g": (4,)}),
    "QLinearSigmoid": ("QLinearSigmoid(q, s, z, s, z)", {"q": (2, 3)}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu(q, s, z, s, z)", {"q": (2, 3)}),
    "QLinearSoftmax": ("QLinearSoftmax<axis = 1, opset = 13>(q, s, z, s, z)", {"q": (2, 3)}),
    "QLinearAdd": ("QLinearAdd(q, s, z, p, s, z, s, z)", {"q": (2, 3), "p": (4, 2, 3)}),
    "QLinearMul": ("QLinearMul(q, s, z, p, s, z, s, z)", {"q": (2, 3), "p": (3,)}),
    "FusedMatMul": ("FusedMatMul<transA = 1, transB = 1>(x, y)", {"x": (2, 5, 3), "y": (4, 5)}),
    "FusedMatMul plain": ("FusedMatMul(x, y)", {"x": (2, 3, 5), "y": (2, 5, 4)}),
    "TransposeMatMul": ("TransposeMatMul<transB = 1>(x, y)", {"x": (2, 3, 5), "y": (2, 4, 5)}),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul(x, q, s)", {"x": (2, 3, 5), "q": (5, 4)}),
    "MatMulIntegerToFloat": ("MatMulIntegerToFloat(p, q, s, s)", {"p": (2, 3, 5), "q": (5, 4)}),
    "FusedConv": ('FusedConv<activation = "Relu", pads = [1, 1]>(x, y)', {"x": (2, 3, 9), "y": (4, 3, 3)}),
    "FusedGemm": ('FusedGemm<activation = "Relu", transA = 1>(x, y, b)', {"x": (5, 2), "y": (5, 4), "b": (4,)}),
}


def test_every_kind_is_tried():
    assert {name.split(" ")[0] for name in NODES} == {*_LIKE_FIRST, *_BROADCASTS, *_PRODUCTS, "FusedConv", "FusedGemm"}


@pytest.mark.parametrize("name", NODES)
def test_what_onnx_runtime_computes(name):
    call, arrays = NODES[name]
    ports = ", ".join(
        f"{'uint8' if key in 'qp' else 'float'}[{','.join(map(str, dim))}] {key}" for key, dim in arrays.items()
    )
    domain = "" if name in NOT_IN_ONNX else "com.microsoft."
    constants = "s = Constant<value = float {0.5}>() z = Constant<value = uint8 {3}>()"
    text = f"{HEAD} g ({ports}) => (float[?] o) {{ {constants} o = {domain}{call} }}"
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.Clear()
    known = Types()
    for node in model(text).graph:
        facts = infer_node(node, known, 17)
    (claim, *_) = facts
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    feeds = {key: np.ones(dim, np.uint8 if key in "qp" else np.float32) for key, dim in arrays.items()}
    (found,) = session.run(None, feeds)
    assert claim.shape == found.shape
    assert claim.dtype.numpy() == found.dtype


def test_a_loop_over_rows_that_onnx_runtime_fused():
    text = f"""{HEAD} g (float[T,N,8] x, float[4,8] w, float[4] b, float[N,4] h) => (float[?,?] f, float[?,?,?] z) {{
      m = com.microsoft.FusedMatMul<transB = 1>(x, w)
      a = com.microsoft.BiasGelu(m, b)
      l = Shape(x)
      zero = Constant<value = int64 {{0}}>()
      n = Gather(l, zero)
      f, z = Loop (n, , h) <body = lb (int64 i, bool c, float[?,?] p) => (bool d, float[?,?] q, float[?,?] o) {{
        d = Identity(c) r = Gather(a, i) e = Mul(r, p) q = Add(e, r) o = Identity(q) }}>
    }}"""
    assert looplift.explain(model(text))[0].lifted

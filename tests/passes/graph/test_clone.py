"""What is given to the optimizer stays as it was, down to the names of its tensors."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from lifting import loops_left

import looplift
from looplift.passes import run_pipeline
from looplift.passes.graph import clone as copies

BODY_INITIALIZER = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[4] x) => (float[4] v) <int64 n = {3}> {
  v = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] u)
    <float c = {0.5}> { co = Identity(ci) u = Add(p, c) }>
}"""
CONSTANTS = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[4] x) => (float[4] v) {
  n = Constant <value = int64 {3}> ()
  v = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] u)
    { co = Identity(ci) c = Constant <value = float {0.5}> () u = Add(p, c) }>
}"""
X = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("text", [BODY_INITIALIZER, CONSTANTS], ids=["initializer", "constant"])
def test_a_proto_is_not_changed(text, target):
    proto = onnx.parser.parse_model(text)
    before = proto.SerializeToString()
    lifted = looplift.optimize(proto, target=target)
    assert loops_left(ir.from_proto(lifted)) == 0
    assert proto.SerializeToString() == before
    for model in (proto, lifted):
        (got,) = looplift.Session(model, device="numpy").run(None, {"x": X})
        assert got.tolist() == [2.5, 3.5, 4.5, 5.5]


@pytest.mark.parametrize("text", [BODY_INITIALIZER, CONSTANTS], ids=["initializer", "constant"])
def test_an_ir_model_is_not_changed(text):
    model = ir.from_proto(onnx.parser.parse_model(text))
    before = ir.to_proto(model).SerializeToString()
    run_pipeline(model)
    assert ir.to_proto(model).SerializeToString() == before


def test_data_is_shared():
    weights = np.arange(10000, dtype=np.float32)
    value = ir.Value(name="w", const_value=ir.tensor(weights, name="w"))
    model = ir.Model(
        ir.Graph([], [value], nodes=[], initializers=[value], name="g", opset_imports={"": 17}), ir_version=8
    )
    copied = copies.clone(model).graph.initializers["w"]
    copied.name = "other"
    assert value.const_value.name == "w"
    assert np.shares_memory(copied.const_value.numpy(), weights)

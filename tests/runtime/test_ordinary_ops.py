"""The standard's ordinary ops: each can be set up in every opset that has it."""

import numpy as np
import onnx
import onnx.defs
import pytest
from sessions import assert_same, in_onnxruntime, model, run

from looplift.runtime.interpreter import reference

WITHOUT = {"GlobalLpPool", "MaxRoiPool", "Multinomial"}
"""Ops that onnx implements in no version."""

NEWEST = onnx.defs.onnx_opset_version()


VALUES = {"INT": 1, "INTS": [1], "FLOAT": 1.0, "FLOATS": [1.0], "STRING": "a", "STRINGS": ["a"]}
LEFT_OUT = {"Constant", "If", "Loop", "Scan", "SequenceMap", "TfIdfVectorizer"}
"""Ops that are planned by us, and one whose attributes must fit each other."""


def given(attribute):
    """A value for an attribute that must be there."""
    if attribute.name == "direction":
        return onnx.helper.make_attribute("direction", "LEFT")  # of BitShift
    return onnx.helper.make_attribute(attribute.name, VALUES[attribute.type.name])


def ordinary(opset):
    """The schemas of the ops of opset `opset` of inputs that are not functions."""
    for name in {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""} - LEFT_OUT:
        if onnx.defs.has(name, opset, ""):
            schema = onnx.defs.get_schema(name, opset, "")
            if not (schema.deprecated or schema.has_function or schema.has_context_dependent_function):
                yield schema


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_every_ordinary_op_can_be_set_up(opset):
    missing = set()
    for schema in ordinary(opset):
        node = onnx.helper.make_node(schema.name, [f"i{k}" for k in range(max(schema.min_input, 1))], ["o"])
        node.attribute.extend(given(a) for a in schema.attributes.values() if a.required)
        if reference.load(node, {"": opset}) is None:
            missing.add(schema.name)
    assert missing <= WITHOUT


@pytest.mark.parametrize("opset", [10, 13, 18, 19, 21])
@pytest.mark.parametrize("zero", ["", ", zero"])
def test_dequantized(opset, zero):
    text = f"""g (float[2,3] x) => (float[2,3] y) <float scale = {{0.25}}, uint8 zero = {{3}}> {{
      q = QuantizeLinear(x, scale{zero}) y = DequantizeLinear(q, scale{zero}) }}"""
    x = np.array([[0.4, -0.0, 7.1], [-3, 300, -1e9]], np.float32)
    (ours,) = run(text, opset, x=x)
    assert_same(ours, in_onnxruntime(model(text, opset), {"x": x})[0])


def test_dequantized_by_channels():
    text = """g (uint8[2,3] q) => (float[2,3] y) <float[3] scale = {0.25, 2, 1}, uint8[3] zero = {3, 0, 255}> {
      y = DequantizeLinear<axis = 1>(q, scale, zero) }"""
    q = np.array([[0, 1, 2], [255, 254, 253]], np.uint8)
    (ours,) = run(text, 13, q=q)
    assert_same(ours, in_onnxruntime(model(text, 13), {"q": q})[0])

"""Models with constants, and the bits that ONNX Runtime makes of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime

from tests.helpers import model

LEVEL = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def given(text: str, opset: int = 17, **constants: np.ndarray) -> ir.Model:
    """A model from text of which these inputs become initializers.

    Ports of bodies whose names end in _ lose their shape, which the text can't leave out.
    """
    subject = model(text, opset)
    for name, array in constants.items():
        (value,) = [value for value in subject.graph.inputs if value.name == name]
        subject.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        subject.graph.register_initializer(value)
    for graph in subject.graph.subgraphs():
        for value in (*graph.inputs, *graph.outputs):
            if (value.name or "").endswith("_"):
                value.shape = None
    return subject


def drawn(*shape: int) -> np.ndarray:
    """Some numbers, the same each time."""
    return (np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape) / 4).astype(np.float32)


def bits(subject: ir.Model, feeds: dict[str, np.ndarray], level: str) -> list[bytes]:
    """What ONNX Runtime makes of a model, at a level of its optimizers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = LEVEL[level]
    session = onnxruntime.InferenceSession(ir.to_proto(subject).SerializeToString(), options)
    return [x.tobytes() for x in session.run(None, {item.name: feeds[item.name] for item in session.get_inputs()})]


def differs(one: ir.Model, other: ir.Model, feeds: dict[str, np.ndarray]) -> bool:
    """Whether ONNX Runtime gives other bits, with or without its optimizers."""
    return any(bits(one, feeds, level) != bits(other, feeds, level) for level in ("none", "all"))

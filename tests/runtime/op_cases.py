"""Shared by the tests of the custom ops: one-node models, definitions in ONNX Runtime, comparison of bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

from looplift.runtime.ops import DOMAIN, VERSION, all_ops

INTEGERS = [np.dtype(f"{sign}int{width}") for sign in ("", "u") for width in (8, 16, 32, 64)]


def special_values(dtype):
    """Both zeros, both infinities, NaN, subnormals, the largest and ordinary numbers of a floating-point type."""
    info = ml_dtypes.finfo(dtype)
    one = np.array(1, dtype)
    positive = [
        0,
        info.smallest_subnormal,
        info.smallest_normal,
        info.eps,
        one,
        one + info.eps,
        info.max,
        np.inf,
        np.nan,
    ]
    return np.array([sign * np.array(v, dtype) for v in positive for sign in (one, -one)]).astype(dtype)


def kernel(op: str, inputs, wanted=(True, True), **attributes):
    return all_ops()[op].numpy(inputs, attributes, wanted)


def one_node(op: str, opset: int, inputs: dict, wanted=(True, True), shapes: dict | None = None, **attributes):
    """A model of one node and its definition; `inputs` are arrays by the name of the op's input, None if absent."""
    given = {name: array for name, array in inputs.items() if array is not None}
    outputs = [name if used else "" for name, used in zip(("v_final", "scan_output"), wanted, strict=True)]
    node = onnx.helper.make_node(
        op, [name if name in given else "" for name in inputs], outputs, domain=DOMAIN, **attributes
    )
    element = onnx.helper.np_dtype_to_tensor_dtype(next(reversed(given.values())).dtype)
    graph = onnx.helper.make_graph(
        [node],
        "one_node",
        [
            onnx.helper.make_tensor_value_info(
                name,
                onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
                (shapes or {}).get(name, array.shape),
            )
            for name, array in given.items()
        ],
        [onnx.helper.make_tensor_value_info(name, element, None) for name in outputs if name],
    )
    return onnx.helper.make_model(
        graph,
        ir_version=8,
        opset_imports=[onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(DOMAIN, VERSION)],
        functions=[all_ops()[op].definition(opset)],
    )


def run_ort(model: onnx.ModelProto, inputs: dict, optimize: bool = True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {name: array for name, array in inputs.items() if array is not None})


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Same type, shape and bits; any NaN equals any other."""
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    pattern = f"u{actual.dtype.itemsize}"
    left, right = (np.ascontiguousarray(a).reshape(-1).view(pattern) for a in (actual, expected))
    with np.errstate(invalid="ignore"):
        both_nan = ((actual != actual) & (expected != expected)).reshape(-1)
    differ = (left != right) & ~both_nan
    assert not differ.any(), f"first of {differ.sum()} at {np.argmax(differ)}: {actual.reshape(-1)[np.argmax(differ)]}"


def assert_definition_agrees(op: str, opset: int, inputs: dict, wanted=(True, True), shapes=None, **attributes) -> None:
    """The definition in ONNX Runtime, optimised and not, gives the same bits as the kernel."""
    model = one_node(op, opset, inputs, wanted, shapes, **attributes)
    expected = [out for out in kernel(op, list(inputs.values()), wanted, **attributes) if out is not None]
    for optimize in (False, True):
        for got, want in zip(run_ort(model, inputs, optimize), expected, strict=True):
            assert_same_bits(got, want)

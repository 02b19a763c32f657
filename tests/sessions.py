"""Short ways to write and run a model in the interpreter's tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser

from looplift.runtime import Session


def model(text: str, opset: int = 17, ir_version: int = 8, domains: str = "") -> onnx.ModelProto:
    """A model from the text of its graph (and functions after it)."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": {opset}{domains}]> {text}')


def run(text: str | onnx.ModelProto, opset: int = 17, **feeds: Any) -> list[Any]:
    """Run a model, or the text of one's graph, in the interpreter."""
    proto = model(text, opset) if isinstance(text, str) else text
    return Session(proto, device="numpy").run(None, feeds)


def in_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Run a model in ONNX Runtime without its graph optimisations, which have bugs of their own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def f32(*values: Any) -> np.ndarray:
    """A float32 array; one scalar gives rank 0."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.float32)


def i64(*values: Any) -> np.ndarray:
    """An int64 array; one scalar gives rank 0."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.int64)


def assert_same(got: Any, want: Any) -> None:
    """Same kind, dtype, shape and bits; any NaN equals any NaN."""
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
        return
    if want is None:
        assert got is None
        return
    want = np.asarray(want)
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype == object:
        assert got.tolist() == want.tolist()
        return
    floating = want.dtype.kind in "fcV"
    equal = (got == want) | ((got != got) & (want != want)) if floating else got == want
    assert np.all(equal), f"{got} is not {want}"

"""Loops whose recurrence is known, and one way to see that their lowering is right.

The original runs in our interpreter, the lowered model in our interpreter and in ONNX Runtime with and without its
optimizers; all give the same bits and shapes. The original runs in ONNX Runtime too where it has the kernels.
"""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

import looplift
from looplift.passes import run_pipeline
from looplift.runtime.ops import DOMAIN

TRIPS = [-1, 0, 1, 2, 17]
LEVELS = (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
NO_KERNEL = frozenset({"bfloat16"})
"""Element types that ONNX Runtime's CPU provider can't add."""

Feeds = dict[str, np.ndarray]


def lower(subject: ir.Model) -> ir.Model:
    """The model in standard ops; legal, and with nothing of ours left in it."""
    result, _ = run_pipeline(subject, target="standard")
    domains = {node.domain for graph in (result.graph, *result.functions.values()) for node in _nodes(graph)}
    assert DOMAIN not in domains
    assert DOMAIN not in result.opset_imports
    assert all(function.domain != DOMAIN for function in result.functions.values())
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    return result


def _nodes(graph: ir.Graph | ir.Function):
    return ir.traversal.RecursiveGraphIterator(graph)


def loop_nodes(subject: ir.Model) -> list[str]:
    """The op types of the loops that are left."""
    graphs = (subject.graph, *subject.functions.values())
    return [node.op_type for graph in graphs for node in _nodes(graph) if node.op_type in ("Loop", "Scan")]


class Engines:
    """A model before and after, ready to run many inputs."""

    def __init__(self, before: ir.Model, after: ir.Model, *, ort: bool = True) -> None:
        self._reference = looplift.Session(before, device="numpy")
        self._others = {"looplift": looplift.Session(after, device="numpy")}
        if ort:
            for level in LEVELS:
                self._others[f"ONNX Runtime, {level.name}"] = session(after, level)

    def agree(self, feeds: Feeds) -> None:
        """The same bits from all."""
        expected = self._reference.run(None, feeds)
        for name, other in self._others.items():
            for want, got in zip(expected, other.run(None, feeds), strict=True):
                assert_same_bits(want, got, f"{name} on {feeds}")


def session(subject: ir.Model, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(ir.to_proto(subject).SerializeToString(), options)


def assert_same_bits(want: np.ndarray, got: np.ndarray, what: str) -> None:
    """The same type, shape and bits; one NaN is as good as another."""
    assert (want.dtype, want.shape) == (got.dtype, got.shape), what
    if want.dtype.kind not in "iub":
        want, got = (np.where(np.isnan(x), np.zeros((), x.dtype), x) for x in (want, got))
    assert want.tobytes() == got.tobytes(), f"{want} and {got}: {what}"


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Values of all kinds: with rounding, wrapping, both zeros."""
    rng = np.random.default_rng(seed)
    kind = np.dtype({"float": "float32", "double": "float64", "bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype))
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind, endpoint=True)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    values = np.where(rng.random(shape) < 0.2, -0.0, values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(values).astype(kind)

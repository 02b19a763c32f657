"""Shared by the tests: models from ONNX text, passes applied to them, and what ONNX Runtime makes of both."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from looplift.passes.graph.names import fix_names
from looplift.passes.journal import Journal


def model(text: str, opset: int = 17) -> ir.Model:
    """A model from ONNX text; the header is added if the text has none."""
    if not text.lstrip().startswith("<"):
        text = f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}'
    return ir.from_onnx_text(text)


def apply(subject: ir.Model, *passes, expect: bool | None = True) -> ir.Model:
    """A copy with the passes run once each; checks what they say of it, their fixed point and onnx.checker.

    `expect` None accepts any answer to whether something changed.
    """
    copy = subject.clone()
    journal = Journal.begin(copy)
    changed = [single(copy, journal) for single in passes]
    assert expect is None or any(changed) == expect
    if len(passes) == 1:
        assert not passes[0](copy, journal), "a second call changes the model again"
    copy.graph.meta["findings"] = journal.end(copy)
    fix_names(copy)
    assert not fix_names(copy)
    onnx.checker.check_model(ir.to_proto(copy), full_check=True)
    return copy


def ops(graph: ir.Graph | ir.Function) -> list[str]:
    """The op types of a graph and of the graphs in it, in order."""
    return [node.op_type for node in ir.traversal.RecursiveGraphIterator(graph)]


def find(subject: ir.Model, op_type: str) -> ir.Node:
    """The only node of this type in the model, functions included."""
    graphs = [subject.graph, *subject.functions.values()]
    found = [n for g in graphs for n in ir.traversal.RecursiveGraphIterator(g) if n.op_type == op_type]
    assert len(found) == 1, f"{len(found)} nodes of type {op_type}"
    return found[0]


def run_ort(subject: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The outputs in ONNX Runtime without its optimizers; None if it reports an error while running."""
    session = _session(ir.to_proto(subject).SerializeToString())
    wanted = {value.name for value in session.get_inputs()}
    try:
        return session.run(None, {name: array for name, array in feeds.items() if name in wanted})
    except Exception as error:  # ONNX Runtime has no common class for its errors
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        return None


@functools.lru_cache(maxsize=32)
def _session(serialized: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(serialized, options)


def assert_same(
    before: ir.Model,
    after: ir.Model,
    feeds: dict[str, np.ndarray],
    *,
    errors_may_vanish: bool = False,
    empty_shapes: bool = True,
):
    """Same bits and shapes in ONNX Runtime; an error stays one unless `errors_may_vanish`.

    `empty_shapes` False leaves the extents of empty results out: ONNX Runtime makes those that it does not know
    statically 0 when a loop runs no iteration, so they depend on what is declared.
    """
    expected, actual = run_ort(before, feeds), run_ort(after, feeds)
    if expected is None and errors_may_vanish:
        return
    assert (expected is None) == (actual is None), f"only one of them fails on {feeds}"
    for left, right in zip(expected or [], actual or [], strict=True):
        assert left.dtype == right.dtype
        assert left.ndim == right.ndim
        if left.size or right.size or empty_shapes:
            assert left.shape == right.shape, f"shapes {left.shape} and {right.shape} on {feeds}"
        assert left.tobytes() == right.tobytes(), f"{left} and {right} on {feeds}"

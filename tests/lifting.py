"""For tests of the lift: optimize ONNX text, count what is left, and compare results bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from looplift.passes import run_pipeline
from looplift.passes.report import Finding
from looplift.runtime import Session

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>\n'


def parse(text: str, opset: int = 17) -> ir.Model:
    """A model from ONNX text; the header is added if the text has none."""
    return ir.from_onnx_text(text if text.lstrip().startswith("<") else HEADER.format(opset=opset) + text)


def lift(text: str, opset: int = 17, **options) -> tuple[ir.Model, tuple[Finding, ...]]:
    """The optimized model and its findings; the result passes onnx.checker and a second run changes nothing."""
    model, findings = run_pipeline(parse(text, opset), **options)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    again, _ = run_pipeline(model, **options)
    assert count(again) == count(model)
    return model, findings


def count(model: ir.Model) -> dict[str, int]:
    """How often each op type stands in the graphs of the model, our definitions left out."""
    found: dict[str, int] = {}
    graphs = [model.graph, *(f for f in model.functions.values() if f.domain != "ai.looplift")]
    for graph in graphs:
        for node in ir.traversal.RecursiveGraphIterator(graph):
            found[node.op_type] = found.get(node.op_type, 0) + 1
    return found


def loops_left(model: ir.Model) -> int:
    """How many Loop and Scan nodes are left."""
    found = count(model)
    return found.get("Loop", 0) + found.get("Scan", 0)


def nodes(model: ir.Model) -> list[str]:
    """Our nodes, sorted."""
    return sorted(
        node.op_type
        for graph in [model.graph, *(f for f in model.functions.values() if f.domain != "ai.looplift")]
        for node in ir.traversal.RecursiveGraphIterator(graph)
        if node.domain == "ai.looplift"
    )


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Same type, shape and bits; any NaN equals any NaN."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind == "f":
        nan = np.isnan(left) & np.isnan(right)
        return bool(np.all((left.view(f"u{left.itemsize}") == right.view(f"u{left.itemsize}")) | nan))
    return left.tobytes() == right.tobytes()


def assert_equal(original: ir.Model | str, lifted: ir.Model, *feeds: dict, opset: int = 17) -> None:
    """Our interpreter on the original, our kernels and our definitions on the lifted: the same bits."""
    original = parse(original, opset) if isinstance(original, str) else original
    before = Session(original, device="numpy")
    runs = [Session(lifted, device="numpy"), Session(lifted, device="numpy", definitions=True)]
    for feed in feeds:
        wanted = before.run(None, feed)
        for session in runs:
            for want, got in zip(wanted, session.run(None, feed), strict=True):
                assert same_bits(np.asarray(want), np.asarray(got)), f"{want}\nand\n{got}\nfor {feed}"

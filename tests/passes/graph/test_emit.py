"""Writing nodes: moving an axis is a transposition, or a reshape where it only passes axes of extent 1."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from looplift.passes.graph.emit import Emitter
from looplift.patterns.graph.types import Types
from tests.helpers import run_ort


@pytest.mark.parametrize("shape", list(itertools.product((1, 3), repeat=3)))
def test_an_axis_moves_as_in_numpy(shape):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for start, end in itertools.product(range(3), repeat=2):
        given = ir.val("x", ir.DataType.FLOAT, shape)
        emit = Emitter(17, Types())
        moved = emit.op("Identity", [emit.move_axis(given, 3, start, end)])
        moved.name = "y"
        for k, node in enumerate(emit.nodes):
            node.outputs[0].name = node.outputs[0].name or f"v{k}"
        graph = ir.Graph([given], [moved], nodes=emit.nodes, opset_imports={"": 17}, name="g")
        (result,) = run_ort(ir.Model(graph, ir_version=8), {"x": values})
        assert result.shape == np.moveaxis(values, start, end).shape
        assert np.array_equal(result, np.moveaxis(values, start, end))
        passed = [shape[axis] for axis in range(min(start, end), max(start, end) + 1) if axis != start]
        assert ("Transpose" in {node.op_type for node in emit.nodes}) == any(extent != 1 for extent in passed)

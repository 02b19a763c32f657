"""Sums in order of time by CumSum (opset 11).

ONNX Runtime's CPU kernel copies the first element, so that a -0.0 stays one, and adds the others in order. It has
kernels for float, double, int32 and int64; a float16 is summed in float32 there, which rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter

CUMSUM_SINCE = 11
"""The opset that brought CumSum."""

SUMMED = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64})
"""The element types that CumSum sums as the loop does."""


def running_sum(emit: Emitter, parts: Sequence[ir.Value], *, backwards: bool = False) -> ir.Value:
    """The running sum over the rows of all parts, from the last row to the first if `backwards`."""
    joined = emit.op("Concat", list(parts), {"axis": 0}) if len(parts) > 1 else parts[0]
    return emit.op("CumSum", [joined, emit.const(0)], {"reverse": 1} if backwards else None)

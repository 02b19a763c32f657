"""The opsets whose operators the passes know."""

from __future__ import annotations

import onnx

OLDEST = 8
"""The first opset in which our definitions can be written; before opset 7 operators broadcast by attributes."""

NEWEST = 28
"""The last opset whose operators were compared, one by one, with what the passes take them for
(``tests/patterns/test_shape_audit.py``). A later one may change any of them: what they compute, infer or are told by
attributes."""


def unread(opset: int) -> str | None:
    """Why loops of this opset are left alone; None if they are not."""
    newest = min(NEWEST, onnx.defs.onnx_opset_version())  # an older onnx knows an older form of a newer operator
    if OLDEST <= opset <= newest:
        return None
    return f"operators are read as from opset {OLDEST} to {newest}, and this is opset {opset}: convert the model first"

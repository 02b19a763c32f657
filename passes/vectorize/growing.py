"""Expand, Tile and Pad over time: the leading axes are left as they are."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.vectorize.context import OverTime, Rule
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.refusal import Refusal, Refused


def _invariant(over: OverTime, node: ir.Node, position: int, what: str) -> ir.Value:
    value = node.inputs[position]
    if value is None or over.varies(value):
        raise Refused(Refusal(f"the {what} of {node.op_type} varies", node))
    return value


def _length(over: OverTime, node: ir.Node, vector: ir.Value) -> int:
    shape = over.types[vector].shape
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        raise Refused(Refusal(f"how many axes {node.op_type} makes is not known", node))
    return shape[0]


def expand(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Expand: extents of 1 for the leading axes leave them alone, since Expand broadcasts both ways."""
    value, shape = node.inputs[0], _invariant(over, node, 1, "shape")
    assert value is not None
    if over.types[value].same_shape(over.types[node.outputs[0]]):
        return [over.stack(value)]
    length = _length(over, node, shape)
    rank = max(over.rank(value), length)
    ones = over.emit.const([1] * (over.lead + rank - length))
    target = over.emit.op("Concat", [ones, over.outside(shape)], {"axis": 0})
    return [over.emit.op("Expand", [over.operand(value, rank), target])]


def tile(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Tile: once along the leading axes."""
    value, repeats = node.inputs[0], _invariant(over, node, 1, "repeats")
    assert value is not None
    target = over.emit.op("Concat", [over.emit.const([1] * over.lead), over.outside(repeats)], {"axis": 0})
    return [over.emit.op("Tile", [over.stack(value), target])]


def pad(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Pad by constants: nothing is added along the leading axes."""
    value = node.inputs[0]
    assert value is not None
    if over.view.opset < 11 or (len(node.inputs) > 3 and node.inputs[3] is not None):
        raise Refused(Refusal("Pad names its pads or axes in a form that is not read", node))
    pads = constant(_invariant(over, node, 1, "pads"), over.view.opset)
    if pads is None:
        raise Refused(Refusal("the pads of Pad are not constant", node))
    before, after = (list(map(int, half)) for half in pads.reshape(2, -1))
    none = [0] * over.lead
    fill = [over.outside(_invariant(over, node, 2, "fill"))] if len(node.inputs) > 2 and node.inputs[2] else []
    amounts = over.emit.const([*none, *before, *none, *after])
    return [over.emit.op("Pad", [over.stack(value), amounts, *fill], dict(node.attributes))]


RULES: dict[str, Rule] = {"Expand": expand, "Pad": pad, "Tile": tile}

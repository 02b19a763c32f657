"""Operators that act on each element by itself, broadcasting their operands."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.vectorize.context import OverTime, Rule
from looplift.patterns.graph.operators import TRAITS, Trait
from looplift.patterns.graph.refusal import Refusal, Refused


def elementwise(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """The same operator on stacks: element ranks are made equal behind the time axis, then it broadcasts as before."""
    inputs = [value for value in node.inputs if value is not None]
    if len(inputs) == 1:
        return [over.emit.op(node.op_type, [over.stack(inputs[0])], dict(node.attributes))]
    if len(inputs) != len(node.inputs):
        raise Refused(Refusal(f"{node.op_type} leaves an input out", node))
    varying = [value for value in inputs if over.varies(value)]
    rank = max(over.rank(value) for value in inputs)
    if node.op_type == "PRelu" and over.varies(inputs[1]) and not over.varies(inputs[0]):
        raise Refused(Refusal("the slope of PRelu varies, its input does not", node))
    operands = [over.operand(value, rank) for value in inputs]
    assert varying, "an invariant node has no stack of its own"
    return [over.emit.op(node.op_type, operands, dict(node.attributes))]


def copy(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Identity: the same stack."""
    assert node.inputs[0] is not None
    return [over.stack(node.inputs[0])]


def cast(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Cast keeps its attributes; CastLike casts to the type that its second input has."""
    value = node.inputs[0]
    assert value is not None
    if node.op_type == "Cast":
        return [over.emit.op("Cast", [over.stack(value)], dict(node.attributes))]
    dtype = over.types[node.inputs[1]].dtype
    if dtype is None:
        raise Refused(Refusal("the type that CastLike casts to is not known", node))
    return [over.emit.op("Cast", [over.stack(value)], {"to": ir.AttrInt64("to", int(dtype))})]


def clip(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Clip: the bounds are scalars and may not vary."""
    value, *bounds = node.inputs
    assert value is not None
    if any(bound is not None and over.varies(bound) for bound in bounds):
        raise Refused(Refusal("the bounds of Clip vary", node))
    outer = [None if bound is None else over.outside(bound) for bound in bounds]
    return [over.emit.op("Clip", [over.stack(value), *outer], dict(node.attributes))]


RULES: dict[str, Rule] = {
    **dict.fromkeys(TRAITS[Trait.ELEMENTWISE] - {"Shrink"}, elementwise),
    "Cast": cast,
    "CastLike": cast,
    "Clip": clip,
    "Identity": copy,
}

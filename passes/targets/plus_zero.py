"""Additions of a constant zero, which ONNX Runtime leaves out: 0 + -0 is 0, and what is left is -0."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import NUMBER
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.own_nodes import DOMAIN
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import nodes_within
from looplift.patterns.graph.walk import places


def plus_zeros(model: ir.Model) -> frozenset[object]:
    """The numbers of the additions of a constant zero that the model has already."""
    return frozenset(node.meta.get(NUMBER) for node, _, _ in _plus_zeros(model))


def subtract_from_zero(model: ir.Model, before: Collection[object]) -> None:
    """Writes ``0 + x`` as ``0 - -x``, which no engine leaves out, but for those additions that were there `before`.

    Preserves bits, as addition of floats is; without it ONNX Runtime makes -0 of 0 + -0 (quirk "plus zero").
    """
    for node, k, opset in list(_plus_zeros(model)):
        if node.meta.get(NUMBER) in before and NUMBER in node.meta:
            continue
        emit = Emitter(opset, Types())
        difference = emit.op("Sub", [node.inputs[k], emit.op("Neg", [node.inputs[1 - k]])])
        emit.insert_before(node)
        result = node.outputs[0]
        difference.name, difference.type, difference.shape = result.name, result.type, result.shape
        replace_value(result, difference)
        assert node.graph is not None
        node.graph.remove(node, safe=True)


def _plus_zeros(model: ir.Model) -> Iterator[tuple[ir.Node, int, int]]:
    """Each such Add, which operand the zero is, and its opset; in our definitions an operand that a call gives."""
    opset = model.opset_imports.get("", 1)
    given = _given_zeros(model, opset)
    for place in places(model):
        for node in place.graph:
            if is_standard(node, "Add"):
                zeros = [k for k, value in enumerate(node.inputs) if value in given or _is_zero(value, place.opset)]
                if zeros:
                    yield node, zeros[0], place.opset


def _given_zeros(model: ir.Model, opset: int) -> set[ir.Value | None]:
    """Inputs of our definitions that are a constant zero in a call."""
    found: set[ir.Value | None] = set()
    for node in nodes_within(model.graph):
        function = model.functions.get(node.op_identifier()) if node.domain == DOMAIN else None
        if function is not None:
            pairs = zip(node.inputs, function.inputs, strict=False)
            found |= {formal for value, formal in pairs if _is_zero(value, opset)}
    return found


def _is_zero(value: ir.Value | None, opset: int) -> bool:
    tensor = None if value is None else constant(value, opset)
    if tensor is None or tensor.size != 1 or tensor.dtype.kind not in "fV":
        return False
    return not tensor.any() and not np.signbit(tensor.astype(np.float64)).any()

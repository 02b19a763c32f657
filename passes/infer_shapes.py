"""ONNX's own shape inference over the whole model, with data propagation, merged into the IR.

`onnx_ir`'s pass of the same purpose gives a sequence the type of a tensor, so the merge here is our own.
"""

from __future__ import annotations

import logging

import onnx
import onnx_ir as ir

from looplift.patterns.types import tensor_shape

logger = logging.getLogger(__name__)

LARGE = 1024
"""Elements. Initializers above this are described to the inference by their type only."""


def infer_shapes(model: ir.Model) -> bool:
    """Fills in types and shapes that the model leaves out. Declared ones stay. Preserves bits: nothing is computed.

    Legality: (1) only a value without a type gets one, only a shape without an extent gets that extent; (2) a model
    that the inference rejects is left as it is.
    """
    try:
        inferred = ir.from_proto(
            onnx.shape_inference.infer_shapes(ir.to_proto(_light_copy(model)), strict_mode=False, data_prop=True)
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        logger.debug("shape inference rejects the model: %s", error)
        return False
    changed = False
    for graph, found in zip(model.graphs(), inferred.graphs(), strict=True):
        facts = ir.convenience.create_value_mapping(found)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            if name in facts:
                changed |= _merge(value, facts[name])
    return changed


def _light_copy(model: ir.Model) -> ir.Model:
    """A copy whose large initializers are inputs."""
    copy = model.clone()
    for name, value in list(copy.graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and tensor.size > LARGE:
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor_shape(tensor))
            del copy.graph.initializers[name]
            if not value.is_graph_input():
                copy.graph.inputs.append(value)
    return copy


def _merge(value: ir.Value, found: ir.Value) -> bool:
    changed = False
    if value.type is None and found.type is not None:
        value.type, changed = found.type, True
    if found.shape is None or not isinstance(value.type, ir.TensorType):
        return changed
    if value.shape is None:
        value.shape = ir.Shape(found.shape)
        return True
    if len(value.shape) != len(found.shape):
        return changed
    dims = [new if _nameless(old) else old for old, new in zip(value.shape, found.shape, strict=True)]
    if dims != list(value.shape):
        value.shape, changed = ir.Shape(dims), True
    return changed


def _nameless(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) and dim.value is None

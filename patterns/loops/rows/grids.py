"""Indices of a ScatterND that write one slice along any axis: ``out[:, i] = v``.

PyTorch spells such a write as a grid: one index tensor per axis up to the written one, broadcast against each other
and concatenated along a new last axis. All but one of them run through their axis from 0 to its end; the remaining
one is the same everywhere and counts with the iterations.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.shapes import range_extent
from looplift.patterns.graph.types import Dim, Types
from looplift.patterns.graph.values import origin, source
from looplift.patterns.graph.view import View
from looplift.patterns.loops.index import Index, index_by_trips


@dataclasses.dataclass(frozen=True)
class SliceWrite:
    """Every iteration writes the slice at `index` along `axis`."""

    axis: int
    index: Index


def slice_write(indices: ir.Value, written: tuple[Dim, ...], view: View, types: Types) -> SliceWrite | None:
    """What a grid of indices writes of a tensor with extents `written`, or None if it is not known to be a slice.

    Args:
        indices: int64, shape ``[*grid, components]``.
        written: extents of the tensor that is written to.
        view: the loop whose body computes the indices.
        types: facts that include the body's.
    """
    node, shape = source(indices).producer(), types[indices].shape
    if not is_standard(node, "Concat") or shape is None:
        return None
    count, axis = len(shape) - 1, node.attributes.get_int("axis", None)
    if len(node.inputs) != count or count > len(written) or axis not in (-1, count):
        return None
    found: list[SliceWrite] = []
    for position, component in enumerate(node.inputs):
        if component is None or types[component].shape != (*shape[:-1], 1):
            return None
        if _runs_along(component, position, written[position], types, view.opset):
            continue
        index = _uniform(component, view, types)
        if index is None or shape[position] != 1:
            return None
        if index != Index(0, 0) or written[position] != 1:
            found.append(SliceWrite(position, index))
    return found[0] if len(found) == 1 else None


def _runs_along(value: ir.Value, axis: int, extent: Dim, types: Types, opset: int) -> bool:
    """Whether the tensor holds 0, 1, ... along one axis, as many as the extent says, the same on all other axes."""
    shape = types[value].shape
    if extent is None or shape is None or shape[axis] != extent:
        return False
    array = constant(value, opset)
    if array is not None:
        numbers = np.arange(array.shape[axis]).reshape([-1 if k == axis else 1 for k in range(array.ndim)])
        return bool((array == numbers).all())
    node = value.producer()
    if not is_standard(node):
        return False
    if node.op_type == "Range":
        return range_extent(node, lambda other: types[other].shape, opset) == extent
    kept = types[value].dtype in (ir.DataType.INT64, ir.DataType.INT32)  # narrower types wrap, or round
    relays = has(node, Trait.RESHAPES) or node.op_type in ("Cast", "Expand")
    inner = types[node.inputs[0]].shape if relays and kept else None
    if inner is None or node.inputs[0] is None:
        return False
    if node.op_type == "Expand":
        before = axis - (len(shape) - len(inner))
        return before >= 0 and _runs_along(node.inputs[0], before, extent, types, opset)
    if shape == (*inner, 1) and axis < len(inner):
        return _runs_along(node.inputs[0], axis, extent, types, opset)
    # All other axes have one element, so that the order of the elements says where they lie.
    places = [k for k, dim in enumerate(inner) if dim != 1]
    alone = all(dim == 1 for k, dim in enumerate(shape) if k != axis)
    return alone and len(places) == 1 and _runs_along(node.inputs[0], places[0], extent, types, opset)


def _uniform(value: ir.Value, view: View, types: Types) -> Index | None:
    """The counting form of a tensor that holds one number everywhere."""
    value = origin(value, lambda node: node.op_type in ("Expand", "Unsqueeze", "Identity"))
    shape = types[value].shape
    return index_by_trips(value, view, types) if shape is not None and all(dim == 1 for dim in shape) else None


__all__ = ["SliceWrite", "slice_write"]

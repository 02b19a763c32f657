"""Whether a node can fail: only one that can't may run where the model did not run it.

A loop that runs no iteration runs none of its body's nodes. Moving one out of the body is then safe only if it has
a result for every input of the types known of it. Those that have one under conditions are listed here; whatever is
not listed, here or as `Trait.SPECULATABLE`, can fail. Source: the ONNX operator specification, and for integer division
by zero and INT_MIN / -1 the hardware trap that engines run into.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import STANDARD, Trait, has, has_references, is_standard
from looplift.patterns.graph.own_nodes import DOMAIN
from looplift.patterns.graph.shapes import broadcasts_into
from looplift.patterns.graph.slices import constant_ints, distinct_axes, in_range, known_axes, slice_bounds
from looplift.patterns.graph.types import Dim, TensorType, Types, infer_node
from looplift.patterns.graph.values import has_subgraphs, subgraphs, with_inner

PURE = frozenset({*STANDARD, "ai.onnx.ml", DOMAIN})
"""Domains whose operators, but the random ones, give the same outputs for the same inputs."""

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

Rule = Callable[[ir.Node, Types, int], bool]


def is_total(node: ir.Node, types: Types, opset: int) -> bool:
    """Whether the node has a result for every input of these types.

    Args:
        node: any node; one of another domain than ONNX's can fail.
        types: what is known of the values it reads.
        opset: version of the default domain in force; before 8, elementwise ops broadcast by other rules.
    """
    if opset < 8 or not is_standard(node):
        return False
    if has_references(node):
        return False
    if node.op_type == "If":
        return _if(node, types, opset)
    if has_subgraphs(node):
        return False
    if has(node, Trait.SPECULATABLE):
        return not has(node, Trait.BROADCASTS) or _broadcasts(node, types)
    rule = RULES.get(node.op_type)
    return rule is not None and rule(node, types, opset)


def is_deterministic(node: ir.Node) -> bool:
    """Whether the node, and every node in its graphs, gives the same outputs for the same inputs."""
    return all(inner.domain in PURE and not has(inner, Trait.RANDOM) for inner in with_inner(node))


def _shapes(node: ir.Node, types: Types) -> list[tuple[Dim, ...] | None]:
    return [types[value].shape for value in node.inputs if value is not None]


def _broadcasts(node: ir.Node, types: Types) -> bool:
    """Shapes that broadcast for certain. An operand that is read twice broadcasts with itself."""
    return broadcast_surely([types[value].shape for value in dict.fromkeys(node.inputs) if value is not None])


def broadcast_perhaps(shapes: Sequence[tuple[Dim, ...] | None]) -> bool:
    """Whether tensors of these shapes may broadcast: false if two extents are different numbers, neither of them 1.

    Source: ONNX, Broadcasting.
    """
    known = [shape for shape in shapes if shape is not None]
    columns = itertools.zip_longest(*(reversed(shape) for shape in known), fillvalue=1)
    return all(len({dim for dim in column if isinstance(dim, int) and dim != 1}) <= 1 for column in columns)


def broadcast_surely(shapes: Sequence[tuple[Dim, ...] | None]) -> bool:
    """Whether tensors of these shapes broadcast, whatever their symbols stand for.

    A symbol broadcasts with 1, itself, and what it and others broadcast to: against another one, or a number, it may
    stand for one that does not fit.
    """
    open_shapes = [shape for shape in shapes if shape is None or any(dim != 1 for dim in shape)]
    if len(open_shapes) <= 1:
        return True
    known = [shape for shape in open_shapes if shape is not None]
    return len(known) == len(open_shapes) and _axes_agree(known)


def _axes_agree(shapes: list[tuple[Dim, ...]]) -> bool:
    for axis in range(1, max(map(len, shapes)) + 1):
        extents = [shape[-axis] for shape in shapes if axis <= len(shape) and shape[-axis] != 1]
        if len(extents) > 1 and not any(all(broadcasts_into(x, widest) for x in extents) for widest in extents):
            return False
    return True


def _known_number(node: ir.Node, types: Types) -> TensorType | None:
    fact = types[node.inputs[0]]
    return None if fact.dtype in (None, ir.DataType.STRING) else fact


def _cast(node: ir.Node, types: Types, opset: int) -> bool:
    """Between numbers; a string may not spell one."""
    return _known_number(node, types) is not None and node.attributes.get_int("to", None) != ir.DataType.STRING


def _cast_like(node: ir.Node, types: Types, opset: int) -> bool:
    to = types[node.inputs[1]].dtype
    return _known_number(node, types) is not None and to not in (None, ir.DataType.STRING)


def _divides(node: ir.Node, types: Types, opset: int) -> bool:
    """Floats, or integers by a constant that is neither 0 nor -1."""
    if not _broadcasts(node, types):
        return False
    if types[node.inputs[0]].dtype in FLOATS:
        return node.op_type == "Div" or node.attributes.get_int("fmod", None) == 1
    divisor = constant(node.inputs[1], opset)
    return divisor is not None and divisor.dtype.kind in "iu" and not np.isin(divisor, (0, -1)).any()


def _power(node: ir.Node, types: Types, opset: int) -> bool:
    return types[node.inputs[0]].dtype in FLOATS and _broadcasts(node, types)


def _clip(node: ir.Node, types: Types, opset: int) -> bool:
    """Bounds are attributes, or scalars."""
    return all(types[bound].shape == () for bound in node.inputs[1:] if bound is not None)


def _unsqueeze(node: ir.Node, types: Types, opset: int) -> bool:
    axes, rank = known_axes(node, opset), types[node.inputs[0]].rank
    if not axes:
        return False
    return distinct_axes(axes, rank + len(axes), opset) if rank is not None else axes == [0]


def _squeeze(node: ir.Node, types: Types, opset: int) -> bool:
    axes, shape = known_axes(node, opset), types[node.inputs[0]].shape
    if axes == []:
        return True
    if axes is None or shape is None or not distinct_axes(axes, len(shape), opset):
        return False
    return all(shape[axis] == 1 for axis in axes)


def _reshape(node: ir.Node, types: Types, opset: int) -> bool:
    """To one axis longer than 1, or to constant extents with as many elements as the operand is known to have."""
    shape = constant(node.inputs[1], opset)
    if shape is None or shape.ndim != 1:
        return False
    if sorted(shape.tolist()) == [-1] + [1] * (len(shape) - 1):
        return True
    count = _element_count(types[node.inputs[0]])
    given = [int(extent) for extent in shape if extent != -1]
    if count is None or not all(extent > 0 for extent in given) or len(shape) - len(given) > 1:
        return False
    return math.prod(given) == count or (len(given) < len(shape) and count % math.prod(given) == 0)


def _element_count(fact: TensorType) -> int | None:
    if fact.shape is None:
        return None
    extents = [dim for dim in fact.shape if isinstance(dim, int)]
    return math.prod(extents) if len(extents) == len(fact.shape) else None


def _transpose(node: ir.Node, types: Types, opset: int) -> bool:
    perm, rank = node.attributes.get_ints("perm", None), types[node.inputs[0]].rank
    return perm is None or (rank is not None and sorted(perm) == list(range(rank)))


def _axis_in_range(node: ir.Node, types: Types, opset: int) -> bool:
    """Softmax and its kin, Flatten."""
    rank = types[node.inputs[0]].rank
    default = 1 if node.op_type == "Flatten" or opset < 13 else -1
    axis = node.attributes.get_int("axis", default)
    return rank is not None and in_range(axis, rank, opset)


def _concat(node: ir.Node, types: Types, opset: int) -> bool:
    """Same rank, and the same extents but along the axis."""
    shapes = _shapes(node, types)
    known = [shape for shape in shapes if shape is not None]
    ranks = {len(shape) for shape in known}
    if len(known) != len(node.inputs) or len(ranks) != 1 or "axis" not in node.attributes:
        return False
    rank, axis = ranks.pop(), node.attributes["axis"].as_int()
    if not in_range(axis, rank, opset):
        return False
    rest = {shape[: axis % rank] + shape[axis % rank + 1 :] for shape in known}
    return len(rest) == 1 and None not in rest.pop()


def _gather(node: ir.Node, types: Types, opset: int) -> bool:
    """Constant indices within a known extent."""
    shape, indices = types[node.inputs[0]].shape, constant(node.inputs[1], opset)
    axis = node.attributes.get_int("axis", 0)
    if shape is None or indices is None or not in_range(axis, len(shape), opset):
        return False
    extent = shape[axis]
    return isinstance(extent, int) and all(in_range(index, extent, opset) for index in indices.reshape(-1).tolist())


def _slice(node: ir.Node, types: Types, opset: int) -> bool:
    """Constant axes of a known rank and steps that move; starts and ends are cut to the extents."""
    if opset < 10:
        return False
    rank, starts, ends = types[node.inputs[0]].rank, types[node.inputs[1]].shape, types[node.inputs[2]].shape
    if rank is None or starts is None or starts != ends or len(starts) != 1 or not isinstance(starts[0], int):
        return False
    bounds = slice_bounds(node, opset, starts[0])
    if bounds.axes is None or bounds.steps is None or not len(bounds.axes) == len(bounds.steps) == starts[0]:
        return False
    return 0 not in bounds.steps and distinct_axes(bounds.axes, rank, opset)


def _split(node: ir.Node, types: Types, opset: int) -> bool:
    """Into parts that make up a known extent."""
    axis, shape = node.attributes.get_int("axis", 0), types[node.inputs[0]].shape
    extent = shape[axis] if shape is not None and in_range(axis, len(shape), opset) else None
    if not isinstance(extent, int):
        return False
    parts = constant_ints(node.inputs[1], opset) if len(node.inputs) > 1 else node.attributes.get_ints("split", None)
    if parts is None:
        return not node.inputs[1:] and extent % len(node.outputs) == 0
    return len(parts) == len(node.outputs) and min(parts) >= 0 and sum(parts) == extent


def _matmul(node: ir.Node, types: Types, opset: int) -> bool:
    """Two operands of rank 2 or more, with equal inner extents and outer axes that broadcast."""
    known = [shape for shape in _shapes(node, types) if shape is not None and len(shape) >= 2]
    if len(known) != 2 or node.op_type != "MatMul":
        return False
    left, right = known
    return (
        left[-1] is not None
        and left[-1] == right[-2]
        and (len(left) == len(right) == 2 or broadcast_surely([left[:-2], right[:-2]]))
    )


def _reduce(node: ir.Node, types: Types, opset: int) -> bool:
    """Over axes of a known shape without an empty one."""
    axes, fact = known_axes(node, opset), types[node.inputs[0]]
    count = _element_count(fact)
    return axes is not None and bool(count) and fact.shape is not None and distinct_axes(axes, len(fact.shape), opset)


def _expand(node: ir.Node, types: Types, opset: int) -> bool:
    """A known shape to constant extents with which it broadcasts."""
    shape, target = types[node.inputs[0]].shape, constant(node.inputs[1], opset)
    if shape is None or target is None or target.ndim != 1 or (target < 0).any():
        return False
    return broadcast_surely([shape, tuple(target.tolist())])


def _if(node: ir.Node, types: Types, opset: int) -> bool:
    """A condition of one element, and branches of nodes that can't fail."""
    return _element_count(types[node.inputs[0]]) == 1 and all(
        _all_total(branch, types, opset) for branch in subgraphs(node)
    )


def _all_total(graph: ir.Graph, types: Types, opset: int) -> bool:
    for node in graph:
        if not is_total(node, types, opset):
            return False
        for output, fact in zip(node.outputs, infer_node(node, types, opset), strict=True):
            types = types.with_value(output, fact)
    return True


RULES: dict[str, Rule] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Concat": _concat,
    "Div": _divides,
    "Expand": _expand,
    "Flatten": _axis_in_range,
    "Gather": _gather,
    "LogSoftmax": _axis_in_range,
    "MatMul": _matmul,
    "Mod": _divides,
    "Pow": _power,
    "ReduceProd": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _axis_in_range,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

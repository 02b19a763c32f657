"""Whether a node of a loop's body, computed for all iterations at once, has a result where there are none.

Then it works on stacks without rows. What fails by its values (an index out of range, a division by zero) fails no
more, since there are none; what fails by its shapes, or by a value that is the same in all iterations, does so though
the body never ran. Shapes are those of one element, as in the body. Source: as for `patterns.graph.speculatable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import Trait, has
from looplift.patterns.graph.own_nodes import initial, is_recurrence, series
from looplift.patterns.graph.shapes import broadcasts_into, entries
from looplift.patterns.graph.slices import distinct_axes, known_axes
from looplift.patterns.graph.speculatable import broadcast_surely, is_total
from looplift.patterns.graph.types import Dim, Types

SHAPES_ONLY = frozenset({"Cast", "CastLike", "Flatten", "Identity", "Reshape"})
"""No element, no failure: what reshapes a stack over time keeps its first extent, so that it is as empty after it."""

WIDENED = frozenset({"TopK"})
"""What would fail of too few entries gets enough of them where there is no row (`passes.vectorize.axes`)."""

Shape = tuple[Dim, ...]
Rule = Callable[[ir.Node, Types, int], bool]


def fits_without_rows(node: ir.Node, types: Types, opset: int, varies: Callable[[ir.Value], bool]) -> bool:
    """Whether the node, over time, can't fail if no iteration runs.

    Args:
        node: of the body.
        types: of the body's values.
        opset: of the default domain.
        varies: whether a body value may differ between iterations.
    """
    if node.op_type in SHAPES_ONLY | WIDENED or is_total(node, types, opset):
        return True
    if has(node, Trait.BROADCASTS):
        return broadcast_surely([types[value].shape for value in dict.fromkeys(node.inputs) if value is not None])
    if node.op_type == "Gather" and node.inputs[1] is not None and varies(node.inputs[1]):
        return True
    if is_recurrence(node):
        state, steps = types[initial(node)].shape, series(node)
        read = {k: types[node.inputs[k]].shape for k in steps}
        elements = [None if shape is None else shape[int(steps[k]) :] for k, shape in read.items()]
        return all(expands_surely(element, state) for element in elements)
    rule = RULES.get(node.op_type)
    return rule is not None and rule(node, types, opset)


def expands_surely(shape: Sequence[Dim] | None, to: Sequence[Dim] | None) -> bool:
    """Whether a tensor of the first shape expands to the second one, for certain."""
    if shape is None or to is None or len(shape) > len(to):
        return False
    return all(broadcasts_into(x, y) for x, y in zip(reversed(shape), reversed(to), strict=False))


def _axis(node: ir.Node, types: Types, default: int) -> int | None:
    """The `axis` attribute, counted from the front; None where it is not known to be one of the first input's."""
    rank, axis = types[node.inputs[0]].rank, node.attributes.get_int("axis", default)
    return axis % rank if rank and -rank <= axis < rank else None


def _prelu(node: ir.Node, types: Types, opset: int) -> bool:
    return expands_surely(types[node.inputs[1]].shape, types[node.inputs[0]].shape)


def _gather_elements(node: ir.Node, types: Types, opset: int) -> bool:
    """Both have the same extents but along the axis."""
    data, indices, axis = types[node.inputs[0]].shape, types[node.inputs[1]].shape, _axis(node, types, 0)
    if data is None or indices is None or axis is None or len(data) != len(indices):
        return False
    return all(k == axis or (x is not None and x == y) for k, (x, y) in enumerate(zip(data, indices, strict=True)))


def _slice(node: ir.Node, types: Types, opset: int) -> bool:
    """Before opset 10: axes that there are."""
    rank, starts = types[node.inputs[0]].rank, node.attributes.get_ints("starts", None)
    if rank is None or starts is None:
        return False
    axes = known_axes(node, opset) or list(range(len(starts)))
    return distinct_axes(axes, rank, opset)


def _expand(node: ir.Node, types: Types, opset: int) -> bool:
    """To extents that are known, each the same as before or either of them 1."""
    shape, target = types[node.inputs[0]].shape, entries(node.inputs[1], lambda value: types[value].shape, opset)
    positive = target is not None and all(not isinstance(dim, int) or dim >= 0 for dim in target)
    return shape is not None and target is not None and positive and broadcast_surely([shape, tuple(target)])


def _tile(node: ir.Node, types: Types, opset: int) -> bool:
    repeats = constant(node.inputs[1], opset)
    return repeats is not None and repeats.shape == (types[node.inputs[0]].rank,) and bool((repeats >= 0).all())


def _pad(node: ir.Node, types: Types, opset: int) -> bool:
    """By constants, and nothing is taken away."""
    pads, rank = constant(node.inputs[1], opset) if len(node.inputs) > 1 else None, types[node.inputs[0]].rank
    mode = node.attributes.get_string("mode", "constant")
    if pads is None or rank is None or pads.shape != (2 * rank,) or mode != "constant":
        return False
    return bool((pads >= 0).all()) and all(types[value].shape == () for value in node.inputs[2:] if value is not None)


def _reduce(node: ir.Node, types: Types, opset: int) -> bool:
    """Over axes that there are and that are not empty."""
    axes, shape = known_axes(node, opset), types[node.inputs[0]].shape
    if axes is None or shape is None or not distinct_axes(axes, len(shape), opset):
        return False
    return all(isinstance(dim, int) and dim > 0 for k, dim in enumerate(shape) if not axes or _in(k, axes, len(shape)))


def _in(axis: int, axes: Sequence[int], rank: int) -> bool:
    return any(axis == one % rank for one in axes)


def _along(default: int, *, filled: bool) -> Rule:
    """One axis, which is there; `filled`: and not empty."""

    def rule(node: ir.Node, types: Types, opset: int) -> bool:
        axis, shape = _axis(node, types, default), types[node.inputs[0]].shape
        extent = shape[axis] if shape is not None and axis is not None else None
        return axis is not None and (not filled or (isinstance(extent, int) and extent > 0))

    return rule


def _cumulative(node: ir.Node, types: Types, opset: int) -> bool:
    axis, rank = constant(node.inputs[1], opset), types[node.inputs[0]].rank
    return axis is not None and axis.size == 1 and rank is not None and -rank <= axis.item() < rank


def _matmul(node: ir.Node, types: Types, opset: int) -> bool:
    """Vectors are matrices of one row or column."""
    shapes = [types[value].shape for value in node.inputs]
    left, right = (shape or () for shape in shapes)
    if not left or not right:
        return False
    inner = right[-2] if len(right) > 1 else right[-1]
    return left[-1] is not None and left[-1] == inner and broadcast_surely([left[:-2], right[:-2]])


def _gemm(node: ir.Node, types: Types, opset: int) -> bool:
    left, right = (types[value].shape for value in node.inputs[:2])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if left is None or right is None or len(left) != 2 or len(right) != 2:
        return False
    if node.attributes.get_int("transA", 0):
        left = left[::-1]
    if node.attributes.get_int("transB", 0):
        right = right[::-1]
    fits = left[1] is not None and left[1] == right[0]
    return fits and (bias is None or expands_surely(types[bias].shape, (left[0], right[1])))


def _einsum(node: ir.Node, types: Types, opset: int) -> bool:
    """A letter stands for one extent, wherever it is found."""
    terms = node.attributes["equation"].as_string().replace(" ", "").split("->")[0].split(",")
    extents: dict[str, Dim] = {}
    for letters, value in zip(terms, node.inputs, strict=True):
        shape = types[value].shape
        if shape is None or len(shape) != len(letters):
            return False
        if any(
            dim is None or extents.setdefault(letter, dim) != dim for letter, dim in zip(letters, shape, strict=True)
        ):
            return False
    return True


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
        "ReduceSumSquare".split(),
        _reduce,
    ),
    "ArgMax": _along(0, filled=True),
    "ArgMin": _along(0, filled=True),
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "Expand": _expand,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "Hardmax": _along(-1, filled=True),
    "MatMul": _matmul,
    "PRelu": _prelu,
    "Pad": _pad,
    "Slice": _slice,
    "Tile": _tile,
}
"""Ops that fail by their shapes, beside those that can't fail at all."""

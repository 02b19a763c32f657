"""Shapes that a graph computes with: the numbers in a tensor made from Shape, Gather, Slice, Concat and constants."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import onnx_ir as ir

from looplift.patterns.graph.constants import INT64_MAX, INT64_MIN, constant, scalar, shape_part
from looplift.patterns.graph.operators import Trait, has, has_references, is_standard
from looplift.patterns.graph.slices import slice_bounds

Dim = int | str | None
"""An extent: known, a symbol (equal symbols are equal extents), or unknown."""

Dims = tuple[Dim, ...]
ShapeOf = Callable[[ir.Value], "Dims | None"]
Seen = dict[int, "Dims | None"]

MOST = 4096
"""Entries of a tensor of extents."""

PRIVATE = "#"
"""Marks a symbol that is not the model's: of an extent with no name, or of what others broadcast to."""

JOINT = f"{PRIVATE}|"
"""Stands between the symbols in the symbol of what they broadcast to."""

MOST_JOINT = 16
"""Symbols in one."""


def parts(dim: str) -> frozenset[str]:
    """The symbols that broadcast to this extent, each of which is 1 or this extent: itself, if it is no joint one."""
    return frozenset(dim.split(JOINT))


def is_public(dim: Dim) -> bool:
    """Whether an extent may be written into a model: known, or a symbol that the model itself uses."""
    return isinstance(dim, int) or (dim is not None and PRIVATE not in dim)


def spoken(dim: Dim) -> str:
    """An extent for people: one without a name as ``'value:axis'``, one that others broadcast to by all of these."""
    if dim is None or isinstance(dim, int):
        return "?" if dim is None else str(dim)
    return "|".join(repr(_UNNAMED.sub(r":\2", part)) for part in sorted(parts(dim)))


_UNNAMED = re.compile(rf"{PRIVATE}(\d+\.)?(\d+){PRIVATE}*$")
"""How the name of an extent without a name ends: perhaps with a number, and with the axis."""


def advice(shapes: Sequence[Dims | None]) -> str:
    """Which extents would have to be equal for these to be one shape, and what a person can do about it, in words.

    Empty where extents are not known, or can't be the same.
    """
    known = [shape for shape in shapes if shape is not None]
    axes = list(itertools.zip_longest(*(reversed(shape) for shape in known), fillvalue=1))
    if len(known) < len(shapes) or any(None in axis for axis in axes):
        return ""
    groups = dict.fromkeys(_different(axis) for axis in axes)
    unequal = [group for group in groups if len(group) > 1]
    if not unequal or any(sum(isinstance(dim, int) for dim in group) > 1 for group in unequal):
        return ""
    words = "; ".join(" and ".join(map(spoken, group)) for group in unequal)
    return f": {words} would have to be equal{remedy(unequal)}"


def remedy(groups: Sequence[Dims]) -> str:
    """What a person can do so that the extents of each group are equal: empty where one of them is no input's."""
    if any(isinstance(dim, str) and _MADE_UP.search(dim) for group in groups for dim in group):
        return ""
    options = [_option(group[0], dim) for group in groups for dim in group[1:]]
    return f": name these dims alike when exporting, or give {' '.join(options)}"


def _different(axis: Sequence[Dim]) -> Dims:
    """The extents of an axis, each once, joint ones taken apart; a number first."""
    single = {part for dim in axis for part in (parts(dim) if isinstance(dim, str) else {dim})} - {1, None}
    return tuple(sorted(single, key=lambda dim: (isinstance(dim, str), str(dim))))


def _option(one: Dim, other: Dim) -> str:
    """How a person says that two extents are equal, the second of which is no number."""
    name = spoken(other)[1:-1]
    return f"--dim {name}={one}" if isinstance(one, int) else f"--same-dim {spoken(one)[1:-1]}={name}"


_MADE_UP = re.compile(rf"{PRIVATE}\d+\.\d+{PRIVATE}*$")
"""The end of a name for an extent that is no input's."""


def broadcasts_into(dim: Dim, to: Dim) -> bool:
    """Whether an extent is, for certain, 1 or the other one.

    That one is the extent of a tensor that is there, so what it was made of by broadcasting did broadcast.
    """
    if dim == 1 or (dim is not None and dim == to):
        return True
    return isinstance(dim, str) and isinstance(to, str) and parts(dim) <= parts(to)


def entries(
    value: ir.Value | None, shape_of: ShapeOf, opset: int, depth: int = 0, seen: Seen | None = None
) -> Dims | None:
    """The entries of an integer tensor, flattened: numbers, symbols of extents, None for an unknown entry.

    Args:
        value: a tensor of rank 0 or 1 that holds extents, such as the second input of Expand.
        shape_of: the known shape of a value.
        opset: version of the default domain.
        depth: how far the search has come.
        seen: what it has found: ways through a graph may be exponentially many.

    Returns:
        One entry per element, or None if not even their number is known, or there are more than `MOST`.
    """
    if value is None or depth > 32:
        return None
    seen = {} if seen is None else seen
    if id(value) not in seen:
        found = _entries(value, shape_of, opset, depth, seen)
        seen[id(value)] = None if found is not None and len(found) > MOST else found
    return seen[id(value)]


def _entries(value: ir.Value, shape_of: ShapeOf, opset: int, depth: int, seen: Seen) -> Dims | None:
    array = constant(value, opset)
    if array is not None:
        return tuple(int(x) for x in array.reshape(-1)) if array.dtype.kind in "iu" else None
    node = value.producer()
    if is_standard(node) and not has_references(node):
        found = _computed(node, shape_of, opset, depth, seen)
        if found is not None:
            return found
    count = shape_of(value)
    return (None,) if count in ((), (1,)) else None


def _computed(node: ir.Node, shape_of: ShapeOf, opset: int, depth: int, seen: Seen) -> Dims | None:
    def inner(k: int) -> Dims | None:
        return entries(node.inputs[k], shape_of, opset, depth + 1, seen) if k < len(node.inputs) else None

    if node.op_type == "Shape" and node.inputs[0] is not None:
        shape = shape_of(node.inputs[0])
        return None if shape is None else shape[shape_part(node)]
    if has(node, Trait.RESHAPES):
        return inner(0)
    if node.op_type == "Cast" and node.attributes.get_int("to", None) in (ir.DataType.INT64, ir.DataType.INT32):
        return inner(0)  # TensorFlow computes with int32, so that no extent is as large as 2^31
    if node.op_type == "Concat":
        parts = [inner(k) for k in range(len(node.inputs))]
        return None if None in parts else tuple(dim for part in parts if part is not None for dim in part)
    if node.op_type in ("Gather", "Slice"):
        whole = inner(0)
        return None if whole is None else (_gathered if node.op_type == "Gather" else _sliced)(node, whole, opset)
    if node.op_type == "ConstantOfShape":
        return _repeated(node, inner(0))
    if node.op_type == "Mul":
        return _elementwise(
            lambda x, y: x * y if isinstance(x, int) and isinstance(y, int) else None, inner(0), inner(1)
        )
    if node.op_type == "Where" and node.inputs[0] is not None:
        return _chosen(equal_entries(node.inputs[0], shape_of, opset, depth, seen), inner(1), inner(2))
    return None


def _repeated(node: ir.Node, shape: Dims | None) -> Dims | None:
    """One number, as many times as the shape of a vector says."""
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or not 0 <= shape[0] <= 32:
        return None
    value = node.attributes.get_tensor("value", None)  # else a float
    fill = None if value is None else value.numpy()
    return (int(fill.reshape(-1)[0]),) * shape[0] if fill is not None and fill.dtype.kind in "iu" else None


def _elementwise(op: Callable[[Dim, Dim], Dim], left: Dims | None, right: Dims | None) -> Dims | None:
    """Entry by entry, one entry against all."""
    if left is None or right is None or (len(left) != len(right) and 1 not in (len(left), len(right))):
        return None
    count = max(len(left), len(right)) if 0 not in (len(left), len(right)) else 0
    pairs = zip(left * count if len(left) == 1 else left, right * count if len(right) == 1 else right, strict=False)
    return tuple(op(x, y) for x, y in pairs)


def equal_entries(
    condition: ir.Value | None, shape_of: ShapeOf, opset: int, depth: int = 0, seen: Seen | None = None
) -> tuple[bool | None, ...] | None:
    """What an Equal of two tensors of extents says, entry by entry; None for an entry where that is not known."""
    node = condition.producer() if condition is not None else None
    if not is_standard(node, "Equal"):
        return None
    left, right = (entries(value, shape_of, opset, depth + 1, seen) for value in node.inputs)
    answers = _elementwise(lambda x, y: {True: 1, False: 0, None: None}[_equal(x, y)], left, right)
    return None if answers is None else tuple(None if answer is None else answer == 1 for answer in answers)


def _equal(left: Dim, right: Dim) -> bool | None:
    if left is not None and left == right:
        return True
    if isinstance(left, int) and isinstance(right, int):
        return False
    number = left if isinstance(left, int) else right
    # An extent, which a symbol stands for, is never negative.
    return False if isinstance(number, int) and number < 0 and None not in (left, right) else None


def _chosen(condition: tuple[bool | None, ...] | None, left: Dims | None, right: Dims | None) -> Dims | None:
    if condition is None or left is None or right is None or not len(condition) == len(left) == len(right):
        return None
    triples = zip(condition, left, right, strict=True)
    return tuple(x if answer or x == y else y if answer is False else None for answer, x, y in triples)


def range_extent(node: ir.Node, shape_of: ShapeOf, opset: int) -> Dim:
    """How many numbers a Range from 0 by 1 makes, if its limit is an extent."""
    if [scalar(node.inputs[k], opset) for k in (0, 2)] != [0, 1]:
        return None
    limit = entries(node.inputs[1], shape_of, opset)
    dim = limit[0] if limit is not None and len(limit) == 1 else None
    return max(dim, 0) if isinstance(dim, int) else dim


def sliced_shape(node: ir.Node, shape: Dims | None, opset: int) -> Dims | None:
    """The result's shape of Slice. ONNX's inference keeps the symbols of axes that are cut before opset 11."""
    if shape is None:
        return None
    bounds = slice_bounds(node, opset)
    axes, dims = bounds.axes, list(shape)
    if axes is None or not all(-len(shape) <= axis < len(shape) for axis in axes):
        return (None,) * len(shape)
    cuts = {axis: (start, end, step) for start, end, axis, step in bounds.each() or ()}
    for axis in axes:
        dims[axis] = _left_of(dims[axis], cuts.get(axis))
    return tuple(dims)


def _left_of(extent: Dim, bound: tuple[int, int, int] | None) -> Dim:
    """What a slice from start to end by step leaves of an axis."""
    if bound in WHOLE:
        return extent
    if not isinstance(extent, int) or bound is None or bound[2] == 0:
        return None
    start, end, step = bound
    if step < 0 and start < -extent:
        return None  # engines disagree: numpy takes nothing, ONNX Runtime the first element
    return len(range(*slice(start, end, step).indices(extent)))


WHOLE = frozenset({(0, INT64_MAX, 1), (-1, INT64_MIN, -1), (-1, INT64_MIN + 1, -1)})
"""Start, end and step of slices that take an axis whole, whatever its extent."""


def _gathered(node: ir.Node, whole: Dims, opset: int) -> Dims | None:
    index = constant(node.inputs[1], opset)
    if index is None or not all(-len(whole) <= k < len(whole) for k in index.reshape(-1)):
        return None
    return tuple(whole[int(k)] for k in index.reshape(-1))


def _sliced(node: ir.Node, whole: Dims, opset: int) -> Dims | None:
    cuts = slice_bounds(node, opset).each()
    if cuts is None or len(cuts) != 1:
        return None
    start, end, _, step = cuts[0]
    return whole[start:end:step] if step > 0 else None


def expanded(shape: Dims | None, target: Dims | None) -> Dims | None:
    """The result's shape of Expand: both broadcast together."""
    if shape is None or target is None:
        return None
    return broadcast([shape, target])


def broadcast(shapes: Sequence[Dims]) -> Dims:
    """The shape to which these broadcast, if they do."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(functools.reduce(_broadcast, dims) for dims in zip(*padded, strict=True))


def broadcast_to(found: Dims | None, shapes: Sequence[Dims | None]) -> Dims | None:
    """The shape that ONNX's inference found of what these broadcast to: it has no name for extents of several names."""
    known = [shape for shape in shapes if shape is not None]
    if found is None or None not in found or len(known) < len(shapes):
        return found
    joint = broadcast(known)
    pairs = zip(found, joint, strict=False)
    return tuple(y if x is None else x for x, y in pairs) if len(joint) == len(found) else found


def _broadcast(left: Dim, right: Dim) -> Dim:
    if left == right:
        return left
    if left == 1 or right == 1:
        return right if left == 1 else left
    if isinstance(left, str) and isinstance(right, str):
        both = parts(left) | parts(right)
        return JOINT.join(sorted(both)) if len(both) <= MOST_JOINT else None
    # Extents that differ and go together: the one that is known not to be 1 is the result.
    known = [dim for dim in (left, right) if isinstance(dim, int)]
    return known[0] if len(known) == 1 else None


def reshaped(shape: Dims | None, target: Dims | None, *, allow_zero: bool) -> Dims | None:
    """The result's shape of Reshape: 0 copies an extent (unless `allow_zero`), one -1 takes what is left."""
    if target is None:
        return None
    dims: list[Dim] = []
    for axis, dim in enumerate(target):
        if dim == 0 and not allow_zero:
            dims.append(shape[axis] if shape is not None and axis < len(shape) else None)
        elif isinstance(dim, str) and not allow_zero and (shape is None or (axis < len(shape) and shape[axis] != dim)):
            # A symbol may stand for zero, which copies; past the last axis there is nothing to copy, and it fails.
            dims.append(None)
        else:
            dims.append(dim)
    if target.count(-1) == 0 and dims.count(None) == 1 and shape is not None:
        numbers = tuple(dim for dim in dims if dim is not None)  # the only one that is not known follows from the rest
        return (
            tuple(_quotient(shape, numbers) if dim is None else dim for dim in dims) if _plain(numbers) else tuple(dims)
        )
    if target.count(-1) != 1 or shape is None:
        return tuple(None if dim == -1 else dim for dim in dims)
    inferred = _quotient(shape, tuple(dim for dim in dims if dim != -1))
    return tuple(inferred if dim == -1 else dim for dim in dims)


def _plain(dims: Dims) -> bool:
    return all(isinstance(dim, int) and dim > 0 for dim in dims)


def _quotient(shape: Dims, rest: Dims) -> Dim:
    """The extent that makes up for the rest. Where the rest is zero there is none, and Reshape fails."""
    if None in shape or None in rest:
        return None
    over = Counter(dim for dim in shape if isinstance(dim, str))
    under = Counter(dim for dim in rest if isinstance(dim, str))
    left = list((over - under).elements())
    total, divisor = (math.prod(dim for dim in dims if isinstance(dim, int)) for dims in (shape, rest))
    if under - over or len(left) > 1 or divisor == 0:
        return None
    if not left:
        return total // divisor
    return left[0] if total == divisor else None

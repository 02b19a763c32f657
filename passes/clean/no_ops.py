"""Ops that copy one of their inputs: what they copy, bit for bit, or None if that is not certain.

One small rule per operator. Bits: `x * 1` and `x / 1` are x for every number; `x + 0` is not, as -0 + 0 is +0, but
`x + -0` and `x - 0` are. A NaN stays a NaN (a signalling one may come out quiet, as from any op).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift.patterns.graph.constants import INT64_MAX, constant
from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.slices import known_axes, slice_bounds
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import maker

D = ir.DataType
Array = np.ndarray[Any, Any]

_FLOATS = frozenset({D.FLOAT, D.DOUBLE})
_SMALL = _FLOATS | {D.FLOAT16, D.BFLOAT16}

HOLDS = {
    D.BOOL: _SMALL | {D.INT8, D.INT16, D.INT32, D.INT64, D.UINT8, D.UINT16, D.UINT32, D.UINT64},
    D.INT8: _SMALL | {D.INT16, D.INT32, D.INT64},
    D.INT16: _FLOATS | {D.INT32, D.INT64},
    D.INT32: frozenset({D.INT64, D.DOUBLE}),
    D.UINT8: _SMALL | {D.UINT16, D.UINT32, D.UINT64, D.INT16, D.INT32, D.INT64},
    D.UINT16: _FLOATS | {D.UINT32, D.UINT64, D.INT32, D.INT64},
    D.UINT32: frozenset({D.UINT64, D.INT64, D.DOUBLE}),
    D.FLOAT16: _FLOATS,
    D.BFLOAT16: _FLOATS,
    D.FLOAT: frozenset({D.DOUBLE}),
}
"""Types that hold every value of a type, so that a Cast there and back changes nothing.

Not only tidy: ONNX Runtime takes such pairs out, and then misses the value where only the body of a loop reads it.
"""


@dataclasses.dataclass(frozen=True)
class Site:
    """A node with what is known around it."""

    node: ir.Node
    types: Types
    opset: int

    def input(self, k: int) -> ir.Value | None:
        """The k-th input, or None if it is left out."""
        return self.node.inputs[k] if k < len(self.node.inputs) else None

    def before(self, value: ir.Value | None, op_type: str) -> Site | None:
        """The node that makes a value, if it is of this type."""
        node = maker(value, op_type)
        return None if node is None else Site(node, self.types, self.opset)

    def keeps_shape_of(self, value: ir.Value | None) -> bool:
        """Whether the result has, for certain, the shape of this input."""
        return self.types[value].same_shape(self.types[self.node.outputs[0]])

    def broadcasts_into(self, array: Array, value: ir.Value | None) -> bool:
        """Whether an elementwise op of the value and a constant has the shape of the value."""
        rank = self.types[value].rank
        small = array.size == 1 and (array.ndim == 0 or (rank is not None and array.ndim <= rank))
        return small or self.keeps_shape_of(value)


Rule = Callable[[Site], "ir.Value | None"]


def copied_value(node: ir.Node, types: Types, opset: int) -> ir.Value | None:
    """The input whose value the node's first output has, bit for bit and in shape, or None."""
    rule = RULES.get(node.op_type) if is_standard(node) else None
    if rule is None or has_references(node):
        return None
    return rule(Site(node, types, opset))


def _identity(site: Site) -> ir.Value | None:
    return site.input(0)


def _cast(site: Site) -> ir.Value | None:
    value = site.input(0)
    to = ir.DataType(site.node.attributes.get_int("to", 0))
    if site.types[value].dtype == to:
        return value
    first = site.before(value, "Cast")
    origin = first.input(0) if first is not None else None
    wide = site.types[value].dtype
    return origin if site.types[origin].dtype == to and wide in HOLDS.get(to, ()) else None


def _cast_like(site: Site) -> ir.Value | None:
    dtype = site.types[site.input(0)].dtype
    return site.input(0) if dtype is not None and dtype == site.types[site.input(1)].dtype else None


def _twice(site: Site) -> ir.Value | None:
    """Neg of Neg, Not of Not: exact, also for the integer without a counterpart."""
    first = site.before(site.input(0), site.node.op_type)
    return first.input(0) if first is not None else None


def _same_shape(site: Site) -> ir.Value | None:
    return site.input(0) if site.keeps_shape_of(site.input(0)) else None


def _slice(site: Site) -> ir.Value | None:
    cuts = slice_bounds(site.node, site.opset).each()
    if cuts is None or any((start, step) != (0, 1) for start, _, _, step in cuts):
        return None
    whole = all(end == INT64_MAX for _, end, _, _ in cuts)
    return site.input(0) if whole or site.keeps_shape_of(site.input(0)) else None


def _gather(site: Site) -> ir.Value | None:
    """All rows, in order."""
    shape, indices = site.types[site.input(0)].shape, constant(site.input(1), site.opset)
    axis = site.node.attributes.get_int("axis", 0)
    if shape is None or indices is None or not -len(shape) <= axis < len(shape):
        return None
    extent = shape[axis]
    every_row = indices.shape == (extent,) and np.array_equal(indices, np.arange(indices.size))
    return site.input(0) if every_row else None


def _transpose(site: Site) -> ir.Value | None:
    perm = site.node.attributes.get_ints("perm", None)
    if perm is None:
        return None
    if list(perm) == list(range(len(perm))):
        return site.input(0)
    first = site.before(site.input(0), "Transpose")
    inner = first.node.attributes.get_ints("perm", None) if first is not None else None
    if first is None or inner is None or [inner[axis] for axis in perm] != list(range(len(perm))):
        return None
    return first.input(0)


def _squeeze(site: Site) -> ir.Value | None:
    first = site.before(site.input(0), "Unsqueeze")
    return first.input(0) if first is not None and _axes(site) == _axes(first) is not None else None


def _unsqueeze(site: Site) -> ir.Value | None:
    """Of Squeeze, where that can't fail: the extents are known to be 1."""
    first = site.before(site.input(0), "Squeeze")
    axes, shape = _axes(site), site.types[first.input(0)].shape if first is not None else None
    if first is None or axes is None or axes != _axes(first) or shape is None:
        return None
    fits = all(-len(shape) <= axis < len(shape) and shape[axis] == 1 for axis in axes)
    return first.input(0) if fits else None


def _axes(site: Site) -> list[int] | None:
    axes = known_axes(site.node, site.opset)
    return sorted(axes) if axes else None


def _single(site: Site) -> ir.Value | None:
    """A variadic op of one input."""
    return site.input(0) if len(site.node.inputs) == 1 else None


def _without(neutral: Callable[[Array], bool], *, left: bool) -> Rule:
    """A binary op one of whose inputs is a constant that changes nothing; `left`: also as the first input."""

    def rule(site: Site) -> ir.Value | None:
        for kept, other in ((0, 1), (1, 0))[: 2 if left else 1]:
            array = constant(site.input(other), site.opset) if len(site.node.inputs) == 2 else None
            if array is not None and neutral(array) and site.broadcasts_into(array, site.input(kept)):
                return site.input(kept)
        return None

    return rule


def _absorbed(absorbs: Callable[[Array], bool]) -> Rule:
    """A binary op one of whose inputs is a constant that settles the result."""

    def rule(site: Site) -> ir.Value | None:
        for value in site.node.inputs:
            array = constant(value, site.opset)
            if array is not None and absorbs(array) and site.keeps_shape_of(value):
                return value
        return None

    return rule


def _either(*rules: Rule) -> Rule:
    """The first of several rules that applies."""
    return lambda site: next((value for rule in rules if (value := rule(site)) is not None), None)


def _ones(array: Array) -> bool:
    return array.dtype.kind in "iuf" and bool((array == 1).all())


def _added_zero(array: Array) -> bool:
    zeros = array.dtype.kind in "iuf" and bool((array == 0).all())
    return zeros and (array.dtype.kind in "iu" or bool(np.signbit(array).all()))


def _subtracted_zero(array: Array) -> bool:
    zeros = array.dtype.kind in "iuf" and bool((array == 0).all())
    return zeros and (array.dtype.kind in "iu" or not bool(np.signbit(array).any()))


def _true(array: Array) -> bool:
    return array.dtype.kind == "b" and bool(array.all())


def _false(array: Array) -> bool:
    return array.dtype.kind == "b" and not bool(array.any())


def _where(site: Site) -> ir.Value | None:
    condition = constant(site.input(0), site.opset)
    if condition is None or condition.dtype.kind != "b" or not (condition.all() or not condition.any()):
        return None
    taken = site.input(1 if condition.all() else 2)
    return taken if condition.size and site.keeps_shape_of(taken) else None


def _dropout(site: Site) -> ir.Value | None:
    """Outside training, with the mask unread. Before opset 7 an attribute tells, which is training by default."""
    training = site.input(2)
    if site.opset < 7:
        return None
    if len(site.node.outputs) > 1 and (site.node.outputs[1].uses() or site.node.outputs[1].is_graph_output()):
        return None
    inference = training is None if site.opset >= 12 else True
    array = constant(training, site.opset) if training is not None else None
    return site.input(0) if inference or (array is not None and not array.any()) else None


RULES: dict[str, Rule] = {
    "Add": _without(_added_zero, left=True),
    "And": _either(_without(_true, left=True), _absorbed(_false)),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _single,
    "Div": _without(_ones, left=False),
    "Dropout": _dropout,
    "Expand": _same_shape,
    "Flatten": _same_shape,
    "Gather": _gather,
    "Identity": _identity,
    "Max": _single,
    "Min": _single,
    "Mul": _without(_ones, left=True),
    "Neg": _twice,
    "Not": _twice,
    "Or": _either(_without(_false, left=True), _absorbed(_true)),
    "Reshape": _same_shape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _without(_subtracted_zero, left=False),
    "Sum": _single,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _without(_false, left=True),
}

"""Which axes an operator names, and where a Slice cuts: read from attributes or inputs, whichever the opset has.

Source: Slice (1, 10, 11, 13), Squeeze, Unsqueeze and Reduce* (1, 11, 13, 18) of the ONNX operator specification.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from looplift.patterns.graph.constants import constant

BOUNDS_AS_INPUTS_FROM = 10
"""Slice has steps, and takes its bounds as inputs, from this opset on."""

NEGATIVE_FROM = 11
"""Negative indices and axes count from the end, from this opset on."""


def constant_ints(value: ir.Value | None, opset: int) -> list[int] | None:
    """The integers of a constant of at most one axis; None for any other value."""
    array = constant(value, opset)
    return None if array is None or array.ndim > 1 or array.dtype.kind not in "iu" else array.reshape(-1).tolist()


def known_axes(node: ir.Node, opset: int, position: int = 1) -> list[int] | None:
    """The axes, an attribute or a constant input; empty if left out, None if not known."""
    if "axes" in node.attributes:
        return _listed(node, "axes")
    given = node.inputs[position] if len(node.inputs) > position else None
    return [] if given is None else constant_ints(given, opset)


def in_range(index: int, extent: int, opset: int) -> bool:
    """Whether an index, or an axis, is one of so many."""
    return (0 if opset < NEGATIVE_FROM else -extent) <= index < extent


def distinct_axes(axes: Sequence[int], rank: int, opset: int) -> bool:
    """Whether these are axes of a tensor of this rank, none named twice."""
    return all(in_range(axis, rank, opset) for axis in axes) and len({axis % rank for axis in axes}) == len(axes)


def _listed(node: ir.Node, name: str) -> list[int] | None:
    given = node.attributes.get_ints(name, None)
    return None if given is None else list(given)


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Where a Slice cuts: a number for each axis that it names; None for what is not constant."""

    starts: list[int] | None
    ends: list[int] | None
    axes: list[int] | None
    steps: list[int] | None

    def each(self) -> list[tuple[int, int, int, int]] | None:
        """Start, end, axis and step of each axis; None if not all of them are known."""
        known = [part for part in (self.starts, self.ends, self.axes, self.steps) if part is not None]
        if len(known) < 4 or len(set(map(len, known))) > 1:
            return None
        return list(zip(*known, strict=True))


def slice_bounds(node: ir.Node, opset: int, count: int | None = None) -> Bounds:
    """The bounds of a Slice; axes that are left out are the first ones, steps 1.

    Args:
        node: a Slice.
        opset: of the default domain.
        count: how many axes are cut, if that is known otherwise than by constant starts.
    """
    if opset < BOUNDS_AS_INPUTS_FROM:
        starts, ends, axes = (_listed(node, name) for name in ("starts", "ends", "axes"))
        left_out, no_steps, steps = axes is None, True, None
    else:
        given = [*node.inputs[1:], None, None, None, None][:4]
        starts, ends, axes, steps = (constant_ints(value, opset) for value in given)
        left_out, no_steps = given[2] is None, given[3] is None
    count = len(starts) if starts is not None else count
    if left_out and count is not None:
        axes = list(range(count))
    if no_steps and axes is not None:
        steps = [1] * len(axes)
    return Bounds(starts, ends, axes, steps)

"""Slices of several axes at once become slices of one axis each, so that a row that is read by a counter shows."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.body_types import types_around
from looplift.passes.emit import INT64_MAX, Emitter
from looplift.passes.journal import Journal
from looplift.passes.surgery import replace_value
from looplift.passes.walk import Place, sweep_loops
from looplift.patterns.constants import constant
from looplift.patterns.dependence import Dependence
from looplift.patterns.types import Dim, Types
from looplift.patterns.values import defined_in
from looplift.patterns.view import View

OLDEST = 10
"""Opset from which Slice reads its bounds from inputs."""

Entry = int | ir.Value
"""One bound: a number, or a body value of shape [1]."""


@dataclasses.dataclass(frozen=True)
class SplitSlices:
    """Rewrites ``x[i : i + 1, 0 : 4]`` as ``x[:, 0 : 4][i : i + 1]`` in the bodies of loops.

    Legal, since Slice cuts each axis by itself and clamps its bounds to that axis alone, if
    1. the axes are constants, and different ones;
    2. there are no steps, or constant ones;
    3. every start and end can be told apart: a constant, or a [1] part of a Concat, of a sum or a Cast of such.

    Axes that are left whole are not cut at all. Preserves bits: values are only read.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Splits the slices of the model in place; whether there were any."""
        del journal

        def visit(view: View, place: Place) -> bool:
            return place.opset >= OLDEST and _split_in(view, types_around(model, view.node))

        return sweep_loops(model, visit)


@dataclasses.dataclass(frozen=True)
class _Cut:
    axis: int
    start: Entry
    end: Entry
    step: int

    @property
    def fixed(self) -> bool:
        return isinstance(self.start, int) and isinstance(self.end, int)

    def whole(self, shape: tuple[Dim, ...]) -> bool:
        """Whether the axis is left as it is."""
        extent = shape[self.axis]
        past = isinstance(self.end, int) and (self.end == INT64_MAX or (isinstance(extent, int) and self.end >= extent))
        return past and self.start == 0 and self.step == 1


def _split_in(view: View, outer: Types) -> bool:
    types = outer.with_body(view)
    dependence = Dependence(view, types)
    changed = False
    for node in list(view.body):
        if node.op_type == "Slice" and node.domain in ("", "ai.onnx"):
            changed |= any(x is not None and not dependence.invariant(x) for x in node.inputs[1:3]) and _split(
                node, view, types
            )
    return changed


def _split(node: ir.Node, view: View, types: Types) -> bool:
    data, shape = node.inputs[0], types[node.inputs[0]].shape
    emit = Emitter(view.opset, types)
    cuts = _cuts(node, shape, view, types, emit)
    if data is None or shape is None or cuts is None or len(cuts) < 2:
        emit.discard()
        return False
    fixed = [cut for cut in cuts if cut.fixed and not cut.whole(shape)]
    if fixed:
        data = _slice(emit, data, fixed)
    for cut in cuts:
        if not cut.fixed:
            data = _slice(emit, data, [cut])
    emit.insert_before(node)
    replace_value(node.outputs[0], data)
    view.body.remove(node, safe=True)
    emit.drop_unused()
    return True


def _slice(emit: Emitter, data: ir.Value, cuts: list[_Cut]) -> ir.Value:
    starts, ends = (_joined(emit, entries) for entries in ([c.start for c in cuts], [c.end for c in cuts]))
    steps = [emit.const([cut.step for cut in cuts])] if any(cut.step != 1 for cut in cuts) else []
    return emit.op("Slice", [data, starts, ends, emit.const([cut.axis for cut in cuts]), *steps])


def _joined(emit: Emitter, entries: list[Entry]) -> ir.Value:
    """The bounds as one tensor: all numbers, or a single value."""
    numbers = [entry for entry in entries if isinstance(entry, int)]
    return emit.const(numbers) if len(numbers) == len(entries) else _value(emit, entries[0])


def _value(emit: Emitter, entry: Entry) -> ir.Value:
    return emit.const([entry]) if isinstance(entry, int) else entry


def _cuts(node: ir.Node, shape: tuple[Dim, ...] | None, view: View, types: Types, emit: Emitter) -> list[_Cut] | None:
    """What the Slice does to each axis it names; None if that can't be told."""
    _, starts_in, ends_in, axes_in, steps_in = [*node.inputs, None, None][:5]
    if starts_in is None or ends_in is None or shape is None:
        return None
    starts, ends = (_entries(bounds, view, types, emit) for bounds in (starts_in, ends_in))
    if starts is None or ends is None or len(starts) != len(ends):
        return None
    axes = list(range(len(starts))) if axes_in is None else _ints(axes_in, view)
    steps = [1] * len(starts) if steps_in is None else _ints(steps_in, view)
    if axes is None or steps is None or not all(-len(shape) <= axis < len(shape) for axis in axes):
        return None
    axes = [axis % len(shape) for axis in axes]
    if not len(set(axes)) == len(axes) == len(steps) == len(starts):
        return None
    return [_Cut(*parts) for parts in zip(axes, starts, ends, steps, strict=True)]


def _ints(value: ir.Value, view: View) -> list[int] | None:
    array = constant(value, view.opset)
    return None if array is None or array.ndim != 1 else [int(x) for x in array]


def _entries(value: ir.Value, view: View, types: Types, emit: Emitter) -> list[Entry] | None:
    """The elements of a vector of bounds, each by itself, as int64."""
    array = constant(value, view.opset)
    if array is not None:
        return [int(x) for x in array] if array.ndim == 1 and array.dtype.kind == "i" else None
    fact, node = types[value], value.producer()
    if fact.shape == (1,):
        if fact.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
            return None
        return [value if fact.dtype == ir.DataType.INT64 else _to_int64(emit, value)]
    if node is None or not defined_in(value, view.body) or node.domain not in ("", "ai.onnx"):
        return None
    known = [_entries(x, view, types, emit) for x in node.inputs if x is not None]
    operands = [entries for entries in known if entries is not None]
    if len(operands) != len(node.inputs):
        return None
    if node.op_type == "Concat":
        return [entry for entries in operands for entry in entries]
    if node.op_type == "Identity" or (node.op_type == "Cast" and fact.dtype == ir.DataType.INT64):
        return operands[0]
    # In int64 a sum of int64 bounds is the sum of its parts; int32 may wrap.
    if node.op_type == "Add" and fact.dtype == ir.DataType.INT64 and len({len(entries) for entries in operands}) == 1:
        return [_sum(emit, left, right) for left, right in zip(*operands, strict=True)]
    return None


def _to_int64(emit: Emitter, value: ir.Value) -> ir.Value:
    return emit.op("Cast", [value], {"to": int(ir.DataType.INT64)})


def _sum(emit: Emitter, left: Entry, right: Entry) -> Entry:
    if isinstance(left, int) and isinstance(right, int):
        total = left + right
        return total if np.iinfo(np.int64).min <= total <= INT64_MAX else _add(emit, left, right)
    return _add(emit, left, right)


def _add(emit: Emitter, left: Entry, right: Entry) -> ir.Value:
    return emit.op("Add", [_value(emit, left), _value(emit, right)])

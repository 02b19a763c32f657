"""Slices of several axes at once become slices of one axis each, so that a row that is read by a counter shows."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import INT64_MAX, constant
from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.slices import NEGATIVE_FROM, distinct_axes, slice_bounds
from looplift.patterns.graph.types import Dim, Types
from looplift.patterns.graph.values import defined_in
from looplift.patterns.graph.view import View
from looplift.patterns.graph.walk import Place
from looplift.patterns.loops.dependence import Dependence

OLDEST = 10
"""Opset from which Slice reads its bounds from inputs."""

ENTRYWISE = frozenset(
    "Add And Cast Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Neg Not Or Sub Where".split()
)
"""Elementwise ops that exporters compute bounds with."""


@dataclasses.dataclass(frozen=True)
class SplitSlices:
    """Rewrites ``x[i : i + 1, 0 : 4]`` as ``x[:, 0 : 4][i : i + 1]`` in the bodies of loops.

    Legal, since Slice cuts each axis by itself and clamps its bounds to that axis alone, if
    1. the axes are constants, and different ones: the rank of the tensor is known, and negative axes count from its
       end (engines take them so at opset 10, too, which does not mention them);
    2. there are no steps, or constant ones;
    3. every start and end can be computed by itself: how many there are is known, they are constants, or made in the
       body of [1] parts by Concat and elementwise ops, none with an attribute of a function;
    4. the opset is 10 or later: before, bounds are attributes and can't move.

    Only where two axes or more are named and a bound changes from iteration to iteration is there a gain. Axes that
    are left whole, from 0 past their end in steps of 1, are not cut at all. Preserves bits: values are only read.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Splits the slices of the model in place; whether there were any."""
        del journal

        def visit(view: View, place: Place) -> bool:
            sliced = place.opset >= OLDEST and any(node.op_type == "Slice" for node in view.body)
            return sliced and _split_in(view, types_around(model, view.node))

        return sweep_loops(model, visit)


@dataclasses.dataclass(frozen=True)
class _Cut:
    """What a Slice does to one axis; `first` and `end` are the bounds where they are constants."""

    axis: int
    starts: ir.Value
    ends: ir.Value
    step: int
    first: int | None
    end: int | None

    @property
    def fixed(self) -> bool:
        return self.first is not None and self.end is not None

    def whole(self, shape: tuple[Dim, ...]) -> bool:
        """Whether the axis is left as it is."""
        extent = shape[self.axis]
        past = self.end is not None and (self.end == INT64_MAX or (isinstance(extent, int) and self.end >= extent))
        return past and self.first == 0 and self.step == 1


def _split_in(view: View, outer: Types) -> bool:
    types = outer.with_body(view)
    dependence = Dependence(view, types)
    changed = False
    for node in list(view.body):
        if is_standard(node, "Slice"):
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
    for cut in sorted(cuts, key=lambda cut: not cut.fixed):  # what moves comes last: the rest may leave the loop
        if not cut.whole(shape):
            steps = [emit.const([cut.step])] if cut.step != 1 else []
            data = emit.op("Slice", [data, cut.starts, cut.ends, emit.const([cut.axis]), *steps])
    emit.insert_before(node)
    replace_value(node.outputs[0], data)
    view.body.remove(node, safe=True)
    emit.drop_unused()
    return True


def _cuts(node: ir.Node, shape: tuple[Dim, ...] | None, view: View, types: Types, emit: Emitter) -> list[_Cut] | None:
    """What the Slice does to each axis it names; None if that can't be told."""
    _, starts_in, ends_in = node.inputs[:3]
    if starts_in is None or ends_in is None or shape is None:
        return None
    count = _length(types[starts_in].shape)
    if count is None or count != _length(types[ends_in].shape):
        return None
    known = slice_bounds(node, view.opset, count)
    axes, steps = known.axes, known.steps
    if axes is None or steps is None or not len(axes) == len(steps) == count:
        return None
    if not distinct_axes(axes, len(shape), NEGATIVE_FROM):
        return None
    starts, ends = (_entries(bounds, count, view, types, emit) for bounds in (starts_in, ends_in))
    if starts is None or ends is None:
        return None
    bounds = [(_int64(emit, start), _int64(emit, end)) for start, end in zip(starts, ends, strict=True)]
    return [
        _Cut(axis % len(shape), start, end, step, _number(start, view), _number(end, view))
        for axis, (start, end), step in zip(axes, bounds, steps, strict=True)
    ]


def _length(shape: tuple[Dim, ...] | None) -> int | None:
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else None


def _number(value: ir.Value, view: View) -> int | None:
    array = constant(value, view.opset)
    return None if array is None else int(array[0])


def _int64(emit: Emitter, value: ir.Value) -> ir.Value:
    if emit.type_of(value).dtype == ir.DataType.INT64:
        return value
    return emit.op("Cast", [value], {"to": int(ir.DataType.INT64)})


def _entries(value: ir.Value, count: int, view: View, types: Types, emit: Emitter) -> list[ir.Value] | None:
    """The elements of a vector, each as a value of shape [1]; None if it is not made of such."""
    array, node = constant(value, view.opset), value.producer()
    if array is not None:
        return [emit.const(array[k : k + 1]) for k in range(count)]
    if count == 1:
        return [value]
    if node is None or not defined_in(value, view.body) or not is_standard(node):
        return None
    if node.op_type == "Concat":
        return _parts(node, count, view, types, emit)
    if node.op_type not in ENTRYWISE or has_references(node):
        return None
    columns = []
    for operand in node.inputs:
        shape = types[operand].shape
        if operand is None or shape not in ((), (1,), (count,)):
            return None
        entries = [operand] * count if shape != (count,) else _entries(operand, count, view, types, emit)
        if entries is None:
            return None
        columns.append(entries)
    return [emit.op(node.op_type, list(row), dict(node.attributes)) for row in zip(*columns, strict=True)]


def _parts(node: ir.Node, count: int, view: View, types: Types, emit: Emitter) -> list[ir.Value] | None:
    """The elements of joined vectors."""
    found: list[ir.Value] = []
    for operand in node.inputs:
        length = _length(types[operand].shape)
        entries = None if operand is None or length is None else _entries(operand, length, view, types, emit)
        if entries is None:
            return None
        found += entries
    return found if len(found) == count else None

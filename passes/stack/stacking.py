"""What the passes that turn an accumulation into a scan output share: body outputs, and work on the stack outside.

A stack has one row per iteration: shape ``[n, *element]``. With zero iterations n is 0, and ONNX Runtime makes
every extent of the element that it does not know statically 0 too; `with_rows_of` puts such a stack right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import onnx_ir as ir

from looplift.passes.graph.edit import (
    as_body_output,
    copy_node,
    declarable,
    rebuild,
    replace_value,
)
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.slices import known_axes
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import is_used, source
from looplift.patterns.graph.view import Carry, ScanOutput, View
from looplift.patterns.loops.trip import surely_runs, trip_of

Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True)
class Stack:
    """A new scan output: the rebuilt loop, the stacked value and the type of one row."""

    view: View
    value: ir.Value
    row: TensorType


def first_found(view: View, find: Callable[[Carry], Found | Refusal | None], journal: Journal) -> Found | None:
    """What `find` makes of the first carry that it finds something in and whose final value is read.

    Refusals go into the journal; None says that a carry is none of its business.
    """
    for carry in view.carries:
        if carry.final is None or not is_used(carry.final):
            continue
        found = find(carry)
        if isinstance(found, Refusal):
            journal.refuse(view.node, found, special=True)
        elif found is not None:
            return found
    return None


def is_fixed(fact: TensorType) -> bool:
    """Whether a body value has, for certain, one shape in all iterations."""
    return fact.shape is not None and None not in fact.shape


def is_static(fact: TensorType) -> bool:
    """Whether every extent is a number."""
    return fact.shape is not None and all(isinstance(dim, int) for dim in fact.shape)


def only_returned(value: ir.Value) -> bool:
    """Whether the body returns the value once, through copies that are read once, and reads it nowhere else."""
    graph = value.graph
    if value.uses() or graph is None or sum(output is value for output in graph.outputs) != 1:
        return False
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        if len(value.uses()) != 1 or value.is_graph_output():
            return False
        node = value.producer()
    return True


def may_run_zero_times(view: View, types: Types) -> bool:
    """Whether zero iterations can't be excluded."""
    trip = trip_of(view, types)
    return isinstance(trip, Refusal) or not surely_runs(trip)


def exchange(view: View, carry: Carry, elements: Sequence[tuple[ir.Value, TensorType]]) -> list[Stack]:
    """Rebuilds the loop without `carry`, whose final must be unread, and with a scan output per element."""
    new = [
        ScanOutput(len(view.scan_outputs) + k, as_body_output(view, value, fact), None)
        for k, (value, fact) in enumerate(elements)
    ]
    carries = tuple(other for other in view.carries if other is not carry)
    rebuilt: View = rebuild(dataclasses.replace(view, carries=carries, scan_outputs=(*view.scan_outputs, *new)))
    stacked = rebuilt.node.outputs[len(rebuilt.node.outputs) - len(new) :]
    trip = trip_of(view, Types())
    rows = TensorType(shape=(None if isinstance(trip, Refusal) else trip.extent,))
    for value, (_, fact) in zip(stacked, elements, strict=True):
        if fact.dtype is not None:
            value.type = ir.TensorType(fact.dtype)
        if fact.shape is not None:
            value.shape = ir.Shape([*declarable(rows), *declarable(fact)])
    return [Stack(rebuilt, value, fact) for value, (_, fact) in zip(stacked, elements, strict=True)]


def detach(carry: Carry) -> ir.Node:
    """Frees the carry's final value for the rebuild: its readers read the output of the node returned instead."""
    assert carry.final is not None
    loop = carry.final.producer()
    assert loop is not None
    hole = copy_node(carry.initial, carry.final)
    loop.append(hole)
    replace_value(carry.final, hole.outputs[0])
    return hole


def fill(hole: ir.Node, emit: Emitter, result: ir.Value) -> None:
    """Puts the written nodes in the place of a node made by `detach`, and `result` where its output was read."""
    emit.insert_before(hole)
    replace_value(hole.outputs[0], result)
    graph = hole.graph
    if graph is not None:
        graph.remove(hole, safe=True)


def without_axis(view: View, value: ir.Value, fact: TensorType, axis: int, types: Types) -> tuple[ir.Value, TensorType]:
    """The value without an axis of extent 1: what it was made from by adding that axis, else a Squeeze of it."""
    bare = TensorType(fact.dtype, None if fact.shape is None else fact.shape[:axis] + fact.shape[axis + 1 :])
    node = source(value).producer()
    if node is not None and node.inputs and node.inputs[0] is not None and _adds_axis(node, fact, bare, types, view):
        return node.inputs[0], bare
    emit = Emitter(view.opset, Types())
    squeezed = emit.squeeze(value, [axis])
    view.body.extend(emit.nodes)
    return squeezed, bare


def _adds_axis(node: ir.Node, fact: TensorType, bare: TensorType, types: Types, view: View) -> bool:
    """Whether the node does nothing but add an axis of extent 1 to a value of type `bare`, which gives `fact`."""
    if fact.shape is None or bare.shape is None or not is_standard(node):
        return False
    if node.op_type == "Reshape":
        return types[node.inputs[0]].same_shape(bare)
    if node.op_type != "Unsqueeze":
        return False
    axes = known_axes(node, view.opset)
    if axes is None or len(axes) != 1 or not fact.shape:
        return False
    axis = axes[0] % len(fact.shape)
    return fact.shape[:axis] + fact.shape[axis + 1 :] == bare.shape and fact.shape[axis] == 1


def with_rows_of(emit: Emitter, stack: ir.Value, row_shape: ir.Value) -> ir.Value:
    """The stack, where it has no rows with the extents of `row_shape` (1-D int64, one entry per axis of a row)."""
    shape = emit.op("Shape", [stack])
    empty = emit.op("Equal", [emit.slice(shape, 0, 1, 0), emit.const([0])])
    rowless = emit.op("Concat", [emit.const([0]), row_shape], {"axis": 0})
    target = emit.op("Where", [empty, rowless, shape])
    if emit.opset >= 14:
        return emit.op("Reshape", [stack, target], {"allowzero": 1})
    # A zero copies an extent here, so where there are no rows each extent is made zero first.
    ends = emit.op("Where", [empty, emit.const([0]), shape])
    return emit.op("Reshape", [emit.op("Slice", [stack, emit.op("Sub", [shape, shape]), ends]), target])


def can_join(row: TensorType, axis: int, opset: int) -> bool:
    """Whether rows of this type can be concatenated along an axis of theirs.

    The extent there must be the same in every row, and Reshape takes extents of zero at their word only from opset 14.
    """
    if row.shape is None or row.shape[axis] is None:
        return False
    return row.shape[axis] == 1 or opset >= 14 or is_positive(row)


def is_positive(fact: TensorType) -> bool:
    """Whether every extent is a number above zero."""
    return fact.shape is not None and all(isinstance(dim, int) and dim > 0 for dim in fact.shape)


def join_rows(emit: Emitter, stack: ir.Value, row: TensorType, axis: int) -> ir.Value:
    """Concatenates the rows along an axis of theirs: ``[n, *row]`` gives ``row`` with n times the extent there.

    Only if `can_join`.
    """
    assert row.shape is not None
    rank = len(row.shape)
    moved = emit.move_axis(stack, rank + 1, 0, axis)
    if row.shape[axis] == 1:
        return emit.squeeze(moved, [axis + 1])
    if is_positive(row):
        target = [int(dim or 0) for dim in row.shape]
        target[axis] = -1
        return emit.op("Reshape", [moved, emit.const(target)])
    shape = emit.op("Shape", [moved])
    merged = emit.op("Mul", [emit.slice(shape, axis, axis + 1, 0), emit.slice(shape, axis + 1, axis + 2, 0)])
    parts = [emit.slice(shape, 0, axis, 0)] if axis else []
    parts += [merged, *([emit.slice(shape, axis + 2, INT64_MAX, 0)] if axis + 1 < rank else [])]
    return emit.op("Reshape", [moved, emit.op("Concat", parts, {"axis": 0})], {"allowzero": 1})


def insert_after(emit: Emitter, node: ir.Node) -> None:
    """Puts the written nodes right after a node of the graph."""
    node.append(emit.nodes)

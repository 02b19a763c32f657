"""Indices that exporters compute in many steps from the iteration number, written as what they come to."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import drop_unused_nodes
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.graph.trip_counts import to_scalar
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import Array, constant, scalar
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import LoopView, View
from looplift.patterns.graph.walk import Place
from looplift.patterns.loops.evaluate import Simulation

LONGEST = 512
"""Iterations of which every one is looked at."""

OLDEST = 13

READS = {"Expand": (1,), "Gather": (1,), "Reshape": (1,), "ScatterND": (1,), "Slice": (1, 2)}
"""Which inputs of an op are indices or shapes."""


@dataclasses.dataclass(frozen=True)
class SettleValues:
    """Rewrites indices in the body of a Loop that runs a known number of times at most.

    An index that is closed (`patterns.loops.evaluate`) is computed for every iteration. If it comes to the same numbers
    each time, it becomes a constant; if to ``first + stride * iteration``, it is written so. A ScatterND whose
    indices name the elements of one row, in order, writes the row as a whole.

    Legal if
    1. M is a constant of 1 to `LONGEST`: no other iteration can run, whatever the exit test says;
    2. the index of each of them can be computed now: the numbers are those that the body computes;
    3. they are int32 or int64, of one shape in all iterations, and differ by the same stride from each to the next;
       what is written computes in their type, and wraps as they do;
    4. the opset is 13 or later, whose Mul and Add take these types and whose Reshape and Unsqueeze are the ones used;
    5. for a ScatterND that writes a row: every extent of the tensor is a known number above 0, the indices name each
       element of the row once, in order, and only the number of the row moves. With none named twice, `reduction`
       comes to the same.

    Left alone is what takes no more than two operators to compute, as what is written here does. Preserves bits.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        del journal

        def visit(view: View, place: Place) -> bool:
            if not isinstance(view, LoopView) or place.opset < OLDEST or view.max_trip is None:
                return False
            limit = scalar(view.max_trip, place.opset)
            if not isinstance(limit, int) or not 1 <= limit <= LONGEST:
                return False
            uses = [(n, k) for n in view.body for k in _index_inputs(n) if _is_computed(n.inputs[k], view)]
            return bool(uses) and _settle(view, limit, uses, types_around(model, view.node).with_body(view))

        return sweep_loops(model, visit)


def _settle(view: LoopView, limit: int, uses: list[tuple[ir.Node, int]], types: Types) -> bool:
    simulation = Simulation(view, types)
    uses = [(node, k) for node, k in uses if (value := node.inputs[k]) is not None and simulation.holds(value)]
    if not uses:
        return False
    wanted = [value for node, k in uses if (value := node.inputs[k]) is not None]
    rounds = [found for found, _ in zip(simulation.run(wanted), range(limit), strict=False)]
    if len(rounds) < limit:
        return False
    changed = False
    for (node, k), *numbers in zip(uses, *rounds, strict=True):
        changed |= _write(node, k, numbers, view, types)
    drop_unused_nodes(view.body)
    return changed


def _index_inputs(node: ir.Node) -> tuple[int, ...]:
    return READS.get(node.op_type, ()) if is_standard(node) else ()


def _is_computed(value: ir.Value | None, view: LoopView) -> bool:
    """Whether more goes into an index than what is written for it here: a product, a sum and changes of form."""
    steps, seen = 0, set()
    work = [] if value is None or constant(value, view.opset) is not None else [value]
    while work:
        node = work.pop().producer()
        if node is None or node.graph is not view.body or id(node) in seen:
            continue
        seen.add(id(node))
        steps += node.op_type not in ("Cast", "Constant", "Reshape", "Unsqueeze")
        work.extend(operand for operand in node.inputs if operand is not None)
    return steps > 2


def _write(node: ir.Node, k: int, numbers: list[Array], view: LoopView, types: Types) -> bool:
    """Writes the index as a progression, if it is one."""
    first = numbers[0]
    if first.dtype not in (np.int32, np.int64) or any(array.shape != first.shape for array in numbers):
        return False
    stride = numbers[1] - first if len(numbers) > 1 else np.zeros_like(first)
    if any((array != first + stride * at).any() for at, array in enumerate(numbers)):
        return False
    emit = Emitter(view.opset, types)
    if node.op_type == "ScatterND" and _names_a_row(node, first, stride, types):
        # The row's index is that of each of its elements.
        row = [1, *first.reshape(-1, first.shape[-1])[-1, 1:] + 1]
        node.replace_input_with(2, emit.op("Reshape", [node.inputs[2], emit.const([int(extent) for extent in row])]))
        first, stride = (array.reshape(-1, array.shape[-1])[:1, :1] for array in (first, stride))
    node.replace_input_with(k, _progression(first, stride, view, emit))
    emit.insert_before(node)
    return True


def _names_a_row(node: ir.Node, first: Array, stride: Array, types: Types) -> bool:
    """Whether the indices of a ScatterND name the elements of one row of the tensor, all of them and in order."""
    shape = types[node.inputs[0]].shape
    extents = [dim for dim in shape or () if isinstance(dim, int) and dim > 0]
    rank = first.shape[-1] if first.ndim else 0
    if shape is None or len(extents) != len(shape) or rank != len(shape) or rank < 2:
        return False
    first, stride = first.reshape(-1, rank), stride.reshape(-1, rank)
    if len(first) != math.prod(extents[1:]):
        return False
    elements = np.indices(extents[1:]).reshape(rank - 1, -1).T
    same_row = len(first) > 0 and (first[:, 0] == first[0, 0]).all() and (stride[:, 0] == stride[0, 0]).all()
    return bool(same_row and not stride[:, 1:].any() and np.array_equal(first[:, 1:], elements))


def _progression(first: Array, stride: Array, view: LoopView, emit: Emitter) -> ir.Value:
    if not stride.any():
        return emit.const(first)
    number = to_scalar(emit, view.iteration)
    if first.dtype == np.int32:
        number = emit.op("Cast", [number], {"to": int(ir.DataType.INT32)})
    if first.size == 1 and stride.item() == 1 and first.item() == 0:
        return emit.op("Reshape", [number, emit.const(list(first.shape))])
    return emit.op("Add", [emit.op("Mul", [number, emit.const(stride)]), emit.const(first)])

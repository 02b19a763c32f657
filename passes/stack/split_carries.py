"""A carry that holds several states, joined anew in every iteration and read in parts, becomes a carry for each.

So are the states of stacked layers handed on: ``h = Concat(h0, h1)``, and ``h[0]``, ``h[1]`` are what they read.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import (
    as_body_output,
    declarable,
    rebuild,
    remove_node,
    replace_value,
)
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.passes.stack.stacking import detach, fill
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.slices import constant_ints, slice_bounds
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import defined_in, source
from looplift.patterns.graph.view import Carry, View


@dataclasses.dataclass(frozen=True)
class SplitCarries:
    """Gives each part of such a carry a carry of its own. Legal if

    1. the update is a Concat, through copies, of parts whose extents along its axis are known, and add up to that of
       the initial value;
    2. the body reads the carry only by Slice (step 1), Gather or Split along this axis, at constant places, each of
       them inside one part;
    3. the Scan is not of opset 8, whose initial value has a batch axis that the element lacks.

    The initial value is cut into parts in front of the loop, the final one joined behind it. Preserves bits, also
    where no iteration runs: elements are only moved.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""

        def visit(view: View, _: object) -> bool:
            joined = [carry for carry in view.carries if is_standard(source(carry.updated).producer(), "Concat")]
            if view.batched or not joined:
                return False
            types = types_around(model, view.node).with_body(view)
            for carry in joined:
                parts = _parts(carry, view, types, journal)
                reads = None if parts is None else _reads(carry, parts, view.opset)
                if parts is not None and reads is not None:
                    _split(carry, parts, reads, view, types)
                    journal.did(
                        view.node, f"split the carry {carry.previous.name!r} into its {len(parts.values)} parts"
                    )
                    return True
            return False

        return sweep_loops(model, visit)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a carry is joined of: along which axis, and where each part begins; behind the last, where all end."""

    concat: ir.Node
    axis: int
    rank: int
    values: tuple[ir.Value, ...]
    starts: tuple[int, ...]

    def at(self, start: int, end: int) -> int | None:
        """The part that holds the entries from `start` to `end`, None if no single one does."""
        spans = enumerate(itertools.pairwise(self.starts))
        return next((k for k, (first, last) in spans if first <= start <= end <= last), None)


@dataclasses.dataclass(frozen=True)
class _Read:
    """A node that reads entries of a carry; `first` and `end` count inside the part. A Split reads every part."""

    node: ir.Node
    part: int = 0
    first: int = 0
    end: int = 0


def _parts(carry: Carry, view: View, types: Types, journal: Journal) -> _Parts | None:
    """The parts of a carry, None if it is not joined of any, or has to stay."""
    node, shape = source(carry.updated).producer(), types[carry.initial].shape
    if node is None or shape is None or not defined_in(source(carry.updated), view.body) or has_references(node):
        return None
    if any(value is not None and journal.keeps_reader(value) for value in (carry.previous, carry.final)):
        return None
    axis = node.attributes.get_int("axis", 0)
    values = tuple(value for value in node.inputs if value is not None)
    shapes = [types[value].shape for value in values]
    if len(values) < 2 or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    extents = [None if known is None or len(known) != len(shape) else known[axis] for known in shapes]
    numbers = [extent for extent in extents if isinstance(extent, int)]
    if len(numbers) < len(values) or sum(numbers) != shape[axis]:
        return None
    return _Parts(node, axis, len(shape), values, (0, *itertools.accumulate(numbers)))


def _reads(carry: Carry, parts: _Parts, opset: int) -> list[_Read] | None:
    """What reads the carry; None if anything does otherwise than part by part, or nothing does."""
    found = []
    if carry.previous.is_graph_output():
        return None
    for node, place in carry.previous.uses():
        read = _read(node, parts, opset) if place == 0 and not has_references(node) else None
        if read is None:
            return None
        found.append(read)
    return found or None


def _read(node: ir.Node, parts: _Parts, opset: int) -> _Read | None:
    if is_standard(node, "Split"):
        return _Read(node) if _splits_as(node, parts, opset) else None
    span = None
    if is_standard(node, "Gather") and node.attributes.get_int("axis", 0) % parts.rank == parts.axis:
        span = _gathered(node, parts, opset)
    elif is_standard(node, "Slice"):
        span = _sliced(node, parts, opset)
    part = None if span is None else parts.at(*span)
    if span is None or part is None:
        return None
    first = parts.starts[part]
    return _Read(node, part, span[0] - first, span[1] - first)


def _gathered(node: ir.Node, parts: _Parts, opset: int) -> tuple[int, int] | None:
    index = constant(node.inputs[1], opset)
    if index is None or index.size != 1:
        return None
    total, number = parts.starts[-1], int(index.reshape(-1)[0])
    return (number % total, number % total + 1) if -total <= number < total else None


def _sliced(node: ir.Node, parts: _Parts, opset: int) -> tuple[int, int] | None:
    bounds = slice_bounds(node, opset).each()
    if bounds is None or len(bounds) != 1:
        return None
    ((start, end, axis, step),) = bounds
    if step != 1 or not -parts.rank <= axis < parts.rank or axis % parts.rank != parts.axis:
        return None
    start, end, _ = slice(start, end).indices(parts.starts[-1])
    return (start, end) if start < end else None


def _splits_as(node: ir.Node, parts: _Parts, opset: int) -> bool:
    """Whether a Split undoes the Concat."""
    count, sizes = len(parts.values), [end - start for start, end in itertools.pairwise(parts.starts)]
    if node.attributes.get_int("axis", 0) % parts.rank != parts.axis or len(node.outputs) != count:
        return False
    given = node.attributes.get_ints("split", None)
    if given is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        given = constant_ints(node.inputs[1], opset)
        return given == sizes
    return list(given) == sizes if given is not None else len(set(sizes)) == 1


def _split(carry: Carry, parts: _Parts, reads: list[_Read], view: View, types: Types) -> None:
    facts = [types[value] for value in parts.values]
    hole = detach(carry) if carry.final is not None else None
    before = Emitter(view.opset, types)
    initial = [before.slice(carry.initial, *span, parts.axis) for span in itertools.pairwise(parts.starts)]
    before.insert_before(view.node)
    previous = [_previous(carry, k, parts, types[carry.previous]) for k in range(len(facts))]
    for read in reads:
        _redirect(read, parts.axis, previous, view.opset)
    joined = [value for value in parts.concat.inputs if value is not None]  # what was read may be a part
    updated = [as_body_output(view, value, fact) for value, fact in zip(joined, facts, strict=True)]
    carries = [Carry(k, *each, None) for k, each in enumerate(zip(initial, previous, updated, strict=True))]
    at = next(k for k, each in enumerate(view.carries) if each is carry)
    rebuilt: View = rebuild(dataclasses.replace(view, carries=(*view.carries[:at], *carries, *view.carries[at + 1 :])))
    if hole is None:
        return
    behind, finals = Emitter(view.opset, Types()), rebuilt.node.outputs[at : at + len(carries)]
    for final, value in zip(finals, previous, strict=True):
        final.type, final.shape = value.type, value.shape
    fill(hole, behind, behind.op("Concat", finals, {"axis": parts.axis}))


def _previous(carry: Carry, k: int, parts: _Parts, fact: TensorType) -> ir.Value:
    """The body's input for one part."""
    value = ir.Value(name=f"{carry.previous.name}_{k}")
    if fact.dtype is not None:
        value.type = ir.TensorType(fact.dtype)
    if fact.shape is not None:
        shape = list(fact.shape)
        shape[parts.axis] = parts.starts[k + 1] - parts.starts[k]
        value.shape = ir.Shape(declarable(TensorType(fact.dtype, tuple(shape))))
    return value


def _redirect(read: _Read, axis: int, previous: list[ir.Value], opset: int) -> None:
    """The node reads the part that it wants."""
    node, emit, part = read.node, Emitter(opset, Types()), previous[read.part]
    if node.op_type == "Split":
        for output, value in zip(node.outputs, previous, strict=True):
            replace_value(output, value)
    elif node.op_type == "Gather":
        index = constant(node.inputs[1], opset)
        assert index is not None
        moved = emit.const(np.full_like(index, read.first))
        replace_value(node.outputs[0], emit.op("Gather", [part, moved], {"axis": axis}))
    else:
        replace_value(node.outputs[0], emit.slice(part, read.first, read.end, axis))
    emit.insert_before(node)
    remove_node(node)

"""The walk from a body value to its stack: what varies, what does not, and who computes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import onnx_ir as ir

from looplift.passes.graph import last_bits
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import to_vector
from looplift.passes.journal import COPY_OF, NUMBER
from looplift.patterns.engines.onnxruntime.kernels import FUNCTIONS, REACH
from looplift.patterns.graph.constants import INT64_MAX, shape_part
from looplift.patterns.graph.operators import STANDARD, Trait, has, has_references
from looplift.patterns.graph.own_nodes import DOMAIN
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.shapes import advice
from looplift.patterns.graph.speculatable import is_total
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import has_subgraphs, source
from looplift.patterns.graph.view import ScanView, View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.empty_stacks import fits_without_rows
from looplift.patterns.loops.memory import footprint_of
from looplift.patterns.loops.rows.cuts import RowCut
from looplift.patterns.loops.trip import Trip, surely_runs


class Sources(Protocol):
    """Who gives the stacks that no rule computes: of body inputs and of recurrences' states."""

    def stack(self, value: ir.Value, over: OverTime) -> ir.Value | None:
        """The stack of a body value, None if a rule is to compute it; raises `Refused`."""
        ...

    def trip_count(self, emit: Emitter) -> ir.Value:
        """The number of iterations, an int64 scalar, never negative."""
        ...

    def may_grow(self, value: ir.Value) -> bool:
        """Whether the value is a state whose shape the first iteration may change."""
        ...


Rule = Callable[["OverTime", ir.Node], "Sequence[ir.Value]"]


class OverTime:
    """Stacks of one loop body's values, made on demand and once.

    Attributes:
        view, types, dependence, trip: the loop and what is known of it.
        emit: where the new nodes go.
        row_cuts: the body's Slices that cut one row per iteration, by their node's identity.
        lead: how many axes a stack has in front of an element's own: time, and for Scan-8 the batch.
    """

    def __init__(
        self,
        view: View,
        types: Types,
        dependence: Dependence,
        trip: Trip,
        emit: Emitter,
        sources: Sources,
        rules: Mapping[str, Rule],
        row_cuts: Mapping[int, RowCut],
    ) -> None:
        self.view, self.types, self.dependence, self.trip, self.emit = view, types, dependence, trip, emit
        self.row_cuts = row_cuts
        self._footprint = footprint_of(view, types, dependence, trip)
        self.lead = 2 if view.batched else 1
        self._sources, self._rules = sources, rules
        self._stacks: dict[int, ir.Value] = {}
        self._outside: dict[int, ir.Value] = {}

    def varies(self, value: ir.Value) -> bool:
        """Whether the value may differ between iterations."""
        return not self.dependence.invariant(value)

    def rank(self, value: ir.Value) -> int:
        """Number of axes of one element."""
        rank = self.types[value].rank
        if rank is None:
            raise Refused(Refusal(f"the number of axes of '{value.name}' is not known", value.producer()))
        return rank

    def stack(self, value: ir.Value) -> ir.Value:
        """The value of every iteration, time first; an invariant one is repeated."""
        known = self._stacks.get(id(value))
        if known is None:
            known = self._make_stack(value) if self.varies(value) else self._repeat(value)
            self._stacks[id(value)] = known
        return known

    def outside(self, value: ir.Value) -> ir.Value:
        """An invariant value, computed outside the loop."""
        known = self._outside.get(id(value))
        if known is None:
            known = self._outside[id(value)] = self._make_outside(value)
        return known

    def operand(self, value: ir.Value, rank: int) -> ir.Value:
        """The value as an operand that broadcasts with elements of `rank` axes."""
        if not self.varies(value):
            if self.types[value].rank != 0 and self.rank(value) > rank:
                raise Refused(Refusal(f"'{value.name}' has more axes than what it is combined with"))
            return self.outside(value)
        own = self.rank(value)
        return self.emit.unsqueeze(self.stack(value), range(self.lead, self.lead + rank - own))

    def trip_count(self) -> ir.Value:
        """The number of iterations as an int64 scalar."""
        return self._sources.trip_count(self.emit)

    def may_be_empty(self, node: ir.Node) -> bool:
        """Whether a body node can't fail on stacks without rows, or there are rows for certain."""
        if surely_runs(self.trip) or id(node) in self.row_cuts:
            return True
        if node.op_type != "Identity" and any(
            self._sources.may_grow(value) for value in node.inputs if value is not None
        ):
            return False
        return fits_without_rows(node, self.types, self.view.opset, self.varies)

    def reshaped(self, stack: ir.Value, extents: ir.Value, element: TensorType, node: ir.Node) -> ir.Value:
        """A stack in another shape, all of whose extents are given and may be zero; `element` is what comes out.

        Before opset 14 Reshape takes a zero for "as before", so there the element may have none, and if the number of
        iterations is zero, the first extent was zero before too.
        """
        if self.emit.opset >= 14:
            return self.emit.op("Reshape", [stack, extents], {"allowzero": 1})
        if element.shape is None or not all(isinstance(dim, int) and dim > 0 for dim in element.shape):
            raise Refused(Refusal(f"{node.op_type} to extents that may be zero needs opset 14", node))
        return self.emit.op("Reshape", [stack, extents])

    def _make_stack(self, value: ir.Value) -> ir.Value:
        too_large = self._footprint.refusal(value, self.types)
        if too_large is not None:
            raise Refused(too_large)
        given = self._sources.stack(value, self)
        if given is not None:
            return given
        node = value.producer()
        if node is None:
            raise Refused(Refusal(f"'{value.name}' is known only inside the loop", self.view.node))
        rule = self._rules.get(node.op_type) if node.domain in (*STANDARD, DOMAIN) else None
        if rule is None:
            raise Refused(Refusal(f"{node.op_type} can't be computed for all iterations at once", node))
        if has_references(node):
            raise Refused(Refusal("an attribute is a reference to a function's", node))
        before = len(self.emit.nodes)
        stacks = rule(self, node)
        if not self.may_be_empty(node):
            facts = [self.types[operand] for operand in node.inputs if operand is not None]
            shapes = ", ".join(map(str, facts))
            more = advice([fact.shape for fact in facts]) if has(node, Trait.BROADCASTS) else ""
            told = f"{node.op_type} of {shapes} could fail where the loop runs zero times{more}"
            raise Refused(Refusal(told, node, unequal=more != ""))
        last_bits.mark(self.emit.nodes[before:])
        for made in self.emit.nodes[before:]:
            _note_copy(made, node)
        for output, stacked in zip(node.outputs, stacks, strict=True):
            self._stacks[id(output)] = stacked
        return self._stacks[id(value)]

    def _repeat(self, value: ir.Value) -> ir.Value:
        if self.view.batched:
            raise Refused(Refusal(f"'{value.name}' is the same for every batch entry and iteration", self.view.node))
        if self.types[value].dtype == ir.DataType.BFLOAT16:
            # ONNX Runtime loads no model with an Expand of bfloat16, though the standard has it.
            raise Refused(Refusal(f"'{value.name}' is bfloat16 and the same in every iteration", value.producer()))
        emit, outer = self.emit, self.outside(value)
        one = to_vector(emit, self.trip_count())
        shape = emit.op("Concat", [one, emit.op("Shape", [outer])], {"axis": 0})
        return emit.op("Expand", [outer, shape])

    def _make_outside(self, value: ir.Value) -> ir.Value:
        """Outer values are there already; body nodes and initializers are written anew outside."""
        if value.is_initializer() and value.graph is self.view.body:
            tensor = value.const_value
            if tensor is None:
                raise Refused(Refusal(f"initializer '{value.name}' of the body has no value", self.view.node))
            return self.emit.tensor(tensor)
        node = value.producer()
        if node is None or node.graph is not self.view.body:
            return self._type_source(value)
        if node.op_type in ("Shape", "Size") and node.inputs[0] is not None and self.varies(node.inputs[0]):
            return self._extents(node, node.inputs[0])
        if has_subgraphs(node):
            raise Refused(Refusal(f"{node.op_type} holds a graph of its own", node))
        if not surely_runs(self.trip) and not is_total(node, self.types, self.view.opset):
            raise Refused(Refusal(f"{node.op_type} could fail where the loop runs zero times", node))
        inputs = [None if x is None else self.outside(x) for x in node.inputs]
        copy = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs))
        _note_copy(copy, node)
        if node.op_type in REACH or (node.op_type in FUNCTIONS and self._in_place(node)):
            last_bits.mark_moved(copy)
        for output, new in zip(node.outputs, self.emit.add(copy).outputs, strict=True):
            self._outside[id(output)] = new
        return self._outside[id(value)]

    def _in_place(self, node: ir.Node) -> bool:
        """Whether a Scan stacks what the node makes, which an engine may then write at any address."""
        stacked = (source(output.element).producer() for output in self.view.scan_outputs)
        return isinstance(self.view, ScanView) and any(maker is node for maker in stacked)

    def _extents(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """Shape or Size of one element, which every iteration's has: known, or read off the stack."""
        emit, shape = self.emit, self.types[value].shape
        part = shape_part(node)
        known = [dim for dim in shape or () if isinstance(dim, int)]
        if shape is not None and len(known) == len(shape):
            return emit.const(math.prod(known)) if node.op_type == "Size" else emit.const(known[part])
        if node.op_type == "Size":
            raise Refused(Refusal(f"the size of '{value.name}' is not known", node))
        extents = emit.slice(emit.op("Shape", [self.stack(value)]), self.lead, INT64_MAX, 0)
        if part == slice(None):
            return extents
        return emit.slice(extents, part.start or 0, INT64_MAX if part.stop is None else part.stop, 0)

    def _type_source(self, value: ir.Value) -> ir.Value:
        """Where only a type or shape is asked of a carry, its initial value has it too."""
        for carry in self.view.carries:
            if value is carry.previous and not self.view.batched:
                return carry.initial
        if value in self.view.body.inputs:
            raise Refused(Refusal(f"only the type of '{value.name}' is used", self.view.node))
        return value


def _note_copy(made: ir.Node, node: ir.Node) -> None:
    """Notes of which node of the loop this one is the same, if it is."""
    number = node.meta.get(NUMBER, node.meta.get(COPY_OF))
    if made.op_type == node.op_type and number is not None:
        made.meta[COPY_OF] = number

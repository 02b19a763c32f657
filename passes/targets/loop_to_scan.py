"""Loops that read a row per iteration become Scans, which engines run faster.

What the lift leaves (gated cells, matrix recurrences, residual updates) still walks along a sequence: a Scan is handed
the rows where the Loop finds them by index, and its outputs go straight to their place.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import drop_unused_nodes, remove_node, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import to_scalar, to_vector
from looplift.passes.graph.weights import keep_near
from looplift.passes.journal import Journal
from looplift.patterns.engines.onnxruntime.placement import is_copied, may_be_read_in_place, may_be_written_in_place
from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.shapes import entries
from looplift.patterns.graph.types import Dim, TensorType, Types
from looplift.patterns.graph.values import defined_in, is_used
from looplift.patterns.graph.view import Carry, LoopView, ScanOutput, is_loop, view_of
from looplift.patterns.graph.walk import Place, loops
from looplift.patterns.loops.index import Index
from looplift.patterns.loops.rows.reads import RowRead, row_reads
from looplift.patterns.loops.trip import Counted, trip_of

OLDEST = 9
"""Opset of the Scan without a batch axis."""

OLDEST_RANGE = 11
OLDEST_IF = 11  # whose branches may give different shapes, such as rows and no rows
LONGEST_CONSTANT = 1024
"""Iterations up to which the iteration numbers are written as a constant."""

WIDEST_COPY = 8192
"""Elements of a row up to which a copy of all rows, which a Loop does not make, pays (by measurement)."""


@dataclasses.dataclass(frozen=True)
class LoopToScan:
    """Replaces a counted Loop that reads rows by its iteration number by a Scan over those rows.

    Legal if
    1. the trip count is known before the loop starts (`patterns.loops.trip`), and at least 1: for certain, or in a
       branch of an If, since ONNX Runtime refuses a Scan without iterations. What no iteration gives is then known too:
       the initial values, and stacks without rows, whose extents are those of tensors around (from opset 11 on, since
       an If had one shape for both branches before);
    2. every carried value is a tensor and keeps, for certain, its element type and shape, which Scan demands
       (`patterns.graph.types`), and the ranks of all body outputs are known, which ONNX Runtime demands;
    3. one row or more of a tensor from outside is read at ``first + stride * iteration`` (`patterns.loops.rows.reads`).
       It has as many rows as iterations run, or those read are gathered first, which fails out of range as it did;
    4. no strings are carried or stacked, which ONNX Runtime's Scan gets wrong;
    5. rows lie at any address in the tensors that a Scan reads and writes, which no operator that reads or writes
       them in place may mind (`patterns.engines`); a row that one minds is read as before;
    6. the opset is 9 or later; 11 unless the trip count is a constant up to `LONGEST_CONSTANT`;
    7. no node in it is kept as it is together with the kind of its loop (`Journal.keeps_kind`).

    The cond is true whenever the body runs; what else reads the iteration number scans over ``0, 1, 2, ...``. Body
    outputs that are body inputs, or that are named twice, are copied: ONNX Runtime gets them wrong in a Scan.
    Preserves bits: the body computes the same in the same order.

    When it pays, by measurement (``benchmarks/loop_to_scan.py``; ONNX Runtime, CPU, one thread): a Scan saves about
    1 us per iteration (a Gather, two inputs of the body, the joining of scan outputs). From 12 iterations on it is 1.05
    times (a GRU cell) to 2.4 times (one operator) as fast as the Loop, with one iteration no slower. An If and the
    gathering of rows cost 3 us together, which 3 iterations gain; a trip count that is not known is taken to be
    larger. Rows that must be copied, since they are gathered or since ONNX Runtime transposes them, pay up to
    `WIDEST_COPY` elements; wider ones are read as before. In `looplift.Session` only the If costs, 20 us.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such loop of the model in place; whether there was one."""
        found = [(node, place) for node, place in loops(model) if is_loop(node) and place.opset >= OLDEST]
        return any([_convert(node, place, types_around(model, node), journal) for node, place in found])


Port = Carry | ScanOutput
"""An output of the loop: a carry's final value, or a stack."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is known of a Loop that can become a Scan.

    Attributes:
        length: the trip count if any iteration runs; an extent, None if it is none.
        condition: decides whether any iteration runs; None if it is true.
        surely_runs: no If is needed.
        types: of the body and of what is around it.
        sizes: for an extent that is no number, a tensor and its axis that have it.
    """

    view: LoopView
    length: Dim
    condition: ir.Value | None
    surely_runs: bool
    reads: tuple[RowRead, ...]
    types: Types
    sizes: dict[str, tuple[ir.Value, int]]

    @property
    def ports(self) -> list[Port]:
        """The outputs of the loop."""
        return [*self.view.carries, *self.view.scan_outputs]

    @property
    def used_ports(self) -> list[Port]:
        """The outputs of the loop that anything reads."""
        return [port for port in self.ports if (value := _value(port)) is not None and is_used(value)]


def _value(port: Port) -> ir.Value | None:
    return port.final if isinstance(port, Carry) else port.stacked


def _convert(node: ir.Node, place: Place, types: Types, journal: Journal) -> bool:
    view = view_of(node, place.opset)
    plan = _plan(view, types) if isinstance(view, LoopView) and not journal.keeps_kind(node) else None
    if plan is None:
        return False
    ports = plan.used_ports
    elements = _rewrite_body(plan)
    emit = Emitter(plan.view.opset, types)
    results = _scan(plan, elements, emit) if plan.surely_runs else _guarded(plan, elements, ports, emit)
    emit.insert_before(node)
    for port in ports:
        old, new = _value(port), results[id(port)]
        assert old is not None
        new.name, new.shape = old.name, new.shape if old.shape is None else old.shape
        replace_value(old, new)
    remove_node(node)
    journal.did(node, "made it a Scan over the rows that it reads")
    return True


def _plan(view: LoopView, outer: Types) -> Plan | None:
    trip = trip_of(view, outer)
    if not isinstance(trip, Counted) or trip.static == 0:
        return None
    length = _length(view, outer)
    surely_runs = isinstance(length, int) and trip.condition is None
    reads, types = row_reads(view, outer, trip)
    reads = [r for r in reads if _pays(r, length, types) and may_be_read_in_place(r.row, view.body, types)]
    if not reads or (isinstance(length, int) and length <= 0) or not _can_count(view.opset, length):
        return None
    if not all(_keeps_its_type(carry, types) for carry in view.carries):
        return None
    if not all(_can_be_stacked(types[out.element]) for out in view.scan_outputs):
        return None
    if not all(may_be_written_in_place(out, view, types) for out in view.scan_outputs):
        return None
    around = [*(carry.initial for carry in view.carries), *(read.data for read in reads)]
    plan = Plan(view, length, trip.condition, surely_runs, tuple(reads), types, _sizes(around, types))
    if not plan.used_ports or not (surely_runs or all(_has_empty(port, plan) for port in plan.used_ports)):
        return None
    return plan


def _length(view: LoopView, types: Types) -> Dim:
    known = scalar(view.max_trip, view.opset)
    if isinstance(known, int):
        return known
    found = entries(view.max_trip, lambda value: types[value].shape, view.opset)
    return found[0] if found is not None and len(found) == 1 else None


def _can_count(opset: int, length: Dim) -> bool:
    return opset >= OLDEST_RANGE or (isinstance(length, int) and length <= LONGEST_CONSTANT)


def _keeps_its_type(carry: Carry, types: Types) -> bool:
    initial = types[carry.initial]
    same = all(
        initial.same_shape(types[value]) and initial.dtype == types[value].dtype
        for value in (carry.previous, carry.updated)
    )
    return same and _can_be_stacked(initial)


def _can_be_stacked(fact: TensorType) -> bool:
    return fact.shape is not None and fact.dtype not in (None, ir.DataType.STRING)


def _sizes(values: Iterable[ir.Value], types: Types) -> dict[str, tuple[ir.Value, int]]:
    return {
        dim: (value, axis)
        for value in values
        for axis, dim in enumerate(types[value].shape or ())
        if isinstance(dim, str)
    }


def _has_empty(port: Port, plan: Plan) -> bool:
    if isinstance(port, Carry):
        return True
    shape = plan.types[port.element].shape or ()
    return plan.view.opset >= OLDEST_IF and all(isinstance(dim, int) or dim in plan.sizes for dim in shape)


@dataclasses.dataclass(frozen=True)
class Element:
    """A body input of the Scan: a row, or (`read` None) the iteration number."""

    value: ir.Value
    read: RowRead | None


def _rewrite_body(plan: Plan) -> list[Element]:
    """Makes the body that of a Scan, and gives the inputs that follow the states."""
    view, types, body = plan.view, plan.types, plan.view.body
    rows: dict[object, Element] = {}
    for read in plan.reads:
        if read.what not in rows:
            rows[read.what] = Element(_declared(ir.Value(name=read.row.name), read.type(types)), read)
        replace_value(read.row, rows[read.what].value)
    _hold_true(view, types)
    body.outputs[:] = list(_own_outputs(body, list(body.outputs)[1:], states=len(view.carries)))
    drop_unused_nodes(body)
    elements = [*rows.values(), *([Element(view.iteration, None)] if is_used(view.iteration) else [])]
    body.inputs[:] = [*(carry.previous for carry in view.carries), *(element.value for element in elements)]
    _declare(plan)
    return elements


def _declare(plan: Plan) -> None:
    """Declares what is proven of the body's values: what a Loop's body declares wrong goes unnoticed, a Scan's not."""
    view, types = plan.view, plan.types
    for value in (*view.body.inputs, *(output for node in view.body for output in node.outputs)):
        _declared(value, types[value])
    returned = (*(carry.updated for carry in view.carries), *(output.element for output in view.scan_outputs))
    for value, original in zip(view.body.outputs, returned, strict=True):
        _declared(value, types[original])


def _hold_true(view: LoopView, types: Types) -> None:
    """Whatever reads the cond input reads true."""
    emit = Emitter(view.opset, types)
    shape = types[view.condition_in].shape or ()
    true = emit.tensor(ir.tensor(np.ones([1] * len(shape), np.bool_)))
    emit.insert_before(view.body[0])
    replace_value(view.condition_in, true)


def _own_outputs(body: ir.Graph, outputs: Sequence[ir.Value], states: int) -> Iterator[ir.Value]:
    """The values, copied where they are no node's, where they came before, or where they would be written in place."""
    seen: set[int] = set()
    for k, value in enumerate(outputs):
        own = defined_in(value, body) and value.producer() is not None and id(value) not in seen
        if not own or (k >= states and not is_copied(value)):
            copy = ir.node("Identity", inputs=[value])
            copy.outputs[0].type = value.type
            body.append(copy)
            value = copy.outputs[0]
        seen.add(id(value))
        yield value


def _declared(value: ir.Value, fact: TensorType) -> ir.Value:
    """The value, with what is proven of it as its declared type."""
    if fact.dtype is not None:
        value.type, value.shape = fact.public_type, fact.public_shape
    return value


def _scan(plan: Plan, elements: Sequence[Element], emit: Emitter) -> dict[int, ir.Value]:
    """Writes the Scan and what it reads; gives its outputs by the identity of their ports."""
    numbers = functools.cache(lambda: _numbers(plan, emit))
    series, axes, directions = [], [], []
    for element in elements:
        read = element.read
        if read is None:
            rank = plan.types[element.value].rank or 0
            series.append(emit.unsqueeze(numbers(), range(1, 1 + rank)))
            axes.append(0)
            directions.append(0)
            continue
        order, rows = read.order(plan.length, plan.types), read.data
        if order is None:
            rows = emit.op("Gather", [rows, _at(read.index, numbers(), emit)], {"axis": read.axis})
        rows, axis = _series(read, rows, plan.types, emit)
        series.append(rows)
        axes.append(axis)
        directions.append(int(order == -1))
    node = _scan_node(plan, series, axes, directions)
    emit.add(node)
    return {id(port): value for port, value in zip(plan.ports, node.outputs, strict=True)}


def _scan_node(plan: Plan, series: Sequence[ir.Value], axes: Sequence[int], directions: Sequence[int]) -> ir.Node:
    view, old = plan.view, plan.view.node
    old.attributes.pop("body")
    attributes = [ir.AttrGraph("body", view.body), ir.AttrInt64("num_scan_inputs", len(series))]
    for name, values in (("scan_input_axes", axes), ("scan_input_directions", directions)):
        if any(values):
            attributes.append(ir.AttrInt64s(name, values))
    node = ir.Node(
        "",
        "Scan",
        [*(carry.initial for carry in view.carries), *series],
        attributes,
        num_outputs=len(view.body.outputs),
        name=old.name,
        doc_string=old.doc_string,
        metadata_props=dict(old.metadata_props),
    )
    for value, port in zip(node.outputs, plan.ports, strict=True):
        _declared(value, _port_type(port, plan.length, plan.types))
    return node


def _port_type(port: Port, length: Dim, types: Types) -> TensorType:
    if isinstance(port, Carry):
        return types[port.initial]
    row = types[port.element]
    return TensorType(row.dtype, (length, *(row.shape or ())))


def _pays(read: RowRead, length: Dim, types: Types) -> bool:
    """Whether the rows are there as they are, or small enough to be copied."""
    if read.leads(types) and read.order(length, types) is not None:
        return True
    row = read.type(types).shape or ()
    return math.prod(dim for dim in row if isinstance(dim, int)) <= WIDEST_COPY


def _series(read: RowRead, rows: ir.Value, types: Types, emit: Emitter) -> tuple[ir.Value, int]:
    """The rows with the axes that an element has, and the axis to scan over: the first one where that costs no copy."""
    if read.axis and read.leads(types):
        rows = emit.squeeze(rows, list(range(read.axis)))
        return emit.unsqueeze(rows, list(range(1, 1 + read.axis + read.kept))), 0
    return emit.unsqueeze(rows, list(range(read.axis + 1, read.axis + 1 + read.kept))), read.axis


def _numbers(plan: Plan, emit: Emitter) -> ir.Value:
    """The iteration numbers, an int64 vector."""
    if isinstance(plan.length, int) and plan.length <= LONGEST_CONSTANT:
        return emit.const(np.arange(plan.length, dtype=np.int64))
    assert plan.view.max_trip is not None
    return emit.op("Range", [emit.const(0), to_scalar(emit, plan.view.max_trip), emit.const(1)])


def _at(index: Index, numbers: ir.Value, emit: Emitter) -> ir.Value:
    """The index in every iteration. Made from numbers that exist, so that no bound wraps around."""
    if index.stride != 1:
        numbers = emit.op("Mul", [numbers, emit.const(index.stride)])
    return emit.op("Add", [numbers, emit.const(index.first)]) if index.first else numbers


def _guarded(plan: Plan, elements: Sequence[Element], ports: Sequence[Port], emit: Emitter) -> dict[int, ir.Value]:
    """Writes an If: the Scan where an iteration runs, else what the loop gives without one."""
    inner, other = Emitter(emit.opset, Types()), Emitter(emit.opset, Types())
    outputs = _scan(plan, elements, inner)
    some = ir.Graph([], [outputs[id(port)] for port in ports], nodes=inner.nodes, name="some")
    keep_near(plan.view, some)
    nothing = [_without_iterations(port, plan, other) for port in ports]
    none = ir.Graph([], nothing, nodes=other.nodes, name="none")
    attributes = [ir.AttrGraph("then_branch", some), ir.AttrGraph("else_branch", none)]
    node = emit.add(ir.Node("", "If", [_runs(plan, emit)], attributes, num_outputs=len(ports)))
    length = plan.length if plan.condition is None else None
    for port, value in zip(ports, node.outputs, strict=True):
        _declared(value, _port_type(port, length, plan.types))
    return {id(port): value for port, value in zip(ports, node.outputs, strict=True)}


def _runs(plan: Plan, emit: Emitter) -> ir.Value:
    """Whether an iteration runs."""
    parts = [] if plan.condition is None else [to_scalar(emit, plan.condition)]
    if not isinstance(plan.length, int):
        assert plan.view.max_trip is not None
        parts.append(emit.op("Greater", [to_scalar(emit, plan.view.max_trip), emit.const(0)]))
    return parts[0] if len(parts) == 1 else emit.op("And", parts)


def _without_iterations(port: Port, plan: Plan, emit: Emitter) -> ir.Value:
    if isinstance(port, Carry):
        return _declared(emit.op("Identity", [port.initial]), plan.types[port.initial])
    row = plan.types[port.element]
    assert row.dtype is not None
    assert row.shape is not None
    least = [dim if isinstance(dim, int) else 1 for dim in row.shape]
    empty = emit.tensor(ir.tensor(np.empty([0, *least], row.dtype.numpy()), dtype=row.dtype))
    if all(isinstance(dim, int) for dim in row.shape):
        return empty
    extents = [
        to_vector(emit, emit.extent(*plan.sizes[dim])) if isinstance(dim, str) else emit.const([least[k]])
        for k, dim in enumerate(row.shape)
    ]
    shape = emit.op("Concat", [emit.const([0]), *extents], {"axis": 0})
    return _declared(emit.op("Expand", [empty, shape]), TensorType(row.dtype, (0, *row.shape)))

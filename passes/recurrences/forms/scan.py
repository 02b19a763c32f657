"""The smallest Scan for a recurrence: what does not depend on the state is read, not computed, in it.

Scan-9 and later. ONNX Runtime refuses a Scan without iterations, so one that may have none stands in an If; it gives
wrong values where a body output is a body input or is named twice, so the stacked state is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import to_vector
from looplift.passes.recurrences.forms.call import Call, Form, Results
from looplift.passes.recurrences.forms.pieces import Count, choose_at_run_time, nothing, some
from looplift.patterns.graph.types import TensorType, Types

Step = Callable[[Emitter, ir.Value, Sequence[ir.Value]], ir.Value]
"""Writes one iteration: the updated state of the previous one and the elements read."""


def guarded(call: Call, initial: ir.Value, count: Callable[[Emitter], Count], scan: Form) -> Form:
    """The Scan, where it may run no iteration: behind a test of the count."""

    def form(emit: Emitter) -> Results:
        trips = count(emit)
        empty = nothing(initial, final=call.wants_final, rows=trips.value if call.wants_rows else None)
        if trips.static == 0:
            return empty(emit)
        if trips.surely_runs:
            return scan(emit)
        return choose_at_run_time(emit, some(emit, trips.value), scan, empty)

    return form


def scan_over(
    call: Call, initial: ir.Value, fact: TensorType, series: Sequence[tuple[ir.Value, TensorType]], step: Step
) -> Form:
    """A Scan over `series`, each with time first.

    Args:
        call: gives the flags ``emit_previous`` and ``reverse``, and which outputs are wanted.
        initial: the state before the first iteration.
        fact: its type; the rank must be known.
        series: what is read, and the type of its elements.
        step: the body.
    """

    def form(emit: Emitter) -> Results:
        body = _body(emit.opset, call, fact, [kind for _, kind in series], step)
        reverse = int(call.flag("reverse"))
        attributes = [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(series))]
        if reverse:
            attributes.append(ir.AttrInt64s("scan_input_directions", [1] * len(series)))
            if call.wants_rows:
                attributes.append(ir.AttrInt64s("scan_output_directions", [1]))
        inputs = [initial, *(value for value, _ in series)]
        node = emit.add(ir.Node("", "Scan", inputs, attributes, num_outputs=len(body.outputs)))
        shape = fact.public_shape
        assert shape is not None
        for output, extents in zip(node.outputs, (shape, ir.Shape([None, *shape])), strict=False):
            output.type, output.shape = fact.public_type, extents
        return Results(node.outputs[0] if call.wants_final else None, node.outputs[1] if call.wants_rows else None)

    return form


def _body(opset: int, call: Call, fact: TensorType, kinds: Sequence[TensorType], step: Step) -> ir.Graph:
    inner = Emitter(opset, Types())
    previous = _input("previous", fact)
    elements = [_input(f"element_{k}", kind) for k, kind in enumerate(kinds)]
    updated = step(inner, previous, elements)
    outputs = [updated]
    if call.wants_rows:
        outputs.append(inner.op("Identity", [previous if call.previous else updated]))
    for output in outputs:
        output.type, output.shape = fact.public_type, fact.public_shape
    return ir.Graph([previous, *elements], outputs, nodes=inner.nodes, name="body")


def _input(name: str, fact: TensorType) -> ir.Value:
    return ir.Value(name=name, type=fact.public_type, shape=fact.public_shape)


def ticks(emit: Emitter, count: Count) -> tuple[ir.Value, TensorType]:
    """A series to scan over where nothing is read: one bool per iteration."""
    one = ir.AttrTensor("value", ir.tensor(np.ones(1, np.bool_)))
    value = emit.op("ConstantOfShape", [to_vector(emit, count.value)], {"value": one})
    return value, TensorType(ir.DataType.BOOL, ())


def is_larger(emit: Emitter, value: ir.Value, elements: int) -> ir.Value:
    """Whether a tensor has more elements than this (opset 9 or later)."""
    return emit.op("Greater", [emit.op("Size", [value]), emit.const(elements)])

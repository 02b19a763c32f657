"""One LSTM, GRU or RNN node for a loop around one step of it.

ONNX Runtime hands out zeros for the final states of an LSTM without a step, and ends the process for such a GRU: where
the loop may run zero times, the node stands in an If.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph import last_bits
from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms.pieces import either, some
from looplift.passes.vectorize import OverTime
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.slices import known_axes
from looplift.patterns.graph.values import maker
from looplift.patterns.loops.cells import FINAL, INITIAL, LENGTHS, ROWS, SERIES, STATES, CellState
from looplift.patterns.loops.trip import surely_runs


@dataclasses.dataclass(frozen=True)
class CellSeries:
    """A cell over all iterations.

    Attributes:
        node: the LSTM, GRU or RNN.
        rows: h after each step, ``[time, 1, batch, hidden]``.
        finals: each state after the last step, in the shape in which it was carried.
    """

    node: ir.Node
    rows: ir.Value
    finals: Sequence[ir.Value]

    def stack(self, output: int, over: OverTime, cell: ir.Node) -> ir.Value:
        """The stack of an output of the body's cell."""
        if output == ROWS:
            return over.emit.unsqueeze(self.rows, [1])
        if output == FINAL:
            return self.rows
        raise Refused(Refusal(f"{cell.op_type} hands out c after its last step only, but it is read in each", cell))


def all_steps(states: Sequence[CellState], over: OverTime) -> CellSeries:
    """The cell over all iterations, given each of its states."""
    cell, emit = states[0].node, over.emit
    if over.lead != 1:
        raise Refused(Refusal(f"{cell.op_type} in the body of a Scan with a batch axis", cell))
    hidden = cell.attributes.get_int("hidden_size", None) or _known_width(cell, over)
    inputs = _inputs(cell, over)
    around = {id(value): over.outside(value) for state in states for value in _others((*state.into, *state.out))}
    attributes = [each for each in cell.attributes.values() if each.name != "direction"]
    zero = _zero(cell, states[0], over)
    node = ir.Node("", cell.op_type, inputs, attributes, num_outputs=FINAL + len(states))
    last_bits.mark([node])

    def steps(write: Emitter) -> list[ir.Value]:
        for state in states:
            initial = _again(write, state.into, state.carries[state.place].initial, around)
            node.replace_input_with(INITIAL + state.place, initial)
        rows, *finals = write.add(node).outputs
        ends = [write.unsqueeze(finals[s.place], [1]) if s.output == ROWS else finals[s.place] for s in states]
        return [rows, *(_again(write, state.out, end, around) for state, end in zip(states, ends, strict=True))]

    def no_step(write: Emitter) -> list[ir.Value]:
        shape = write.op("Shape", [inputs[SERIES]])
        extents = [write.slice(shape, 0, 1, 0), write.const([1]), write.slice(shape, 1, 2, 0), write.const([hidden])]
        rows = write.op("ConstantOfShape", [write.op("Concat", extents, {"axis": 0})], {"value": zero})
        return [rows, *(state.carries[state.place].initial for state in states)]

    made = steps(emit) if surely_runs(over.trip) else either(emit, some(emit, over.trip_count()), steps, no_step)
    rows, *finals = made
    rows.shape = ir.Shape([None, 1, None, hidden])
    for value, state in zip(finals, states, strict=True):
        value.shape = over.types[state.carries[state.place].previous].public_shape
    return CellSeries(node, rows, finals)


def _inputs(cell: ir.Node, over: OverTime) -> list[ir.Value | None]:
    """What the node reads: the series, and the weights; its states are put in where it is written."""
    series = cell.inputs[SERIES]
    assert series is not None
    states = range(INITIAL, INITIAL + STATES[cell.op_type])
    inputs: list[ir.Value | None] = [_without_step_axis(over.stack(series), over)]
    for k, value in enumerate(cell.inputs[SERIES + 1 :], SERIES + 1):
        inputs.append(None if value is None or k in (LENGTHS, *states) else over.outside(value))
    return inputs


def _without_step_axis(stack: ir.Value, over: OverTime) -> ir.Value:
    """The stack ``[time, 1, batch, width]`` without its second axis, which an Unsqueeze may just have put in."""
    node = maker(stack, "Unsqueeze")
    if node is not None and known_axes(node, over.emit.opset) == [1]:
        assert node.inputs[0] is not None
        return node.inputs[0]
    return over.emit.squeeze(stack, [1])


def _known_width(cell: ir.Node, over: OverTime) -> int:
    shape = over.types[cell.outputs[FINAL]].shape if len(cell.outputs) > FINAL else None
    width = shape[-1] if shape else None
    if not isinstance(width, int):
        raise Refused(Refusal(f"the hidden size of {cell.op_type} is not known", cell))
    return width


def _zero(cell: ir.Node, state: CellState, over: OverTime) -> ir.Attr:
    dtype = over.types[state.carries[state.place].previous].dtype
    if dtype is None:
        raise Refused(Refusal(f"the element type of {cell.op_type} is not known", cell))
    return ir.AttrTensor("value", ir.tensor(np.zeros(1, dtype.numpy()), dtype=dtype))


def _others(nodes: Sequence[ir.Node]) -> Iterator[ir.Value]:
    """What nodes read beside their first input."""
    return (value for node in nodes for value in node.inputs[1:] if value is not None)


def _again(write: Emitter, nodes: Sequence[ir.Node], value: ir.Value, around: Mapping[int, ir.Value]) -> ir.Value:
    """Another value led through the same nodes, which read what stands outside."""
    for node in nodes:
        others = [None if other is None else around[id(other)] for other in node.inputs[1:]]
        value = write.add(ir.Node("", node.op_type, [value, *others], list(node.attributes.values()))).outputs[0]
    return value

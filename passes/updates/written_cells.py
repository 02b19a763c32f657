"""Cells that are written out become one step of LSTM, GRU or RNN, where bits are not asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around, types_inside
from looplift.passes.graph.edit import drop_unused_nodes, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.trip import trip_of
from looplift.patterns.recurrences.gates import Bias, Product
from looplift.patterns.recurrences.written_cells import WrittenCell, written_cells

OLDEST = 11
"""Opset from which negative places and axes count from the end."""


@dataclasses.dataclass(frozen=True)
class WrittenCells:
    """Rewrites the operators of a cell in a loop's body as one LSTM, GRU or RNN of one step.

    Legal if
    1. results may round differently: the operator adds the same products and biases, in an order of its own;
    2. the states are updated by the algebra of the operator, float32, of one or two axes, and keep their shape; nothing
       but the cell reads an LSTM's c (`patterns.recurrences.written_cells`);
    3. weights and biases are the same in every iteration; what else a gate adds does not depend on the states, and has
       as many rows as they have;
    4. the trip count is known before the loop starts, so that one node of the whole series may come of it.

    Does not preserve bits, nor NaN: ONNX Runtime's kernels of LSTM and GRU clamp what goes into a gate, and make a
    number of it. A weight put in as 0, where a gate does not read what others read, makes NaN of an infinite input.
    """

    exact: bool = True

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        if self.exact:
            return False

        def visit(view: View, _: object) -> bool:
            outer = types_around(model, view.node)
            if view.batched or view.opset < OLDEST or isinstance(trip_of(view, outer), Refusal):
                return False
            types = types_inside(view, outer)
            for cell in written_cells(view, Dependence(view, types), types):
                step = _Step.of(cell, view, types)
                if step is not None:
                    step.write()
                    name = cell.carries[0].previous.name
                    journal.did(
                        view.node, f"took what updates {name!r} for one step of {cell.op_type} (rounds differently)"
                    )
                    return True
            return False

        return sweep_loops(model, visit)


@dataclasses.dataclass(frozen=True)
class _Step:
    """One step of a cell, to be written into the body.

    Attributes:
        read: what the step reads, each once, with its width.
        hidden: how wide a state is.
        rank: how many axes a state has.
    """

    cell: WrittenCell
    view: View
    read: tuple[tuple[ir.Value, int], ...]
    hidden: int
    rank: int
    emit: Emitter

    @classmethod
    def of(cls, cell: WrittenCell, view: View, types: Types) -> _Step | None:
        """None where shapes do not fit, or are not known to."""
        state = types[cell.carries[0].previous].shape
        if state is None or any(
            not types[each.previous].same_shape(types[cell.carries[0].previous]) for each in cell.carries
        ):
            return None
        hidden = state[-1]
        read: dict[ir.Value, int] = {}
        for gate in cell.gates:
            for product in (*gate.inputs, *gate.states):
                shape = types[product.operand].shape
                if shape is None or shape[:-1] != state[:-1] or not isinstance(shape[-1], int):
                    return None
                if not _as_wide(product, hidden):
                    return None
            read |= {product.operand: types[product.operand].shape[-1] for product in gate.inputs}  # type: ignore[index, misc]
            biases = (*gate.biases, *gate.state_biases)
            if not all(bias.columns == (0, 1) or bias.columns[1] - bias.columns[0] == hidden for bias in biases):
                return None
        if not read or not isinstance(hidden, int):
            return None
        return cls(cell, view, tuple(read.items()), hidden, len(state), Emitter(view.opset, types))

    def write(self) -> None:
        """Puts the operator in front of what makes the updated h, and lets all read its states."""
        cell, emit = self.cell, self.emit
        updated = [source(carry.updated) for carry in cell.carries]
        anchor = updated[0].producer()
        assert anchor is not None
        front = [0] if self.rank == 2 else [0, 1]
        operands = [operand for operand, _ in self.read]
        joined = operands[0] if len(operands) == 1 else emit.op("Concat", operands, {"axis": self.rank - 1})
        states = [emit.unsqueeze(carry.previous, front) for carry in cell.carries]
        inputs = [emit.unsqueeze(joined, front), *self._weights(), None, *states]
        attributes: list[ir.Attr] = [ir.AttrInt64("hidden_size", self.hidden)]
        if cell.linear_before_reset:
            attributes.append(ir.AttrInt64("linear_before_reset", 1))
        node = emit.add(ir.Node("", cell.op_type, inputs, attributes, num_outputs=1 + len(states)))
        ends = [emit.squeeze(output, front) for output in node.outputs[1:]]
        emit.insert_before(anchor)
        for old, new in zip(updated, ends, strict=True):
            new.type, new.shape = old.type, old.shape
            replace_value(old, new)
        drop_unused_nodes(self.view.body)

    def _weights(self) -> list[ir.Value]:
        """W, R and B, with a direction's axis in front."""
        gates, emit = self.cell.gates, self.emit
        inputs = [self._joined([self._block(g.inputs, *each, g.negated) for each in self.read], 1) for g in gates]
        states = [self._block(g.states, None, self.hidden, g.negated) for g in gates]
        biases = [self._bias(g.biases, g.negated) for g in gates]
        biases += [self._bias(g.state_biases, g.negated) for g in gates]
        return [emit.unsqueeze(self._joined(parts, 0), [0]) for parts in (inputs, states, biases)]

    def _joined(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        return parts[0] if len(parts) == 1 else self.emit.op("Concat", parts, {"axis": axis})

    def _block(self, products: Sequence[Product], operand: ir.Value | None, width: int, negated: bool) -> ir.Value:
        """The weights ``[hidden, width]`` of what is read, or of the state; zeros where there are none."""
        found = [
            self._signed(self._matrix(product, width), product.negated != negated)
            for product in products
            if operand is None or product.operand is operand
        ]
        return self._sum(found) if found else self._constant(np.zeros((self.hidden, width), np.float32))

    def _matrix(self, product: Product, width: int) -> ir.Value:
        first, last = product.columns
        if product.weights is None:
            return self._constant(np.ascontiguousarray(np.eye(width, dtype=np.float32)[:, first:last].T))
        rows, columns = (1, 0) if product.transposed else (0, 1)
        part = self.emit.slice(product.weights, *product.rows, rows)
        part = self.emit.slice(part, first, last, columns)
        return part if product.transposed else self.emit.transpose(part, [1, 0])

    def _bias(self, biases: Sequence[Bias], negated: bool) -> ir.Value:
        """A vector ``[hidden]``."""
        emit = self.emit
        found = []
        for bias in biases:
            row = emit.slice(emit.op("Reshape", [bias.value, emit.const([-1])]), *bias.columns, 0)
            found.append(self._signed(emit.op("Expand", [row, emit.const([self.hidden])]), bias.negated != negated))
        return self._sum(found) if found else self._constant(np.zeros(self.hidden, np.float32))

    def _signed(self, value: ir.Value, negated: bool) -> ir.Value:
        return self.emit.op("Neg", [value]) if negated else value

    def _sum(self, values: Sequence[ir.Value]) -> ir.Value:
        total = values[0]
        for value in values[1:]:
            total = self.emit.op("Add", [total, value])
        return total

    def _constant(self, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> ir.Value:
        return self.emit.tensor(ir.tensor(array))


def _as_wide(product: Product, hidden: object) -> bool:
    return product.columns[1] - product.columns[0] == hidden

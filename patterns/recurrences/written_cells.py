"""Cells that are written out: the algebra of LSTM, GRU and RNN, as Keras, TensorFlow, JAX and dynamo export them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry, View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.recurrences.gates import Bias, Gate, Gated, Product, Reader, Term


@dataclasses.dataclass(frozen=True)
class Sums:
    """What one gate adds.

    Attributes:
        inputs: products of what does not depend on the state.
        states: products of h.
        biases: of the first; of the second where these are multiplied by a gate.
    """

    inputs: tuple[Product, ...]
    states: tuple[Product, ...]
    biases: tuple[Bias, ...]
    state_biases: tuple[Bias, ...] = ()
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class WrittenCell:
    """A cell's states, and its gates in the order of the operator (LSTM: i, o, f, c; GRU: z, r, h)."""

    op_type: str
    carries: tuple[Carry, ...]
    gates: tuple[Sums, ...]
    linear_before_reset: bool = False


def written_cells(view: View, dependence: Dependence, types: Types) -> Iterator[WrittenCell]:
    """The cells that are written out in a loop's body."""
    for carry in view.carries:
        shape = types[carry.previous].shape
        kept = types[carry.previous].same_shape(types[carry.updated])
        if shape is None or len(shape) not in (1, 2) or not isinstance(shape[-1], int) or not kept:
            continue
        if types[carry.previous].dtype != ir.DataType.FLOAT:
            continue
        cell = _lstm(carry, view, dependence, types) or _gru(carry, dependence, types) or _rnn(carry, dependence, types)
        if cell is not None:
            yield cell


def _factors(value: ir.Value, reader: Reader) -> tuple[ir.Value, ir.Value] | None:
    return _operands(value, reader, "Mul")


def _operands(value: ir.Value, reader: Reader, op_type: str) -> tuple[ir.Value, ir.Value] | None:
    node = reader.node(value, op_type)
    if node is None or len(node.inputs) != 2 or node.inputs[0] is None or node.inputs[1] is None:
        return None
    return source(node.inputs[0]), source(node.inputs[1])


def _ways(pair: tuple[ir.Value, ir.Value] | None) -> list[tuple[ir.Value, ir.Value]]:
    """Both orders of two operands."""
    return [] if pair is None else [pair, pair[::-1]]


def _sums(gate: Gate | None, activation: str, h: ir.Value, reader: Reader) -> Sums | None:
    """The sums of a gate with this activation, of products of h and of what does not depend on the states."""
    if gate is None or gate.activation != activation:
        return None
    terms = reader.terms(gate.value, gate.columns)
    return None if terms is None else _sorted(terms, h, reader, gate.negated)


def _sorted(terms: Sequence[Term], h: ir.Value, reader: Reader, negated: bool = False) -> Sums | None:
    products = [term for term in terms if isinstance(term, Product)]
    states = tuple(product for product in products if product.operand is h)
    inputs = tuple(product for product in products if product.operand is not h)
    if any(isinstance(term, Gated) for term in terms) or any(reader.moves(product.operand) for product in inputs):
        return None
    return Sums(inputs, states, tuple(term for term in terms if isinstance(term, Bias)), negated=negated)


def _lstm(c: Carry, view: View, dependence: Dependence, types: Types) -> WrittenCell | None:
    """``c' = sigmoid(f)*c + sigmoid(i)*tanh(g)``, ``h' = sigmoid(o)*tanh(c')``; nothing else reads c or c'."""
    updated = source(c.updated)
    for h in view.carries:
        reader = Reader(dependence, types, (h.previous, c.previous))
        for out, squashed in _ways(_factors(h.updated, reader)):
            tanh = reader.node(squashed, "Tanh")
            if h is c or tanh is None or source(tanh.inputs[0]) is not updated:  # type: ignore[arg-type]
                continue
            for kept, added in _ways(_operands(updated, reader, "Add")):
                forget = next((f for f, v in _ways(_factors(kept, reader)) if v is c.previous), None)
                for one, other in _ways(_factors(added, reader)):
                    gates = [
                        _sums(reader.gate(one), "Sigmoid", h.previous, reader),
                        _sums(reader.gate(out), "Sigmoid", h.previous, reader),
                        None if forget is None else _sums(reader.gate(forget), "Sigmoid", h.previous, reader),
                        _sums(reader.gate(other), "Tanh", h.previous, reader),
                    ]
                    found = tuple(gate for gate in gates if gate is not None)
                    if len(found) == 4 and _read_once(c.previous) and _read_once(updated):
                        return WrittenCell("LSTM", (h, c), found)
    return None


def _read_once(value: ir.Value) -> bool:
    """Whether one node reads the value, copies aside."""
    readers = list(value.uses())
    if value.is_graph_output():
        readers = [use for use in readers if use[0].op_type != "Identity"]
    copies = [node for node, _ in readers if node.op_type == "Identity"]
    plain = len(readers) - len(copies)
    through = [_read_once(node.outputs[0]) for node in copies if node.outputs[0].uses()]
    return plain + len(through) == 1 and all(through)


def _rnn(h: Carry, dependence: Dependence, types: Types) -> WrittenCell | None:
    """``h' = tanh(sums)``: of other activations the interpreter knows nothing."""
    reader = Reader(dependence, types, (h.previous,))
    sums = _sums(reader.gate(h.updated), "Tanh", h.previous, reader)
    if sums is None or not sums.states or not sums.inputs:
        return None
    return WrittenCell("RNN", (h,), (sums,))


def _gru(h: Carry, dependence: Dependence, types: Types) -> WrittenCell | None:
    """``h' = (1 - z)*n + z*h`` with ``z = sigmoid``, ``n = tanh``; or ``n + z*(h - n)``, or the other way round."""
    reader = Reader(dependence, types, (h.previous,))
    for update, value in _mixed(h, reader):
        z = _sums(update, "Sigmoid", h.previous, reader)
        candidate = reader.gate(value)
        if z is None or candidate is None or candidate.activation != "Tanh":
            continue
        terms = reader.terms(candidate.value, candidate.columns)
        found = None if terms is None else _reset(terms, h.previous, reader)
        if found is not None:
            reset, state, linear = found
            return WrittenCell("GRU", (h,), (z, reset, state), linear_before_reset=linear)
    return None


def _mixed(h: Carry, reader: Reader) -> Iterator[tuple[Gate | None, ir.Value]]:
    """The gate that keeps h, and the candidate, for each way in which the update may mix them."""
    for one, other in _ways(_operands(h.updated, reader, "Add")):
        for keep, state in _ways(_factors(one, reader)):
            if state is not h.previous:
                continue
            for take, candidate in _ways(_factors(other, reader)):
                if _rest(take, keep, reader):
                    yield reader.gate(keep), candidate
                elif _rest(keep, take, reader):
                    yield _opposite(reader.gate(take)), candidate
        for gate, difference in _ways(_factors(other, reader)):
            sides = _operands(difference, reader, "Sub")
            if sides == (h.previous, one):
                yield reader.gate(gate), one
            elif sides is not None and one is h.previous and sides[1] is h.previous:
                yield _opposite(reader.gate(gate)), sides[0]


def _rest(value: ir.Value, of: ir.Value, reader: Reader) -> bool:
    """Whether the value is 1 less the other."""
    sides = _operands(value, reader, "Sub")
    return sides is not None and sides[1] is source(of) and scalar(sides[0], reader.opset) == 1


def _opposite(gate: Gate | None) -> Gate | None:
    """``1 - sigmoid(x)`` is ``sigmoid(-x)``."""
    return None if gate is None else dataclasses.replace(gate, negated=not gate.negated)


def _reset(terms: list[Term], h: ir.Value, reader: Reader) -> tuple[Sums, Sums, bool] | None:
    """The reset gate, the candidate's sums, and whether h is multiplied with its weights before the gate."""
    gated = [term for term in terms if isinstance(term, Gated)]
    rest = [term for term in terms if not isinstance(term, Gated)]
    if len(gated) == 1:
        reset = _sums(gated[0].gate, "Sigmoid", h, reader)
        inner, outer = _sorted(gated[0].terms, h, reader), _sorted(rest, h, reader)
        if reset is None or inner is None or outer is None or inner.inputs or outer.states or not inner.states:
            return None
        return reset, Sums(outer.inputs, inner.states, outer.biases, inner.biases), True
    products = [term for term in rest if isinstance(term, Product) and reader.moves(term.operand)]
    operands = {id(term.operand): term.operand for term in products}
    if gated or len(operands) != 1:
        return None
    (operand,) = operands.values()
    for gate, state in _ways(_factors(operand, reader)):
        reset = _sums(reader.gate(gate), "Sigmoid", h, reader)
        if state is h and reset is not None:
            others = _sorted([term for term in rest if term not in products], h, reader)
            return None if others is None else (reset, dataclasses.replace(others, states=tuple(products)), False)
    return None


__all__ = ["Sums", "WrittenCell", "written_cells"]

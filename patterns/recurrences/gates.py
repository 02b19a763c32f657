"""Sums in front of a gate: products of what a cell reads and of its state with weights that never change, and biases.

``MatMul(x, W) + MatMul(h, R) + b`` in the spellings of exporters: Gemm, one product for all gates that is split behind,
one for each gate, one of x and h joined. Read as numbers are: the order of additions is not kept.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.slices import slice_bounds
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import source
from looplift.patterns.loops.dependence import Dependence

Span = tuple[int, int]
"""From which entry of an axis to which."""


@dataclasses.dataclass(frozen=True)
class Product:
    """``operand @ weights[rows, columns]``; without weights the operand's columns themselves."""

    operand: ir.Value
    weights: ir.Value | None
    rows: Span
    columns: Span
    transposed: bool = False
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class Bias:
    """Entries of a vector that never changes; a scalar (or one entry) counts for each."""

    value: ir.Value
    columns: Span
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class Gated:
    """``sigmoid(gate) * sum``, which a GRU adds."""

    gate: Gate
    terms: tuple[Term, ...]


Term = Product | Bias | Gated


@dataclasses.dataclass(frozen=True)
class Gate:
    """What an activation is applied to: the columns of a value."""

    activation: str
    value: ir.Value
    columns: Span
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads sums and gates of one loop's body.

    Attributes:
        dependence: of the body.
        types: with those of the body.
        states: the body inputs that hold the cell's states.
    """

    dependence: Dependence
    types: Types
    states: tuple[ir.Value, ...]

    @property
    def opset(self) -> int:
        """Of the default domain."""
        return self.dependence.view.opset

    def width(self, value: ir.Value) -> int | None:
        """The last extent, if it is a number."""
        shape = self.types[value].shape
        return shape[-1] if shape and isinstance(shape[-1], int) else None

    def moves(self, value: ir.Value) -> bool:
        """Whether the value depends on a state."""
        return any(self.dependence.reaches(state, value) for state in self.states)

    def node(self, value: ir.Value, *op_types: str) -> ir.Node | None:
        """The node of the body that makes the value, copies aside, if it is one of these."""
        node = source(value).producer()
        if not is_standard(node, *op_types) or has_references(node) or node.graph is not self.dependence.view.body:
            return None
        return node

    def gate(self, value: ir.Value) -> Gate | None:
        """The value as an activation of columns of a sum."""
        columns: Span | None = None
        activation = ""
        while True:
            value = source(value)
            part = self._part(value)
            node = self.node(value, "Sigmoid", "Tanh")
            if part is not None:
                value, first, last = part
                columns = (first, last) if columns is None else (first + columns[0], first + columns[1])
            elif node is not None and not activation and node.inputs[0] is not None:
                activation, value = node.op_type, node.inputs[0]
            else:
                break
        width = self.width(value)
        if not activation or width is None:
            return None
        return Gate(activation, value, columns or (0, width))

    def _part(self, value: ir.Value) -> tuple[ir.Value, int, int] | None:
        """What the value is columns of, and which."""
        node = self.node(value, "Split", "Slice")
        whole = None if node is None else node.inputs[0]
        width = None if whole is None else self.width(whole)
        rank = self.types[whole].rank if whole is not None else None
        if node is None or whole is None or width is None or rank is None:
            return None
        if node.op_type == "Slice":
            bounds = slice_bounds(node, self.opset).each()
            if bounds is None or len(bounds) != 1 or bounds[0][3] != 1 or bounds[0][2] not in (-1, rank - 1):
                return None
            first, last, _ = slice(*bounds[0][:2]).indices(width)
            return (whole, first, last) if first < last else None
        if node.attributes.get_int("axis", 0) not in (-1, rank - 1):
            return None
        widths = [self.width(output) for output in node.outputs]
        place = source(value).index() or 0
        before = [each for each in widths[: place + 1] if each is not None]
        return (whole, sum(before[:-1]), sum(before)) if len(before) == place + 1 else None

    def terms(self, value: ir.Value, columns: Span, *, negated: bool = False) -> list[Term] | None:
        """The sum that these columns of a value are; None if it is none of this kind."""
        value = source(value)
        if self.dependence.invariant(value):
            return self._bias(value, columns, negated)
        part = self._part(value)
        if part is not None:
            whole, first, _ = part
            return self.terms(whole, (first + columns[0], first + columns[1]), negated=negated)
        node = self.node(value, "Add", "Sub", "MatMul", "Gemm", "Mul", "Neg")
        if node is not None:
            found = self._computed(node, columns, negated)
            if found is not None:
                return found
        if self.moves(value) or self.width(value) is None:
            return None
        return [Product(value, None, (0, 0), columns, negated=negated)]

    def _bias(self, value: ir.Value, columns: Span, negated: bool) -> list[Term] | None:
        shape = self.types[value].shape
        if shape is None or any(dim != 1 for dim in shape[:-1]):
            return None
        return [Bias(value, columns if shape and shape[-1] != 1 else (0, 1), negated)]

    def _computed(self, node: ir.Node, columns: Span, negated: bool) -> list[Term] | None:
        first, second = ([*node.inputs, None])[:2]
        assert first is not None
        if node.op_type == "Neg":
            return self._side(node, first, columns, not negated)
        if second is None:
            return None
        if node.op_type in ("Add", "Sub"):
            left = self._side(node, first, columns, negated)
            right = self._side(node, second, columns, negated != (node.op_type == "Sub"))
            return None if left is None or right is None else [*left, *right]
        if node.op_type == "Mul":
            return self._gated(node, columns, negated)
        return self._product(node, first, second, columns, negated)

    def _side(self, node: ir.Node, value: ir.Value, columns: Span, negated: bool) -> list[Term] | None:
        """An operand of a sum: of the sum's shape, or a bias."""
        same = self.types[value].same_shape(self.types[node.outputs[0]])
        return self.terms(value, columns, negated=negated) if same or self.dependence.invariant(value) else None

    def _gated(self, node: ir.Node, columns: Span, negated: bool) -> list[Term] | None:
        for k in (0, 1):
            one, other = node.inputs[k], node.inputs[1 - k]
            if one is None or other is None or negated or columns != (0, self.width(node.outputs[0])):
                return None
            gate, terms = self.gate(one), self.terms(other, columns) if self.moves(other) else None
            if gate is not None and gate.activation == "Sigmoid" and terms is not None:
                return [Gated(gate, tuple(terms))]
        return None

    def _product(
        self, node: ir.Node, left: ir.Value, weights: ir.Value, columns: Span, negated: bool
    ) -> list[Term] | None:
        transposed = False
        terms: list[Term] = []
        if node.op_type == "Gemm":
            plain = node.attributes.get_float("alpha", 1.0) == 1 and node.attributes.get_float("beta", 1.0) == 1
            if not plain or node.attributes.get_int("transA", 0) != 0:
                return None
            transposed = node.attributes.get_int("transB", 0) == 1
            bias = node.inputs[2] if len(node.inputs) > 2 else None
            added = [] if bias is None else self._side(node, bias, columns, negated)
            if added is None:
                return None
            terms += added
        if not self.dependence.invariant(weights) or self.types[weights].rank != 2:
            return None
        row = 0
        for operand in self._joined(left):
            width = self.width(operand)
            if width is None:
                return None
            terms.append(Product(source(operand), weights, (row, row + width), columns, transposed, negated))
            row += width
        return terms

    def _joined(self, value: ir.Value) -> list[ir.Value]:
        """The parts that a value joins along its last axis."""
        node, rank = self.node(value, "Concat"), self.types[value].rank
        if node is None or rank is None or node.attributes.get_int("axis", 0) not in (-1, rank - 1):
            return [value]
        return [part for operand in node.inputs if operand is not None for part in self._joined(operand)]


__all__ = ["Bias", "Gate", "Gated", "Product", "Reader", "Span", "Term"]

"""One recurrence node that is to be written in standard operators, and what is known of it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.own_nodes import flag
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import is_used

FACTS = "looplift.facts"
"""Key in a node's ``meta`` of what the lift knew of its inputs, as pairs: more than can be written into a model."""


@dataclasses.dataclass(frozen=True)
class Results:
    """The outputs of a recurrence: the last state, and the stacked states; None if not wanted."""

    final: ir.Value | None
    rows: ir.Value | None


Form = Callable[[Emitter], Results]
"""A way to compute a recurrence; it writes nodes and gives the outputs that are wanted."""
Choice = Form | Refusal


@dataclasses.dataclass(frozen=True)
class Call:
    """A node of ``ai.looplift``.

    Attributes:
        node: the node.
        opset: version of the standard operators in its graph.
        facts: the types of its inputs.
        wants_final: whether the last state is read.
        wants_rows: whether the stacked states are read.
    """

    node: ir.Node
    opset: int
    facts: tuple[TensorType, ...]
    wants_final: bool = True
    wants_rows: bool = True

    @classmethod
    def of(cls, node: ir.Node, opset: int) -> Call:
        """A node that stands in a graph: only the outputs that are read are wanted."""
        known = Types({id(value): fact for value, fact in node.meta.get(FACTS, ())})
        facts = tuple(known[value] for value in node.inputs)
        final, rows = [k < len(node.outputs) and is_used(node.outputs[k]) for k in range(2)]
        return cls(node, opset, facts, final, rows)

    def input(self, index: int) -> ir.Value:
        """An input that must be given."""
        value = self.node.inputs[index]
        assert value is not None
        return value

    def flag(self, name: str) -> bool:
        """An attribute that is 0 or 1, 0 by default."""
        return flag(self.node, name)

    def number(self, index: int) -> int | bool | float | None:
        """The value of an input of one element, where it is constant."""
        return scalar(self.node.inputs[index], self.opset)

    @functools.cached_property
    def previous(self) -> bool:
        """Whether the rows are the states before each step."""
        return self.flag("emit_previous")

    def refusal(self, reason: str) -> Refusal:
        """Why this op has no form here."""
        return Refusal(f"{self.node.op_type} in standard ops {reason}")


def size(fact: TensorType) -> int | None:
    """The number of elements, if known."""
    if fact.shape is None:
        return None
    extents = [dim for dim in fact.shape if isinstance(dim, int)]
    return math.prod(extents) if len(extents) == len(fact.shape) else None


def absorbs(state: TensorType, other: TensorType) -> bool:
    """Whether the state has, for certain, the shape to which it and `other` broadcast."""
    if size(other) == 1 and other.shape == ():
        return True
    if state.shape is None or other.shape is None or len(other.shape) > len(state.shape):
        return False
    pairs = zip(reversed(other.shape), reversed(state.shape), strict=False)
    return all(theirs == 1 or (theirs is not None and theirs == ours) for theirs, ours in pairs)

"""States of a recurrent cell: each iteration runs one step of an LSTM, GRU or RNN, from where the last one ended.

Between a carried value and the operand or result of the cell stand only operators that keep the elements in order
(Squeeze, Unsqueeze, Reshape and the like). The operator wants its states as ``[1, batch, hidden]``, so the state that
one step hands out is the one that the next step gets, whatever shape it was carried in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir

from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import Trait, has, has_references, is_standard
from looplift.patterns.graph.refusal import Refusal, label
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.dependence import Dependence

STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}
"""How many states each of these operators carries from step to step: h, and c of an LSTM."""

SERIES, LENGTHS, INITIAL = 0, 4, 5
"""Inputs: what the steps read, how many each batch entry takes, and the first of the initial states."""

ROWS, FINAL = 0, 1
"""Outputs: h of every step, and the first of the final states."""

PLACES = {ROWS: 0, FINAL: 0, FINAL + 1: 1}
"""Which state each output is: after one step the rows are the final h."""


@dataclasses.dataclass(frozen=True)
class CellState:
    """v' = the state after one step of a cell that starts at v.

    Attributes:
        node: the cell.
        place: 0 for h, 1 for c.
        output: which output of the cell becomes the updated value.
        carries: of all its states.
        into: the nodes that lead from the carried value to the cell, in order.
        out: those that lead from the cell to the updated value, in order.
    """

    node: ir.Node
    place: int
    output: int
    carries: tuple[Carry, ...]
    into: tuple[ir.Node, ...]
    out: tuple[ir.Node, ...]

    def __str__(self) -> str:
        return f"{'hc'[self.place]} of the {label(self.node)}, one step an iteration"


@dataclasses.dataclass(frozen=True)
class _Way:
    """Where a value comes from, and the nodes from there to it."""

    origin: ir.Value
    nodes: tuple[ir.Node, ...]


def cell_state(carry: Carry, dependence: Dependence, types: Types) -> CellState | Refusal | None:
    """The cell whose state a carry is; why it is none, though a cell makes it; None if none does.

    1. The cell takes one step forward, of every batch entry, in one direction, batch not first.
    2. Each of its states comes from a carry, and goes back to the same one.
    3. Its weights are the same in every iteration; what the step reads does not depend on its states.
    """
    way = _way(carry.updated, dependence, types)
    node = way.origin.producer()
    if not is_standard(node, *STATES) or node.graph is not dependence.view.body:
        return None
    if not dependence.reaches(carry.previous, carry.updated):
        return None
    output = way.origin.index() or 0
    place = PLACES[output]
    carries = [_carry_at(node, k, dependence, types) for k in range(STATES[node.op_type])]
    found = carries[place]
    if isinstance(found, Carry) and found is not carry:
        found = Refusal(f"the state of {node.op_type} goes on as another carried value", node)
    refusal = next((each for each in (found, *carries) if isinstance(each, Refusal)), None)
    refusal = refusal or _reads(node, carries, dependence) or _one_step(node, dependence, types)
    if refusal is not None:
        return refusal
    into = _way(_input(node, INITIAL + place), dependence, types).nodes
    return CellState(node, place, output, tuple(each for each in carries if isinstance(each, Carry)), into, way.nodes)


def _input(node: ir.Node, k: int) -> ir.Value | None:
    return node.inputs[k] if k < len(node.inputs) else None


def _carry_at(node: ir.Node, place: int, dependence: Dependence, types: Types) -> Carry | Refusal:
    """The carry that a state of the cell comes from and goes back to."""
    initial, name = _input(node, INITIAL + place), "hc"[place]
    if initial is None:
        return Refusal(f"{node.op_type} starts each step with {name} = 0", node)
    origin = _way(initial, dependence, types).origin
    carry = next((each for each in dependence.view.carries if each.previous is origin), None)
    if carry is None:
        return Refusal(f"{name} of {node.op_type} is computed from more than a carried value", node)
    made = _way(carry.updated, dependence, types).origin
    if made.producer() is not node or PLACES[made.index() or 0] != place:
        return Refusal(f"{name} of {node.op_type} is changed before it is carried on", node)
    return carry


def _one_step(node: ir.Node, dependence: Dependence, types: Types) -> Refusal | None:
    """Why the cell is not one step for every batch entry, forward along the loop."""
    if has_references(node):
        return Refusal(f"an attribute of {node.op_type} is a reference to a function's", node)
    direction = node.attributes.get_string("direction", "forward")
    if direction not in ("forward", "reverse"):  # of one step they are the same
        return Refusal(f"{node.op_type} is {direction}", node)
    if node.attributes.get_int("layout", 0):
        return Refusal(f"{node.op_type} has the batch first (layout 1)", node)
    series = types[node.inputs[SERIES]].shape
    if series is None or len(series) != 3 or series[0] != 1:
        return Refusal(f"{node.op_type} may take more than one step an iteration", node)
    lengths = _input(node, LENGTHS)
    array = constant(lengths, dependence.view.opset)
    if lengths is not None and (array is None or (array != 1).any()):
        return Refusal(f"sequence_lens of {node.op_type} may be other than 1", node)
    return None


def _reads(node: ir.Node, carries: list[Carry | Refusal], dependence: Dependence) -> Refusal | None:
    """Why what the cell reads is no series, or its weights change."""
    for k, value in enumerate(node.inputs):
        if value is None or k == SERIES or INITIAL <= k < INITIAL + STATES[node.op_type]:
            continue
        if not dependence.invariant(value):
            return Refusal(f"the weights of {node.op_type} change from one iteration to the next", node)
    series = node.inputs[SERIES]
    assert series is not None
    for carry in carries:
        if isinstance(carry, Carry) and dependence.reaches(carry.previous, series):
            return Refusal(f"what {node.op_type} reads depends on its own state", node)
    return None


def _way(value: ir.Value | None, dependence: Dependence, types: Types) -> _Way:
    """Back to where a value comes from, through operators that keep the elements in order."""
    assert value is not None
    nodes: list[ir.Node] = []
    while is_standard(node := value.producer()) and node.graph is dependence.view.body:
        data = node.inputs[0] if node.inputs else None
        if data is None or not _keeps_order(node, dependence, types):
            break
        nodes.append(node)
        value = data
    return _Way(value, tuple(reversed(nodes)))


def _keeps_order(node: ir.Node, dependence: Dependence, types: Types) -> bool:
    """Whether the node has all elements of its first input, in order; what else it reads is the same every time."""
    if has_references(node):
        return False
    if not all(other is None or dependence.invariant(other) for other in node.inputs[1:]):
        return False
    rule = _RULES.get(node.op_type)
    return has(node, Trait.RESHAPES) or (rule is not None and rule(node, dependence.view.opset, types))


def _same_type(node: ir.Node, opset: int, types: Types) -> bool:
    before = types[node.inputs[0]].dtype
    return before is not None and before == types[node.outputs[0]].dtype


def _moves_ones(node: ir.Node, opset: int, types: Types) -> bool:
    """A Transpose that only axes of extent 1 change their place in."""
    shape = types[node.inputs[0]].shape
    if shape is None:
        return False
    perm = node.attributes.get_ints("perm", list(reversed(range(len(shape)))))
    wide = [axis for axis in perm if shape[axis] != 1]
    return wide == sorted(wide)


def _takes_all(node: ir.Node, opset: int, types: Types) -> bool:
    """A Gather of the only entry along an axis."""
    shape, index = types[node.inputs[0]].shape, constant(node.inputs[1], opset)
    axis = node.attributes.get_int("axis", 0)
    if shape is None or index is None or not -len(shape) <= axis < len(shape):
        return False
    return shape[axis] == 1 and index.size == 1 and bool(((index == 0) | (index == -1)).all())


_RULES: dict[str, Callable[[ir.Node, int, Types], bool]] = {
    "Cast": _same_type,
    "Gather": _takes_all,
    "Transpose": _moves_ones,
}

__all__ = ["CellState", "cell_state"]

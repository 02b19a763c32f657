"""Makes a carry that never changes a capture: the body then reads the initial value itself."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.graph.edit import rebuild, replace_value
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.values import defined_in, is_used, origin, source
from looplift.patterns.graph.view import Carry, LoopView, View, view_of


@dataclasses.dataclass(frozen=True)
class ForwardInvariantCarries:
    """Replaces every carry that keeps its initial value by that value, inside the body and after the loop.

    A carry keeps its initial value if

    1. its update is its previous value, through any chain of Identity and of casts to the type it has (carries
       that swap are not such), or
    2. its update is the initial value itself, read from outside, or a constant with the same type, shape and bits.

    and if

    3. its copies can be spelled, where a graph returns it: Identity takes sequences from opset 14, optionals from 16;
    4. the Scan is not of opset 8, where the initial value has a batch axis that the element lacks;
    5. no node that is kept, lest an engine round differently, reads the carry or its final value, directly or a copy
       (`Journal.keeps`): a weight that is read from outside may be packed.

    It is then dropped, if

    6. the loop keeps an output, and a Loop of opset 10 or older, which must carry something, keeps a carry; where
       not, only its readers change.

    Preserves bits, for any number of iterations: after none, the final value is the initial one too. Shapes that the
    body declares play no part.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place, until nothing more can be forwarded; tells whether anything was."""
        return sweep_loops(model, lambda view, _: not view.batched and _forward(view, journal))


def _forward(view: View, journal: Journal) -> bool:
    found = [
        carry
        for carry in view.carries
        if _keeps_initial(carry, view) and _can_copy(carry, view.opset) and not _is_kept(carry, journal)
    ]
    dropped = {carry.index for carry in _droppable(found, view)}
    changed = False
    for carry in found:
        name = carry.previous.name
        if _read_initial(carry) or carry.index in dropped:
            journal.did(view.node, f"read the invariant carry {name!r} from outside")
            changed = True
    if dropped:
        _drop(view.node, view.opset, dropped)
    return changed


def _is_kept(carry: Carry, journal: Journal) -> bool:
    """Whether a reader is to go on reading the carry."""
    return any(value is not None and journal.keeps_reader(value) for value in (carry.previous, carry.final))


def _keeps_initial(carry: Carry, view: View) -> bool:
    dtype = carry.initial.dtype or carry.previous.dtype
    copied = origin(carry.updated, lambda node: node.op_type == "Identity" or _casts_to(node, dtype))
    if copied is carry.previous or copied is carry.initial:
        return True
    if defined_in(source(carry.initial), view.body):  # not well-formed: an initial value stands outside
        return False
    return source(carry.updated) is source(carry.initial) or _equal_constants(carry, view.opset)


def _casts_to(node: ir.Node, dtype: ir.DataType | None) -> bool:
    """Whether the node casts to this type, which its operand has if the origin of that has."""
    if dtype is None:
        return False
    if node.op_type == "CastLike":
        like = node.inputs[1]
        return like is not None and like.dtype == dtype
    return node.op_type == "Cast" and node.attributes.get_int("to", None) == dtype


def _equal_constants(carry: Carry, opset: int) -> bool:
    before, after = constant(carry.initial, opset), constant(carry.updated, opset)
    if before is None or after is None:
        return False
    same_type = before.dtype == after.dtype and before.shape == after.shape
    return same_type and before.tobytes() == after.tobytes()


def _can_copy(carry: Carry, opset: int) -> bool:
    if opset >= 16 or not any(x is not None and x.is_graph_output() for x in (carry.previous, carry.final)):
        return True
    values = (carry.initial, carry.previous, carry.updated, carry.final)
    kinds = {type(value.type) for value in values if value is not None and value.type is not None}
    if not kinds:
        return False
    return kinds == {ir.TensorType} or (opset >= 14 and kinds == {ir.SequenceType})


def _read_initial(carry: Carry) -> bool:
    changed = False
    for value in (carry.final, carry.previous):
        if value is not None and is_used(value):
            replace_value(value, carry.initial)
            changed = True
    return changed


def _droppable(found: list[Carry], view: View) -> list[Carry]:
    left = len(view.carries) - len(found)
    carries_due = 1 if isinstance(view, LoopView) and view.opset < 11 else 0
    if left < carries_due or left + len(view.scan_outputs) < 1:
        return found[1:]
    return found


def _drop(node: ir.Node, opset: int, dropped: set[int]) -> None:
    view = view_of(node, opset)
    if isinstance(view, Refusal):
        raise ValueError(f"reading initial values broke a loop: {view}")
    kept = tuple(carry for carry in view.carries if carry.index not in dropped)
    rebuild(dataclasses.replace(view, carries=kept))

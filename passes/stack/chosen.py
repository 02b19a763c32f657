"""Elements that a loop stores by choice: computed beside the choice, in every iteration, with a flag for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.edit import copies, drop_unread_outputs, drop_unused_nodes
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import Journal
from looplift.patterns.graph.refusal import Refusal, label
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import Carry, LoopView, loop_view
from looplift.patterns.loops.rows.appends import Appended
from looplift.patterns.loops.speculation import Speculation, speculation
from looplift.patterns.loops.trip import trip_of


def speculated(view: LoopView, elements: Sequence[Appended], types: Types) -> Speculation | Refusal:
    """The nodes of branches that make the elements, and the conditions by which they are chosen, or why they can't be
    computed in every iteration."""
    trip, always = trip_of(view, types), Speculation((), types)
    for element in elements:
        if not element.path:
            continue
        if isinstance(trip, Refusal):
            return trip
        conditions = [condition for choice, _ in element.path if (condition := choice.inputs[0]) is not None]
        more = speculation([element.value, *conditions], element.path, view, always.types, trip)
        if isinstance(more, Refusal):
            return more
        always = Speculation((*always.nodes, *more.nodes), more.types)
    return Speculation(tuple(dict.fromkeys(always.nodes)), always.types)


def kept_in_branches(always: Speculation, journal: Journal) -> Refusal | None:
    """Why the nodes may not be computed elsewhere, if one of them is to stay where it is."""
    kept = next(filter(journal.keeps, always.nodes), None)
    return None if kept is None else Refusal(f"an engine may round {label(kept)} otherwise outside of the branch", kept)


@dataclasses.dataclass(frozen=True)
class Always:
    """What is stored, made outside of all branches.

    Attributes:
        view, carry: the loop and the carry as they are now.
        values: one for each element.
        flags: for each element whether it was chosen; none if all always are.
    """

    view: LoopView
    carry: Carry
    values: tuple[ir.Value, ...]
    flags: tuple[ir.Value, ...] = ()


def compute_always(view: LoopView, carry: Carry, elements: Sequence[Appended], always: Speculation) -> Always:
    """Computes beside the choices what is stored by choice.

    The choices give up what they made of the carry; the body returns it as it was, until the loop is rebuilt.
    """
    choices = {choice: depth for element in elements for depth, (choice, _) in enumerate(element.path)}
    if not choices:
        return Always(view, carry, tuple(element.value for element in elements))
    outermost = [node for node in view.body if choices.get(node) == 0]
    copied = copies(always.nodes, outermost[0])
    emit = Emitter(view.opset, Types())
    flags = tuple(_flag(emit, element, copied) for element in elements)
    emit.insert_before(outermost[-1])
    values = [copied.get(element.value, element.value) for element in elements]
    stored = (*values, *flags)
    body, before = view.body, len(view.body.outputs)
    body.outputs[:] = [carry.previous if value is carry.updated else value for value in body.outputs]
    # What is stored is an output for a while: it stays, and is the output of the choices as they become.
    body.outputs.extend(stored)
    drop_unused_nodes(body)
    for choice in sorted(choices, key=choices.__getitem__):
        if choice.graph is not None:  # else it went with the choice around it
            drop_unread_outputs(choice)
    stored = tuple(body.outputs[before:])
    body.outputs[:] = body.outputs[:before]
    now = loop_view(view.node, view.opset)  # the outputs of a choice are others now
    assert isinstance(now, LoopView), "only what the body computes has changed"
    same = next(other for other in now.carries if other.index == carry.index)
    return Always(now, same, stored[: len(values)], stored[len(values) :])


def _flag(emit: Emitter, element: Appended, copied: dict[ir.Value, ir.Value]) -> ir.Value:
    flag = None
    for choice, taken in element.path:
        condition = choice.inputs[0]
        assert condition is not None
        test = emit.op("Reshape", [copied.get(condition, condition), emit.const([])])
        test = test if taken else emit.op("Not", [test])
        flag = test if flag is None else emit.op("And", [flag, test])
    return emit.const(np.ones((), np.bool_)) if flag is None else flag

"""Elements that a loop stores by choice: computed beside the choice, in every iteration, with a flag for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.edit import copies, drop_unread_outputs
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import Journal
from looplift.patterns.graph.refusal import Refusal, label
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import Carry, LoopView
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


def compute_always(
    view: LoopView, carry: Carry, elements: Sequence[Appended], always: Speculation
) -> tuple[list[ir.Value], list[ir.Value]]:
    """What is stored, made outside of all branches, and for each element whether it was chosen (none: all always are).

    The choices give up what they made of the carry; the body returns it as it was, until the loop is rebuilt.
    """
    choices = {choice: depth for element in elements for depth, (choice, _) in enumerate(element.path)}
    if not choices:
        return [element.value for element in elements], []
    outermost = [node for node in view.body if choices.get(node) == 0]
    copied = copies(always.nodes, outermost[0])
    emit = Emitter(view.opset, Types())
    flags = [_flag(emit, element, copied) for element in elements]
    emit.insert_before(outermost[-1])
    view.body.outputs[:] = [carry.previous if value is carry.updated else value for value in view.body.outputs]
    for choice in sorted(choices, key=choices.__getitem__):
        if choice.graph is not None:  # else it went with the choice around it
            drop_unread_outputs(choice)
    return [copied.get(element.value, element.value) for element in elements], flags


def _flag(emit: Emitter, element: Appended, copied: dict[ir.Value, ir.Value]) -> ir.Value:
    flag = None
    for choice, taken in element.path:
        condition = choice.inputs[0]
        assert condition is not None
        test = emit.op("Reshape", [copied.get(condition, condition), emit.const([])])
        test = test if taken else emit.op("Not", [test])
        flag = test if flag is None else emit.op("And", [flag, test])
    return emit.const(np.ones((), np.bool_)) if flag is None else flag

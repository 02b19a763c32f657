"""Replaces recurrence nodes by standard operators.

Legality: each form computes the same roundings in the same order as the op's definition; which form is right is said
in the file of the op. A node that has none (one that came in with the model: the lift makes only nodes that have one,
see `lowering_refusal`) is replaced by its definition. Preserves bits on ONNX Runtime's CPU provider.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from looplift.passes.graph.edit import drop_unused_nodes, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.names import fix_names
from looplift.passes.journal import Journal
from looplift.passes.lift.definitions import add_definitions
from looplift.passes.lift.lift_recurrences import LIFTED_FROM
from looplift.passes.recurrences import add_step, linear_recurrence, prefix_sum
from looplift.passes.recurrences.forms.call import FACTS, Call, Choice
from looplift.passes.recurrences.forms.running_sum import CUMSUM_SINCE
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import with_inner
from looplift.patterns.graph.view import is_scan
from looplift.patterns.graph.walk import Place, loops, places
from looplift.runtime.ops import DOMAIN

CHOOSE: Mapping[str, Callable[[Call], Choice]] = {
    "AddStep": add_step.choose,
    "LinearRecurrence": linear_recurrence.choose,
    "PrefixSum": prefix_sum.choose,
}


def lowering_refusal(node: ir.Node, emit: Emitter) -> Refusal | None:
    """Why a recurrence node just written has no form in standard operators; None if it has one.

    What is known of its inputs is kept in the node for the lowering.
    """
    if node.domain != DOMAIN:
        return None
    facts = [(value, emit.type_of(value)) for value in node.inputs if value is not None]
    node.meta[FACTS] = facts
    known = Types({id(value): fact for value, fact in facts})
    choice = choose(Call(node, emit.opset, tuple(known[value] for value in node.inputs)))
    return choice if isinstance(choice, Refusal) else None


def choose(call: Call) -> Choice:
    """The form of a recurrence node, or why there is none."""
    choose_for = CHOOSE.get(call.node.op_type)
    return choose_for(call) if choose_for is not None else call.refusal("has no form")


@dataclasses.dataclass(frozen=True)
class LowerToStandard:
    """The pass; see the module's text."""

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Lowers every recurrence node of the model; returns whether there was any."""
        found, left = False, False
        for place in list(places(model)):
            drop_unused_nodes(place.graph)
            for node in [node for node in place.graph if node.domain == DOMAIN]:
                found = True
                left |= not _lower(node, place, journal)
        if left:
            _inline_definitions(model)
        return found


def _inline_definitions(model: ir.Model) -> None:
    add_definitions(model)
    InlinePass(lambda function: function.domain == DOMAIN)(model)
    for node, _ in loops(model):
        for output in node.outputs:
            output.name = output.name or None  # ONNX Runtime crashes on a loop that leaves an output out
    fix_names(model)


def _lower(node: ir.Node, place: Place, journal: Journal) -> bool:
    """Lowers one node; returns whether it has a form."""
    call = Call.of(node, place.opset)
    form = choose(call)
    if isinstance(form, Refusal):
        return False
    emit = Emitter(place.opset, Types({id(x): f for x, f in zip(node.inputs, call.facts, strict=True)}))
    results = form(emit)
    emit.insert_before(node)
    if LIFTED_FROM in node.metadata_props:
        for each in chain.from_iterable(map(with_inner, emit.nodes)):
            each.metadata_props[LIFTED_FROM] = node.metadata_props[LIFTED_FROM]
    _note(journal, call, emit.nodes)
    for old, new in zip(node.outputs, (results.final, results.rows), strict=False):
        if new is not None:
            new.type, new.shape = new.type or old.type, new.shape or old.shape
            replace_value(old, new)
    place.graph.remove(node, safe=True)
    return True


def _note(journal: Journal, call: Call, written: Sequence[ir.Node]) -> None:
    """Says in the report what the recurrence has become."""
    every = list(chain.from_iterable(map(with_inner, written)))
    scans = [each for each in every if is_scan(each)]
    sums = any(each.op_type == "CumSum" for each in every)
    ways = [way for way, taken in (("CumSum", sums), ("a Scan", scans)) if taken]
    action = f"{call.node.op_type} became {' or '.join(ways) or 'arithmetic'} in standard ops"
    if scans and call.opset < CUMSUM_SINCE and call.node.op_type != "LinearRecurrence":
        action += f" of opset {call.opset} (CumSum came with {CUMSUM_SINCE})"
    journal.came_from(call.node.metadata_props.get(LIFTED_FROM, ""), scans, action)

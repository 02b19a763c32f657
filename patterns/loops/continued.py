"""States that an inner recurrence carries on: each iteration of the loop runs it, from where the last one ended."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.own_nodes import initial, is_recurrence
from looplift.patterns.graph.refusal import label
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import Carry
from looplift.patterns.loops.dependence import Dependence


@dataclasses.dataclass(frozen=True)
class Continued:
    """v' = the state after all steps of a recurrence op that starts at v."""

    node: ir.Node

    def __str__(self) -> str:
        return f"carried on by the inner {label(self.node)}"


def continued(carry: Carry, dependence: Dependence) -> Continued | None:
    """The recurrence op in the body that takes a carry from its previous to its updated value; None if there is none.

    What the op reads besides may not depend on the carry.
    """
    updated = source(carry.updated)
    node = updated.producer()
    if node is None or not is_recurrence(node) or updated is not node.outputs[0]:
        return None
    if node.graph is not dependence.view.body or source(initial(node)) is not carry.previous:
        return None
    others = [value for value in node.inputs if value is not None and value is not initial(node)]
    return None if any(dependence.reaches(carry.previous, value) for value in others) else Continued(node)

"""Reads and stacks backwards inside the recurrence node instead of flipping tensors around it. Preserves bits."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import INT64_MIN
from looplift.patterns.graph.own_nodes import flag, is_recurrence, series
from looplift.patterns.graph.slices import slice_bounds
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import is_used, maker
from looplift.patterns.graph.walk import places


@dataclasses.dataclass(frozen=True)
class ReverseInNode:
    """``flip(R(v, flip(x)))`` becomes ``R(v, x)`` with attribute ``reverse``.

    Legality: (1) every input with a time axis is read backwards as a whole: a Slice by step -1 from the last row to
    before the first, along axis 0; (2) a node with ``reverse`` walks time backwards and stacks each state at its
    time, so its stack is the flip of what the node stacked before. Readers that do not flip it get a flip; the pass
    runs only where no more flips are left than before.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every node that qualifies; returns whether any did."""
        del journal
        changed = False
        for place in list(places(model)):
            for node in list(place.graph):
                if is_recurrence(node):
                    changed |= _reverse(node, place.opset)
        return changed


def _reverse(node: ir.Node, opset: int) -> bool:
    timed = [k for k, timed in series(node).items() if timed]
    inputs = [node.inputs[k] for k in timed]
    sources = [unflipped(value, opset) for value in inputs]
    if not sources or any(source is None for source in sources):
        return False
    stack = node.outputs[1]
    flips = [use.node for use in stack.uses() if unflipped(use.node.outputs[0], opset) is stack]
    plain = [use for use in stack.uses() if use.node not in flips]
    if not flips and (plain or stack.is_graph_output() or is_used(stack)):
        return False
    for k, source in zip(timed, sources, strict=True):
        node.replace_input_with(k, source)
    node.attributes.add(ir.AttrInt64("reverse", int(not flag(node, "reverse"))))
    _serve_plain_readers(node, stack, flips, opset)
    for flip in flips:
        replace_value(flip.outputs[0], stack)
    return True


def _serve_plain_readers(node: ir.Node, stack: ir.Value, flips: list[ir.Node], opset: int) -> None:
    """Readers that took the stack as it was get it flipped back."""
    plain = [(use.node, use.idx) for use in stack.uses() if use.node not in flips]
    if not plain and not stack.is_graph_output():
        return
    emit = Emitter(opset, Types())
    back = emit.flip(stack)
    anchor = node
    for new in emit.nodes:
        anchor.append(new)
        anchor = new
    if stack.is_graph_output():
        replace_value(stack, back)
        emit.nodes[-1].replace_input_with(0, stack)
    for reader, index in plain:
        reader.replace_input_with(index, back)


def unflipped(value: ir.Value | None, opset: int) -> ir.Value | None:
    """What the value is the flip of along axis 0, or None if it is no flip."""
    node = maker(value, "Slice")
    cuts = None if node is None else slice_bounds(node, opset).each()
    if node is None or cuts is None or len(cuts) != 1:
        return None
    start, end, axis, step = cuts[0]
    return node.inputs[0] if (start, axis, step) == (-1, 0, -1) and end <= INT64_MIN + 1 else None

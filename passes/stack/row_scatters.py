"""ScatterElements that write one whole row become ScatterND, which the other passes read."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.passes.stack.stacking import is_positive
from looplift.patterns.graph.operators import Trait, has, has_references, is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import origin
from looplift.patterns.graph.view import View
from looplift.patterns.graph.walk import Place
from looplift.patterns.loops.index import index_of

OLDEST = 11
"""Opset of ScatterND and ScatterElements."""


@dataclasses.dataclass(frozen=True)
class RowScatters:
    """Writes ``ScatterElements(data, indices, updates)`` of one row as ``ScatterND(data, [[index]], updates)``.

    Legal if
    1. axis 0 is written, without a reduction;
    2. `indices` are copies of one number that counts in the loop and is never negative (`patterns.loops.index`), where
       both operators take it, or fail, alike;
    3. `updates` have, for certain, the shape of one row of `data`, so that every element of the row is written once,
       and an element at least: of a row without one ScatterElements looks at no index, in range or not;
    4. the opset is 11 or later.

    Preserves bits: values are only stored.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such node in a loop's body, in place; whether there was one."""

        def visit(view: View, place: Place) -> bool:
            found = [node for node in view.body if is_standard(node, "ScatterElements")]
            if not found or place.opset < OLDEST:
                return False
            types = types_around(model, view.node).with_body(view)
            changed = any([_rewrite(node, view, types) for node in found])
            if changed:
                journal.did(view.node, "wrote whole rows by their number instead of element by element")
            return changed

        return sweep_loops(model, visit)


def _rewrite(node: ir.Node, view: View, types: Types) -> bool:
    if len(node.inputs) != 3 or has_references(node):
        return False
    data, indices, updates = node.inputs
    if node.attributes.get_int("axis", 0) != 0 or node.attributes.get_string("reduction", "none") != "none":
        return False
    whole, row, places = types[data].shape, types[updates].shape, types[indices].shape
    if not whole or not row or None in whole[1:] or row != (1, *whole[1:]) or places != row:
        return False
    if not is_positive(types[updates]):
        return False
    one = None if indices is None else origin(indices, lambda node: has(node, Trait.SPREADS))
    index = index_of(one, view, types)
    lowest = None if index is None else index.lowest(view)
    if one is None or lowest is None or lowest < 0:
        return False
    emit = Emitter(view.opset, types)
    number = emit.op("Reshape", [one, emit.const([1, 1])])
    place = emit.op("Cast", [number], {"to": int(ir.DataType.INT64)})
    written = emit.op("ScatterND", [data, place, updates])
    emit.insert_before(node)
    replace_value(node.outputs[0], written)
    node.graph.remove(node, safe=True)  # type: ignore[union-attr]
    return True

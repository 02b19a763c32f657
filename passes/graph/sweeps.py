"""Passes that go from loop to loop: what one of them changed is known when the next is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from looplift.passes.graph.body_types import enclosing, types_around, while_unchanged
from looplift.passes.graph.shapes import Names, feeding_loops, names_of, prove
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import View, well_formed
from looplift.patterns.graph.walk import Place, loops


def rewrite_loops(model: ir.Model, rewrite: Callable[[View, Types], ir.Node | None]) -> bool:
    """Calls `rewrite` on every well-formed Loop and Scan and the types around it, and again on the node it returns.

    Returns:
        Whether anything was rewritten.
    """
    extents = _Extents(model)
    with while_unchanged() as forget:
        for node, place in loops(model):
            if extents.follow_to(node):
                forget()
            new: ir.Node | None = node
            while new is not None and (view := well_formed(new, place.opset)) is not None:
                new = rewrite(view, types_around(model, new))
                if new is not None:
                    extents.changed = True
                    forget()
    return extents.changed


def sweep_loops(model: ir.Model, visit: Callable[[View, Place], bool]) -> bool:
    """Calls `visit` on the view of every well-formed Loop and Scan, over and over until it changes none.

    Returns:
        Whether anything was changed.
    """
    changed = False
    while _sweep(model, visit):
        changed = True
    return changed


def _sweep(model: ir.Model, visit: Callable[[View, Place], bool]) -> bool:
    extents = _Extents(model)
    with while_unchanged() as forget:
        for node, place in loops(model):
            if extents.follow_to(node):
                forget()
            view = well_formed(node, place.opset)
            if view is not None and visit(view, place):
                extents.changed = True
                forget()
    return extents.changed


class _Extents:
    """Names extents from a loop that was changed on to the next (`passes.graph.shapes.name_extents`).

    Loops that feed one another, as layers do, would else get to know only one layer a round what they read.
    """

    def __init__(self, model: ir.Model) -> None:
        self.changed = False
        self._model = model
        self._nodes: Iterator[ir.Node] = iter(model.graph)
        self._due: ir.Node | None = next(self._nodes, None)
        self._feeding: set[ir.Node] = set()
        self._names: Names | None = None

    def follow_to(self, loop: ir.Node) -> bool:
        """Does so up to the node of the model's graph that is this loop or holds it; whether anything got a name."""
        path = enclosing(self._model, loop)
        target, named = path[0][0] if path else loop, False
        if target.graph is not self._model.graph:
            return False
        if self.changed and not self._feeding:
            self._feeding, self._names = feeding_loops(self._model.graph), names_of(self._model.graph)
        while self._due is not None and self._due is not target:
            if self.changed and self._due.graph is target.graph and self._feeds_loops(self._due):
                names = self._names or names_of(self._model.graph)
                named |= prove([self._due], Types(), self._model.opset_imports.get("", 1), names)
            self._due = next(self._nodes, None)
        return named

    def _feeds_loops(self, node: ir.Node) -> bool:
        """Whether it did at the time of the first change; a node that came later does if what reads it does."""
        readers = (user for output in node.outputs for user, _ in output.uses())
        return node in self._feeding or any(user in self._feeding for user in readers)

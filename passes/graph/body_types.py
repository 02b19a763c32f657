"""Types around a loop: facts about the bodies of the loops that enclose it, not what those bodies declare."""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Callable, Container, Iterator

import onnx_ir as ir

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import nodes_within, subgraphs
from looplift.patterns.graph.view import View, well_formed
from looplift.patterns.graph.walk import GraphLike
from looplift.patterns.loops.rows.cuts import row_cuts
from looplift.patterns.loops.trip import trip_of
from looplift.runtime.ops import DOMAIN


def types_inside(view: View, types: Types) -> Types:
    """These facts and those of a loop's body, in which slices that are proven to cut one row do."""
    trip = trip_of(view, types)
    return types.with_body(view) if isinstance(trip, Refusal) else row_cuts(view, types, trip, certain=True)[1]


def types_around(model: ir.Model, node: ir.Node) -> Types:
    """The types that hold where `node` stands: of the bodies of all loops around it, from the outermost in."""
    types, kept = Types().while_unchanged(), _known.get()
    known = {} if kept is None else kept
    for outer, opset in enclosing(model, node):
        view = well_formed(outer, opset)
        if view is None:
            continue
        if outer not in known:
            known[outer] = types_inside(view, types)
        types = known[outer]
    return types.at_large()


_known: contextvars.ContextVar[dict[ir.Node, Types] | None] = contextvars.ContextVar("looplift.types", default=None)
"""The types inside loops, as long as nothing changes."""


@contextlib.contextmanager
def while_unchanged() -> Iterator[Callable[[], None]]:
    """Inside, what `types_around` finds is kept, until the function given is called: after every change.

    A nest of loops is else inferred anew for each loop in it.
    """
    found: dict[ir.Node, Types] = {}
    token = _known.set(found)
    try:
        yield found.clear
    finally:
        _known.reset(token)


def enclosing(model: ir.Model, node: ir.Node) -> list[tuple[ir.Node, int]]:
    """The nodes around this one, outermost first, each with its opset; none for a node that is not in the model."""
    roots = {id(root): (root, opset) for root, opset in _roots(model)}
    path = _way_up(node, roots)
    if path is None:
        for root, _ in roots.values():
            _note_owners(root)
        path = _way_up(node, roots)
    if path is None:
        return []
    opset = roots[id((path[0] if path else node).graph)][1]
    return [(outer, opset) for outer in path]


def _roots(model: ir.Model) -> Iterator[tuple[GraphLike, int]]:
    yield model.graph, model.opset_imports.get("", 1)
    for function in model.functions.values():
        if function.domain != DOMAIN:
            yield function.graph, function.opset_imports.get("", model.opset_imports.get("", 1))


_OWNERS: weakref.WeakKeyDictionary[ir.Graph, weakref.ref[ir.Node]] = weakref.WeakKeyDictionary()
"""The node that each inner graph was last seen in: the IR leads from a node to its graph, but not further up. A note
that is out of date is found out, since the node no longer holds the graph or is no longer in one."""


def _way_up(node: ir.Node, roots: Container[int]) -> list[ir.Node] | None:
    """The nodes around this one, outermost first, by what is noted; None where that leads to no root."""
    path: list[ir.Node] = []
    while node.graph is None or id(node.graph) not in roots:
        note = _OWNERS.get(node.graph) if isinstance(node.graph, ir.Graph) else None
        owner = note() if note is not None else None
        if owner is None or not any(inner is node.graph for inner in subgraphs(owner)):
            return None
        path.append(owner)
        node = owner
    return path[::-1]


def _note_owners(root: GraphLike) -> None:
    for node in nodes_within(root):
        for inner in subgraphs(node):
            _OWNERS[inner] = weakref.ref(node)

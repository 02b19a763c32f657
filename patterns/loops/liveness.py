"""Which values something observable depends on, through the ports of loops one by one.

Marking, as a garbage collector does: from what is observable, each value marks what it is computed from. A loop is
not one node here: a final value marks its initial value and its update, a body's carry the same, a stacked output
its element, a scan element what it is read from. So carries that only feed each other, or an unread port of a loop
within, are never marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import onnx_ir as ir

from looplift.patterns.graph.values import subgraphs
from looplift.patterns.graph.view import LoopView, View, well_formed

GraphLike: TypeAlias = "ir.Graph | ir.Function"


def _view(node: ir.Node, opset: int) -> View | None:
    """The view of a loop with ports that can go one by one; None for any other node."""
    view = well_formed(node, opset)
    return None if view is None or view.batched else view


class Liveness:
    """The live values of a graph and of the graphs in it, loop bodies included.

    Observable are the roots' outputs, and what nodes outside loops read that are not loops themselves. A loop that
    runs tests its exit, so M, cond and the body's cond live with its outputs. A live Loop of opset 10 or older keeps
    a carry, and a live Scan a scan input, which gives the length. All ports of a Scan of opset 8 are live with it.
    """

    def __init__(self, roots: Iterable[tuple[GraphLike, int]]) -> None:
        """Marks from these graphs, the main graph and functions, each with its version of the default domain."""
        self._views: list[View] = []
        self._computed_from: dict[int, list[ir.Value | None]] = {}
        self._live: dict[int, ir.Value] = {}
        for graph, opset in roots:
            self._learn(graph, opset)
            self._mark(self._observed(graph, opset))
        while due := [value for view in self._views for value in self._still_due(view)]:
            self._mark(due)

    def __contains__(self, value: ir.Value | None) -> bool:
        return value is not None and id(value) in self._live

    def _mark(self, values: Iterable[ir.Value | None]) -> None:
        pending = list(values)
        while pending:
            value = pending.pop()
            if value is not None and id(value) not in self._live:
                self._live[id(value)] = value
                pending.extend(self._computed_from.get(id(value), ()))

    def _learn(self, graph: GraphLike, opset: int) -> None:
        for node in graph:
            inner = list(subgraphs(node))
            view = _view(node, opset)
            if view is not None:
                self._learn_loop(view)
            else:
                self._learn_node(node, inner)
            for subgraph in inner:
                self._learn(subgraph, opset)

    def _learn_loop(self, view: View) -> None:
        self._views.append(view)
        test = [view.max_trip, view.condition, view.condition_out] if isinstance(view, LoopView) else []
        for carry in view.carries:
            for value in (carry.previous, carry.final):
                self._set(value, [carry.initial, carry.updated, *test])
        for output in view.scan_outputs:
            self._set(output.stacked, [output.element, *test])
        for item in view.scan_inputs:
            self._set(item.element, [item.outer])

    def _learn_node(self, node: ir.Node, inner: list[ir.Graph]) -> None:
        returned = [value for graph in inner for value in graph.outputs]
        for output in node.outputs:
            self._set(output, [*node.inputs, *returned])

    def _set(self, value: ir.Value | None, computed_from: list[ir.Value | None]) -> None:
        if value is not None:
            self._computed_from[id(value)] = computed_from

    def _observed(self, graph: GraphLike, opset: int) -> Iterator[ir.Value | None]:
        yield from graph.outputs
        for node in graph:
            if _view(node, opset) is None:
                yield from node.inputs
                for inner in subgraphs(node):
                    yield from self._observed(inner, opset)

    def _still_due(self, view: View) -> list[ir.Value]:
        """What a live loop must keep and has not got."""
        if not any(output in self for output in view.node.outputs):
            return []
        if isinstance(view, LoopView):
            bare = view.opset < 11 and not any(c.previous in self or c.final in self for c in view.carries)
            return [carry.previous for carry in view.carries[:1]] if bare else []
        bare = not any(item.element in self for item in view.scan_inputs)
        return [item.element for item in view.scan_inputs[:1]] if bare else []

"""Removes what nothing observable depends on: carries, scan outputs, scan inputs, body nodes, whole loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import onnx_ir as ir

from looplift.passes.graph.edit import drop_unused_nodes, rebuild, remove_node
from looplift.passes.journal import Journal
from looplift.patterns.graph.values import is_used, reads, subgraphs
from looplift.patterns.graph.view import ScanView, View, well_formed
from looplift.patterns.graph.walk import GraphLike, is_frozen, places
from looplift.patterns.loops.liveness import Liveness


@dataclasses.dataclass(frozen=True)
class DropDead:
    """Removes the dead parts of loops, in every graph.

    Observable are the node outputs that something reads and, in a Loop, the exit test. Dead are

    1. a carry that nothing observable depends on, be it through other carries or loops (`patterns.loops.liveness`), but
       a Loop of opset 10 or older keeps one;
    2. a scan output that nothing reads;
    3. a Scan's scan input whose elements nothing observable depends on, but one stays: it gives the length;
    4. nodes and initializers of a body that nothing reads;
    5. a loop none of whose outputs is read;
    6. nodes and initializers outside that only fed what was removed.

    A Scan of opset 8 keeps its inputs and outputs. Preserves bits; what could fail is removed too, so an error may
    become a result, and so may a loop that never ends.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place, until nothing dead is left; tells whether anything was."""
        changed = False
        while _sweep(model, journal):
            changed = True
        return changed


def _sweep(model: ir.Model, journal: Journal) -> bool:
    """One round, outer loops before inner ones: what an inner one frees is then unused already."""
    outermost = [place for place in places(model) if place.graph is model.graph or isinstance(place.graph, ir.Function)]
    live = Liveness((place.graph, place.opset) for place in outermost)
    changed = False
    for place in outermost:
        changed |= _drop_in(place.graph, place.opset, live, journal)
    return changed


def _drop_in(graph: GraphLike, opset: int, live: Liveness, journal: Journal) -> bool:
    changed = False
    for node in reversed(list(graph)):
        if node.graph is not None:  # else it went with what read it
            changed |= _drop_at(node, opset, live, journal)
    return changed


def _drop_at(node: ir.Node, opset: int, live: Liveness, journal: Journal) -> bool:
    """Drops what is dead of a node, if it is a loop, what only fed that, and then what is dead inside."""
    inner = list(subgraphs(node))
    view = well_formed(node, opset)
    changed = False
    if view is not None:
        read_before = list(reads(node))
        removed = not any(is_used(output) for output in node.outputs)
        if removed:
            journal.did(node, "removed: nothing reads it")
            remove_node(node)
        changed = removed or (not is_frozen(node) and _drop_from(view, live, journal))
        if changed:
            _drop_unused_upwards(read_before)
        if removed:
            return True
    for graph in inner:
        changed |= _drop_in(graph, opset, live, journal)
    return changed


def _drop_from(view: View, live: Liveness, journal: Journal) -> bool:
    changed = not view.batched and _drop_ports(view, live, journal)
    changed |= drop_unused_nodes(view.body)
    return _drop_initializers(view.body) or changed


def _drop_ports(view: View, live: Liveness, journal: Journal) -> bool:
    # What is read by a node that stays, though nothing depends on it either, in a loop that must not change, stays too.
    carries = tuple(carry for carry in view.carries if carry.previous in live or _is_read(carry.final))
    outputs = tuple(output for output in view.scan_outputs if _is_read(output.stacked))
    kept: View = dataclasses.replace(view, carries=carries, scan_outputs=outputs)
    if isinstance(kept, ScanView):
        kept = dataclasses.replace(kept, scan_inputs=tuple(item for item in kept.scan_inputs if item.element in live))
    dead = _dead_names(view, kept)
    if dead:
        journal.did(view.node, f"dropped {', '.join(dead)}, on which nothing depends")
        rebuild(kept)
    return bool(dead)


def _is_read(value: ir.Value | None) -> bool:
    return value is not None and is_used(value)


def _dead_names(view: View, kept: View) -> list[str]:
    carries = [f"carry {carry.previous.name!r}" for carry in view.carries if carry not in kept.carries]
    inputs = [f"scan input {item.element.name!r}" for item in view.scan_inputs if item not in kept.scan_inputs]
    outputs = [f"scan output {item.element.name!r}" for item in view.scan_outputs if item not in kept.scan_outputs]
    return [*carries, *inputs, *outputs]


def _drop_initializers(graph: ir.Graph) -> bool:
    unused = [value for value in graph.initializers.values() if not is_used(value) and not value.is_graph_input()]
    for value in unused:
        graph.initializers.pop(str(value.name))
    return bool(unused)


def _drop_unused_upwards(values: Iterable[ir.Value]) -> None:
    """Removes the nodes and initializers that make these values if nothing reads them, then those that fed them."""
    pending = list(values)
    while pending:
        value = pending.pop()
        node = value.producer()
        if is_used(value):
            continue
        if node is None and value.is_initializer() and not value.is_graph_input() and value.graph is not None:
            value.graph.initializers.pop(str(value.name))
        if node is not None and node.graph is not None and not any(is_used(output) for output in node.outputs):
            pending.extend(reads(node))
            remove_node(node)

"""Local clean-up in and around loops, so that recurrences show through what exporters write around them."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.passes.clean.branches import inline_branch, taken_branch
from looplift.passes.clean.no_ops import copied_value
from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import copy_node, replace_value
from looplift.passes.journal import Journal
from looplift.patterns.engines.onnxruntime.placement import (
    Stacked,
    depth_without_copies,
    reader_minds,
    rows,
    stacked,
    writer_minds,
)
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import held_nodes, is_used, source, subgraphs
from looplift.patterns.graph.view import is_any_loop, well_formed
from looplift.patterns.graph.walk import GraphLike, is_frozen
from looplift.runtime.ops import DOMAIN


@dataclasses.dataclass(frozen=True)
class Simplify:
    """Removes ops that copy an input (`passes.clean.no_ops`) and takes constant branches of If out
    (`passes.clean.branches`).

    Where: everywhere inside loop bodies; outside only nodes that feed a loop or read from one, and If nodes with a
    loop inside. The rest of the model is none of our business.

    Legal if
    1. the op's value is that of its input bit for bit, with the same shape, as its rule shows;
    2. the input is visible where the output was read, which an input always is;
    3. nothing minds where it is written or read then, in a Scan's stack or its rows (`patterns.engines`);
    4. a graph's output stays an output of a node of that graph: where the copied value is an outer value, an input
       or returned already, an Identity stays;
    5. neither the node nor one in its branches is kept, lest an engine round differently (`Journal.keeps`).

    Preserves bits. These are plain functions and no onnxscript rewrite rules, since such a rule does not see whether
    it replaces a body's output by an outer value, nor the types in a body.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Simplifies the model in place until nothing changes; whether anything did."""
        changed = False
        while self._round(model, journal):
            changed = True
        return changed

    def _round(self, model: ir.Model, journal: Journal) -> bool:
        opset = model.opset_imports.get("", 1)
        # Types know values by identity: what is removed has to live as long as they do.
        removed: list[ir.Node] = []
        changed = False
        graphs: list[GraphLike] = [model.graph, *(f for f in model.functions.values() if f.domain != DOMAIN)]
        for graph in graphs:
            inner = graph.opset_imports.get("", opset)
            changed |= _simplify(graph, inner, Types(), _Places.of(graph, inner), False, removed, journal)
        return changed


@dataclasses.dataclass(frozen=True)
class _Places:
    """What lies inside of other tensors, in the stacks that Scans write and the tensors that they read."""

    stacks: Stacked
    rows: frozenset[int]

    @classmethod
    def of(cls, graph: GraphLike, opset: int) -> _Places:
        return cls({id(value): k for value, k in stacked(graph, opset)}, frozenset(map(id, rows(graph, opset))))

    def needs(self, copy: ir.Value, value: ir.Value, types: Types) -> bool:
        """Whether what makes or reads the value minds where it lies, which the copy decides."""
        maker, dtype = source(value).producer(), types[value].dtype
        if maker is not None and writer_minds(maker, dtype) and depth_without_copies(copy, self.stacks):
            return True
        return id(source(value)) in self.rows and any(reader_minds(user, dtype) for user, _ in copy.uses())


def _simplify(
    graph: GraphLike,
    opset: int,
    types: Types,
    places: _Places,
    inside: bool,
    removed: list[ir.Node],
    journal: Journal,
) -> bool:
    """One round over a graph and the graphs in it; `inside`: in the body of a loop."""
    changed = False
    for node in list(graph):
        for inner in subgraphs(node):
            view = well_formed(node, opset)
            facts = types if view is None else types_inside(view, types)
            within = (inside or is_any_loop(node)) and not is_frozen(node)
            changed |= _simplify(inner, opset, facts, places, within, removed, journal)
        if node.graph is None or not (inside or _near_loop(node)):
            continue
        kept = journal.keeps_inside(node)
        branch = taken_branch(node, types, opset) if not kept else None
        if branch is not None:
            inline_branch(node, branch, journal)
            removed.append(node)
            changed = True
            continue
        value = copied_value(node, types, opset) if not kept else None
        if value is not None and not places.needs(node.outputs[0], value, types):
            changed |= _bypass(node, value, removed)
    return changed


def _near_loop(node: ir.Node) -> bool:
    """Whether the node feeds a loop, reads from one, or has one inside."""
    readers = (user for output in node.outputs for user, _ in output.uses())
    makers = (value.producer() for value in node.inputs if value is not None)
    return any(is_any_loop(n) for n in (*readers, *(m for m in makers if m is not None), *held_nodes(node)))


def _bypass(node: ir.Node, value: ir.Value, removed: list[ir.Node]) -> bool:
    """Makes the readers of a copying node read what it copies; whether that changes anything."""
    output, graph = node.outputs[0], node.graph
    if graph is None:
        return False
    if output.is_graph_output() and not _may_be_returned(value, graph):
        readers = output.uses()
        for user, k in readers:
            user.replace_input_with(k, value)
        if node.op_type == "Identity":
            return bool(readers)
        copy = copy_node(value, output)
        node.append(copy)
        value = copy.outputs[0]
    elif value.producer() is not None and value.type is None:
        value.type = output.type
    replace_value(output, value)
    if any(is_used(other) for other in node.outputs):
        return True
    graph.remove(node, safe=True)
    removed.append(node)
    return True


def _may_be_returned(value: ir.Value, graph: ir.Graph) -> bool:
    """Whether a graph may return the value in the place of a copy of it."""
    node = value.producer()
    return node is not None and node.graph is graph and not value.is_graph_output()

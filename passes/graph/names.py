"""Names that hold in ONNX: within a graph, and between a graph and the graphs around it, each is given once."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from looplift.patterns.graph.values import subgraphs
from looplift.patterns.graph.walk import GraphLike


def fix_names(model: ir.Model) -> bool:
    """Names the nameless values and renames those whose name another value in scope has; whether any was.

    The names of inputs and outputs of the model stay. A body may not reuse a name of the graph around it, not even
    of a value made after the loop (ONNX Runtime refuses that; `onnx_ir`'s own NameFixPass lets it pass). Outputs
    that are left out keep their empty name. Nodes of one graph have different names, too. Preserves bits.
    """
    roots: list[GraphLike] = [model.graph, *model.functions.values()]
    changed = False
    for root in roots:
        changed |= _fix(root, frozenset())
    return changed


def _fix(graph: GraphLike, taken: frozenset[str]) -> bool:
    own: set[str] = set()
    changed = False
    for value in _values(graph):
        name = value.name
        if name == "" and not value.uses() and not value.is_graph_output():
            continue
        if not name or name in own or name in taken:
            value.name = _free(name or "v", own, taken)
            changed = True
        own.add(value.name or "")
    changed |= _fix_node_names(graph)
    scope = taken | own
    for node in graph:
        for inner in subgraphs(node):
            changed |= _fix(inner, scope)
    return changed


def _fix_node_names(graph: GraphLike) -> bool:
    """Renames nodes whose name another node of the same graph has, as one may that came from another graph."""
    own: set[str] = set()
    changed = False
    for node in graph:
        if node.name in own:
            node.name = _free(node.name, own, frozenset(other.name or "" for other in graph))
            changed = True
        if node.name:
            own.add(node.name)
    return changed


def _values(graph: GraphLike) -> Iterator[ir.Value]:
    """Values that belong to the graph, each once; those whose names others see first."""
    initializers = [] if isinstance(graph, ir.Function) else list(graph.initializers.values())
    seen: set[int] = set()
    made = (output for node in graph for output in node.outputs)
    for value in (*graph.inputs, *graph.outputs, *initializers, *made):
        if id(value) not in seen:
            seen.add(id(value))
            yield value


def _free(name: str, own: set[str], taken: frozenset[str]) -> str:
    number = 1
    while f"{name}_{number}" in own or f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def name_default_domain(model: ir.Model) -> None:
    """Calls the domain of ONNX's own operators ``""`` in every import, as nodes do: ``ai.onnx`` is its other name."""
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        version = imports.pop("ai.onnx", None)
        if version is not None:
            imports.setdefault("", version)

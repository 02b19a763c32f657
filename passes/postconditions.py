"""What must hold of every result before it is given out. The pipeline works on a copy and drops it otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from looplift.patterns.graph.values import nodes_within, subgraphs
from looplift.patterns.graph.walk import GraphLike, node_name, places
from looplift.runtime.ops import DOMAIN


def violation(original: ir.Model, result: ir.Model) -> str | None:
    """The first post-condition that fails, in words, or None.

    1. The model's inputs and outputs are those of the original, by name, type and order.
    2. Every value that a node reads or a graph returns is made before, in its graph or in one around it.
    3. Every node of our domain has its definition in the model, and no definition uses our domain.
    4. The model, and each function, that has nodes of our domain imports it.
    """
    if not _same_signature(original, result):
        return "the model's inputs or outputs changed"
    graphs: list[GraphLike] = [result.graph, *result.functions.values()]
    for graph in graphs:
        for message in _out_of_scope(graph, frozenset()):
            return message
        imports = graph.opset_imports if isinstance(graph, ir.Function) else result.opset_imports
        if DOMAIN not in imports and any(node.domain == DOMAIN for node in nodes_within(graph)):
            return f"'{graph.name}' does not import {DOMAIN}, which it uses"
    defined = {function.name for function in result.functions.values() if function.domain == DOMAIN}
    for place in places(result):
        for node in place.graph:
            if node.domain == DOMAIN and node.op_type not in defined:
                return f"{node.op_type} '{node_name(node)}' has no definition"
    for function in result.functions.values():
        if function.domain == DOMAIN and any(node.domain == DOMAIN for node in function.all_nodes()):
            return f"the definition of {function.name} uses our own domain"
    return None


def _same_signature(original: ir.Model, result: ir.Model) -> bool:
    """Same names in the same order; where the original declares a type, the same type."""
    before, after = ([*model.graph.inputs, *model.graph.outputs] for model in (original, result))
    if [value.name for value in before] != [value.name for value in after]:
        return False
    return all(old.type is None or old.type == new.type for old, new in zip(before, after, strict=True))


def _out_of_scope(graph: GraphLike, scope: frozenset[int]) -> Iterator[str]:
    initializers = () if isinstance(graph, ir.Function) else graph.initializers.values()
    known = set(scope) | {id(value) for value in (*graph.inputs, *initializers)}
    for node in graph:
        for value in node.inputs:
            if value is not None and id(value) not in known:
                yield f"{node.op_type} '{node_name(node)}' reads '{value.name}' before it is made"
        for inner in subgraphs(node):
            yield from _out_of_scope(inner, frozenset(known))
        known.update(id(value) for value in node.outputs)
    for value in graph.outputs:
        if id(value) not in known:
            yield f"graph '{graph.name}' returns '{value.name}', which nothing makes"

"""Whether a model's names mean one thing, before anything is built on them.

ONNX identifies values by name, per lexical scope. The IR resolves names once, on import: what would be resolved
to something else than the standard says, or to nothing, is refused here, with the graph path and the node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from looplift.patterns.graph.operators import STANDARD
from looplift.patterns.graph.values import subgraphs
from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import DOMAIN


@dataclasses.dataclass(frozen=True)
class LoopNode:
    """A Loop or Scan of a ModelProto and where it stands (``/``, ``/name:body``, ``function domain::name``)."""

    node: onnx.NodeProto
    path: str


def loop_nodes(model: onnx.ModelProto) -> Iterator[LoopNode]:
    """Every Loop and Scan, outermost first; those inside the definitions of our own ops are not listed."""
    yield from _loops(model.graph.node, "/")
    for function in model.functions:
        if function.domain != DOMAIN:
            yield from _loops(function.node, f"function {function.domain}::{function.name}")


def _loops(nodes: Sequence[onnx.NodeProto], path: str) -> Iterator[LoopNode]:
    for index, node in enumerate(nodes):
        if node.domain in STANDARD and node.op_type in ("Loop", "Scan"):
            yield LoopNode(node, path)
        for attribute, graph in subgraphs_of_proto(node):
            yield from _loops(graph.node, _inner_path(path, node, index, attribute))


def touches_our_domain(model: onnx.ModelProto) -> bool:
    """Whether the model imports ``ai.looplift``, that is, may hold our nodes already."""
    return any(entry.domain == DOMAIN for entry in model.opset_import)


def subgraphs_of_proto(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs among a node's attributes, each with the attribute's name."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for graph in attribute.graphs:
            yield attribute.name, graph


def _inner_path(path: str, node: onnx.NodeProto, index: int, attribute: str) -> str:
    return f"{path.rstrip('/')}/{node.name or f'{node.op_type}_{index}'}:{attribute}"


def require_legal(model: onnx.ModelProto) -> bool:
    """Refuses a model whose names don't resolve; returns whether its nodes have to be sorted first.

    Raises:
        LoopliftError: a graph, opset or name is missing; a name is written twice in one graph; a body reads an
            outer name that it writes itself later; a graph output is not made in its graph; a part of the model
            would be lost on import (sparse initializers, training information).
    """
    if not model.HasField("graph"):
        raise LoopliftError("the model has no graph: this is not an ONNX model; check that the file is whole")
    if not model.opset_import:
        raise LoopliftError("the model has no opset import: this is not a whole ONNX model; export it again")
    if model.training_info:
        raise LoopliftError("the model has training information, which can't be kept; remove training_info first")
    unsorted = _check_graph(model.graph, (), "/")
    for function in model.functions:
        unsorted |= _check_function(function)
    return unsorted


def _check_function(function: onnx.FunctionProto) -> bool:
    path = f"function {function.domain}::{function.name}"
    graph = onnx.GraphProto()
    for port, names in ((graph.input, function.input), (graph.output, function.output)):
        for name in names:
            port.add(name=name)
    return _check_nodes(_Scope(path, graph, function.node), (), function.node)


def _check_graph(graph: onnx.GraphProto, outer: tuple[_Scope, ...], path: str) -> bool:
    if graph.sparse_initializer:
        raise LoopliftError(f"graph {path} has sparse initializers, which can't be kept; store them dense")
    return _check_nodes(_Scope(path, graph, graph.node), outer, graph.node)


class _Scope:
    """The names of one graph: given (inputs, initializers), made by its nodes, and there so far, node by node."""

    def __init__(self, path: str, graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
        self.path = path
        self.outputs = [info.name for info in graph.output]
        inputs = [info.name for info in graph.input]
        initializers = [tensor.name for tensor in graph.initializer]
        for kind, names in (("input", inputs), ("initializer", initializers)):
            if doubled := _first_double(names):
                raise LoopliftError(f"graph {path} has two {kind}s named {doubled!r}; rename one")
        self.given = {*inputs, *initializers}
        self.so_far = set(self.given)
        self.made: set[str] = set()
        for node in nodes:
            for name in filter(None, node.output):
                if name in self.given or name in self.made:
                    raise LoopliftError(f"{_where(node, path)} writes {name!r}, which is written before; rename one")
                self.made.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self.given or name in self.made


def _check_nodes(scope: _Scope, outer: tuple[_Scope, ...], nodes: Sequence[onnx.NodeProto]) -> bool:
    unsorted = False
    for index, node in enumerate(nodes):
        if not all(isinstance(text, str) for text in (node.op_type, node.domain, node.name, *node.input, *node.output)):
            raise LoopliftError(
                f"node {index} of graph {scope.path} has a name that is not UTF-8; copy the model again"
            )
        for name in filter(None, node.input):
            unsorted |= name not in scope.so_far and _is_ahead(name, node, (*outer, scope))
        for attribute, graph in subgraphs_of_proto(node):
            unsorted |= _check_graph(graph, (*outer, scope), _inner_path(scope.path, node, index, attribute))
        scope.so_far.update(node.output)
    for name in filter(None, scope.outputs):
        if name not in scope:
            raise LoopliftError(
                f"graph {scope.path} returns {name!r}, which it does not make; put an Identity in the graph"
            )
    return unsorted


def _is_ahead(name: str, node: onnx.NodeProto, scopes: Sequence[_Scope]) -> bool:
    """Whether a value that a node reads is made later, by its own graph or by one around it."""
    *around, own = scopes
    holder = next((scope for scope in reversed(scopes) if name in scope), None)
    if holder is None:
        raise LoopliftError(f"{_where(node, own.path)} reads {name!r}, which nothing makes; export again")
    if name in holder.so_far:
        return False
    if any(name in scope for scope in around[: scopes.index(holder)]):
        whose = "its own graph" if holder is own else f"graph {holder.path}"
        raise LoopliftError(
            f"{_where(node, own.path)} reads {name!r} of an outer graph, and {whose} writes the "
            "same name later; rename one"
        )
    return True


def _where(node: onnx.NodeProto, path: str) -> str:
    return f"{node.op_type} {node.name!r} in graph {path}" if node.name else f"{node.op_type} in graph {path}"


def _first_double(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def shadowing_values(model: ir.Model) -> list[ir.Value]:
    """Values of bodies whose names hide a name of an enclosing graph.

    The IR tells them apart by identity, but a pass that moves one outwards, or graphsurgeon's import, would not.
    """
    found: list[ir.Value] = []
    for function in model.functions.values():
        _collect_shadowing(function.graph, frozenset(), found)
    _collect_shadowing(model.graph, frozenset(), found)
    return found


def _collect_shadowing(graph: ir.Graph, outer: frozenset[str], found: list[ir.Value]) -> None:
    own = list(values_of(graph))
    found += [value for value in own if value.name in outer]
    visible = outer | {value.name for value in own if value.name}
    for node in graph:
        for inner in subgraphs(node):
            _collect_shadowing(inner, visible, found)


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Inputs, initializers and node outputs of one graph, each once, without those of inner graphs."""
    seen: set[int] = set()
    for value in (*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs)):
        if id(value) not in seen:
            seen.add(id(value))
            yield value


def unshadow(model: ir.Model) -> None:
    """Renames, in place, the values of `shadowing_values`; ports of the model itself keep their names."""
    shadowing = shadowing_values(model)
    if not shadowing:
        return
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    taken = {value.name for graph in graphs for value in _all_values(graph)}
    for value in shadowing:
        number = 1
        while (name := f"{value.name}_{number}") in taken:
            number += 1
        taken.add(name)
        value.name = name


def _all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from values_of(graph)
    for node in graph:
        for inner in subgraphs(node):
            yield from _all_values(inner)

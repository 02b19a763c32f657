"""Takes functions that hold loops, or are called in their bodies, into the graphs that call them.

There types and shapes are known. A function's own inputs have none, and most proofs need them: integers may be summed
in any order, a state that may grow needs a test.

Legality: (1) the function is not one of our definitions; (2) it, everything it calls and every function that calls it
use the opsets of the model; (3) it takes no graph as an attribute; (4) it is small, or called once; (5) each
of its outputs is made by a node of its own. Preserves bits: the same nodes run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from looplift.passes.graph.names import fix_names
from looplift.passes.journal import Journal
from looplift.patterns.graph.values import held_nodes, nodes_within
from looplift.patterns.graph.view import is_any_loop
from looplift.patterns.graph.walk import copies_inlined
from looplift.runtime.ops import DOMAIN

GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})
MOST_BYTES = 1 << 20
"""What inlining one function, with all that it calls, may add to the model."""

_NODE_BYTES = 100


@dataclasses.dataclass(frozen=True)
class InlineLoops:
    """The pass; see the module's text."""

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Inlines every function that a loop is in, or that one calls, at any depth; returns whether there was any."""
        imports, copies, read = _imports(model), copies_inlined(model), _called_in_loops(model)

        def fits(function: ir.Function) -> bool:
            called = _called(function, model)
            near_loop = function.identifier() in read or any(_holds_loop(each) for each in called)
            return (
                near_loop
                and all(_inlinable(each, imports) for each in called)
                and sum(_size(each) * max(copies[each.identifier()] - 1, 0) for each in called) <= MOST_BYTES
            )

        others = [function for function in model.functions.values() if not _same_opsets(function, imports)]
        kept = {node.op_identifier() for function in others for node in nodes_within(function)}
        chosen = {key for key, function in model.functions.items() if fits(function)} - kept
        if not chosen:
            return False
        InlinePass(lambda function: function.identifier() in chosen)(model)
        fix_names(model)
        return True


def _called_in_loops(model: ir.Model) -> set[ir.OperatorIdentifier]:
    """The functions that bodies of loops call, at any depth."""
    functions = [function for function in model.functions.values() if function.domain != DOMAIN]
    graphs: list[ir.Graph | ir.Function] = [model.graph, *functions]
    loops = [node for graph in graphs for node in nodes_within(graph) if is_any_loop(node)]
    calls = {node.op_identifier() for loop in loops for node in held_nodes(loop)}
    return {
        each.identifier()
        for name, function in model.functions.items()
        if name in calls
        for each in _called(function, model)
    }


def _called(function: ir.Function, model: ir.Model) -> list[ir.Function]:
    """The function and all those that it calls, at any depth."""
    found = {function.identifier(): function}
    work = [function]
    while work:
        for node in nodes_within(work.pop()):
            callee = model.functions.get(node.op_identifier())
            if callee is not None and callee.domain != DOMAIN and callee.identifier() not in found:
                found[callee.identifier()] = callee
                work.append(callee)
    return list(found.values())


def _size(function: ir.Function) -> int:
    """About how many bytes its nodes and constants take in a file."""
    nodes = list(nodes_within(function))
    values = [attribute.value for node in nodes for attribute in node.attributes.values()]
    tensors = sum(value.nbytes for value in values if isinstance(value, ir.TensorProtocol))
    numbers = sum(8 * len(value) for value in values if isinstance(value, Sequence))
    return _NODE_BYTES * len(nodes) + tensors + numbers


def _holds_loop(function: ir.Function) -> bool:
    return any(is_any_loop(node) for node in nodes_within(function))


def _inlinable(function: ir.Function, imports: dict[str, int]) -> bool:
    return (
        function.domain != DOMAIN
        and _same_opsets(function, imports)
        and all(attribute.type not in GRAPHS for attribute in function.attributes.values())
        and all(output.producer() is not None for output in function.outputs)
        and len({id(output) for output in function.outputs}) == len(function.outputs)
    )


def _imports(model: ir.Model) -> dict[str, int]:
    """The version of each domain: the model's, or where it has none, that of the first function that imports it."""
    found: dict[str, int] = {}
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        for domain, version in imports.items():
            found.setdefault(domain, version)
    return found


def _same_opsets(function: ir.Function, imports: dict[str, int]) -> bool:
    return all(imports[domain] == version for domain, version in function.opset_imports.items() if domain != DOMAIN)

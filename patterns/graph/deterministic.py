"""Which body inputs a body value refers to, in whatever way: the question to ask before a node or an input goes.

`patterns.loops.dependence` asks which inputs decide about a value's contents. Here a node that asks an input only for
its type or shape refers to it all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import onnx_ir as ir

from looplift.patterns.graph.values import nodes_within, reads, subgraphs
from looplift.patterns.loops.dependence import NONDETERMINISTIC

PURE_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.looplift"})
"""Every op in them, but those in `NONDETERMINISTIC`, gives the same outputs for the same inputs."""


class References:
    """The inputs of a body that each of its values refers to, by identity."""

    def __init__(self, body: ir.Graph) -> None:
        self._inputs: dict[int, frozenset[int]] = {id(value): frozenset([id(value)]) for value in body.inputs}
        for node in body:
            found = frozenset[int]().union(*(self.of(value) for value in reads(node)))
            self._inputs.update((id(output), found) for output in node.outputs)

    def of(self, value: ir.Value) -> Set[int]:
        """Identities of the body inputs that the value refers to; none for outer values and constants."""
        return self._inputs.get(id(value), frozenset())


def is_deterministic(node: ir.Node) -> bool:
    """Whether the node, and every node in its graphs, gives the same outputs for the same inputs."""
    return all(_gives_the_same(inner) for inner in _with_inner(node))


def _with_inner(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for graph in subgraphs(node):
        yield from nodes_within(graph)


def _gives_the_same(node: ir.Node) -> bool:
    return node.domain in PURE_DOMAINS and node.op_type not in NONDETERMINISTIC

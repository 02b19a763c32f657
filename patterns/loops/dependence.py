"""What each body value depends on: which of the loop's moving parts reach it.

The moving parts ("sources") are the body's inputs: the iteration number, the cond input, the carries' previous
values and the scan elements. A value that none of them reaches is invariant, unless an op that draws anew each
time (random ops) stands in between: that op counts as a moving part itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import onnx_ir as ir

from looplift.patterns.graph.operators import STANDARD, Trait, has, is_standard
from looplift.patterns.graph.own_nodes import DOMAIN
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import reads, with_inner
from looplift.patterns.graph.view import View


class Dependence:
    """The sources of every value of a loop's body, by identity."""

    def __init__(self, view: View, types: Types) -> None:
        self.view = view
        self._sources: dict[int, frozenset[int]] = {id(value): frozenset([id(value)]) for value in view.body.inputs}
        for node in view.body:
            found: frozenset[int] = frozenset()
            for value in contents_read(node, types):
                found |= self._sources.get(id(value), frozenset())
            if _draws_anew(node):
                found |= {id(node)}
            for output in node.outputs:
                self._sources[id(output)] = found

    def of(self, value: ir.Value) -> Set[int]:
        """Identities of the sources that reach the value; empty for outer values and constants."""
        return self._sources.get(id(value), frozenset())

    def invariant(self, value: ir.Value) -> bool:
        """Whether the value is the same in every iteration."""
        return not self.of(value)

    def reaches(self, source: ir.Value, value: ir.Value) -> bool:
        """Whether the value depends on this body input."""
        return id(source) in self.of(value)


def contents_read(node: ir.Node, types: Types) -> Iterator[ir.Value]:
    """The values whose *contents* a node reads.

    CastLike asks its second input only for the type. Shape and Size ask only for the shape, which is the same in
    every iteration where it is known in full or by symbols that the loop preserves.
    """
    if is_standard(node) and node.inputs:
        if node.op_type == "CastLike":
            yield from (value for value in node.inputs[:1] if value is not None)
            return
        shape = types[node.inputs[0]].shape
        if node.op_type in ("Shape", "Size") and shape is not None and None not in shape:
            return
    yield from reads(node)


def _draws_anew(node: ir.Node) -> bool:
    return any(has(n, Trait.RANDOM) or n.domain not in (*STANDARD, DOMAIN) for n in with_inner(node))

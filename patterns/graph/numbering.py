"""Value numbers: equal numbers mean the same computation on the same operands, so the same bits.

Source: Cocke and Schwartz, "Programming Languages and Their Compilers" (1970), hash-based value numbering. Here
some values may be renamed: numbering a body with the number of another state in the place of the carry tells
whether the body does the same thing twice in a row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import onnx_ir as ir

from looplift.patterns.graph.constants import constant_tensor
from looplift.patterns.graph.operators import Trait, has, has_references, is_standard
from looplift.patterns.graph.values import has_subgraphs, source

LIMIT = 4096
"""Elements. Larger constants are equal only if they are the same value."""


class Numbering:
    """Numbers of values, comparable among all that one instance gives."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._kinds: dict[ir.Node, Hashable | None] = {}

    def symbol(self, name: Hashable) -> int:
        """The number of an opaque thing with a name."""
        return self._intern(("symbol", name))

    def body(self, nodes: Iterable[ir.Node], renamed: Mapping[ir.Value, int]) -> dict[ir.Value, int]:
        """The numbers of all outputs of a graph's nodes, in its order, if the renamed values had the numbers given."""
        table = dict(renamed)
        for node in nodes:
            operands = tuple(None if value is None else self.of(value, table) for value in node.inputs)
            for output in node.outputs:
                if _constant(output) is not None:
                    continue
                kind = self._kind(node)
                if kind is None:
                    # What it computes is not shown by its inputs, so that it equals nothing, not even itself renamed.
                    table[output] = self._intern(object())
                elif node.op_type != "Identity":
                    table[output] = self._intern(("node", kind, operands, output.index()))
        return table

    def of(self, value: ir.Value, table: Mapping[ir.Value, int]) -> int:
        """The number of a value: from the table, by its contents if it is a constant, else its own."""
        value = source(value) if value not in table else value
        if value in table:
            return table[value]
        constant = _constant(value)
        return self._intern(("value", value) if constant is None else constant)

    def _kind(self, node: ir.Node) -> Hashable | None:
        if node not in self._kinds:
            self._kinds[node] = kind_of(node)
        return self._kinds[node]

    def _intern(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def kind_of(node: ir.Node) -> Hashable | None:
    """The operator and its attributes; None where the same operands may give other bits."""
    plain = is_standard(node) and not has_subgraphs(node) and not has_references(node)
    if not plain or has(node, Trait.RANDOM):
        return None
    return node.op_type, tuple(sorted((name, _serialized(attr)) for name, attr in node.attributes.items()))


def _serialized(attribute: ir.Attr) -> bytes:
    proto = ir.to_proto(attribute)
    proto.ClearField("doc_string")
    return bytes(proto.SerializeToString(deterministic=True))


def _constant(value: ir.Value) -> Hashable | None:
    """Type, shape and bytes of a small constant."""
    if value.is_graph_input():
        return None
    tensor = constant_tensor(value)
    if tensor is None or tensor.size > LIMIT or tensor.dtype == ir.DataType.STRING:
        return None
    return ("constant", tensor.dtype, tuple(tensor.shape), tensor.tobytes())

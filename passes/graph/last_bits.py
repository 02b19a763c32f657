"""Operators whose last bits are the engine's choice, and the mark of those that are computed over time.

Over time an operator is still the same operator on the same elements. But in a tensor of another shape an engine may
add the same numbers in another order, or round a function otherwise (`patterns.engines`: sums and functions).
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from looplift.patterns.engines.onnxruntime.kernels import FUNCTIONS, PACKED, SUMS
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.values import nodes_within

MARK = "looplift.last_bits"
"""Key in a node's ``metadata_props``.

The value is ``sums``, ``functions``, ``half`` (float16 that is rounded, or not, before the next node) or ``products``:
by constants that stand so far out that ONNX Runtime does not pack
them (`passes.graph.weights`); numpy multiplies the same way everywhere.
"""


def mark(nodes: Iterable[ir.Node]) -> None:
    """Marks those of these nodes whose last bits are the engine's choice."""
    for node in nodes:
        if not is_standard(node):
            continue
        if node.op_type in SUMS:
            node.metadata_props[MARK] = "sums"
        elif node.op_type in FUNCTIONS:
            node.metadata_props[MARK] = "functions"


def mark_moved(node: ir.Node) -> None:
    """Marks a node that stands where an engine may round it differently."""
    if node.op_type in SUMS or node.op_type in PACKED:
        node.metadata_props.setdefault(MARK, "products")
    else:
        node.metadata_props.setdefault(MARK, "functions")


def mark_half(node: ir.Node) -> None:
    """Marks a node whose result in float16 an engine rounds before what reads it, or does not, unlike the original."""
    node.metadata_props.setdefault(MARK, "half")


def marks(model: ir.Model) -> frozenset[str]:
    """Which marks the model's nodes carry."""
    nodes = [*nodes_within(model.graph), *(n for function in model.functions.values() for n in nodes_within(function))]
    return frozenset(node.metadata_props[MARK] for node in nodes if MARK in node.metadata_props)

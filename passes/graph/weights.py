"""Constant operands of products in the body of a loop that gets one graph deeper."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.graph.last_bits import MARK
from looplift.patterns.engines.onnxruntime.kernels import PACKED
from looplift.patterns.engines.onnxruntime.ties import is_constant
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.values import defined_in, nodes_within
from looplift.patterns.graph.view import View


def keep_near(loop: View, branch: ir.Graph) -> None:
    """Moves the constants that only products of the loop read into `branch`, in which the body will now stand.

    ONNX Runtime packs a constant operand if it is one of the product's graph or of the graph around that. Others it
    multiplies as they are, more slowly, and a single row by another kernel, which adds in another order. Constants in
    external files stay where they are, since not every engine finds them in an inner graph, and so do those that others
    read and those that are computed: the products that read them are marked, their last bits are the engine's choice.
    """
    body, home = loop.body, loop.node.graph
    inside = {id(node) for node in nodes_within(body)}
    products = [node for node in body if node.op_type in PACKED and is_standard(node)]
    operands = {id(value): value for node in products for value in node.inputs if value is not None}
    for value in operands.values():
        if defined_in(value, body):
            continue
        shared = value.is_graph_output() or any(id(user) not in inside for user, _ in value.uses())
        if not shared and home is not None and _move(value, home, branch):
            continue
        if is_constant(value):
            for node in products:
                if any(value is operand for operand in node.inputs):
                    node.metadata_props[MARK] = "products"


def _move(value: ir.Value, home: ir.Graph | ir.Function, branch: ir.Graph) -> bool:
    """Moves a constant of `home` into the branch, if it may be."""
    node = value.producer()
    if node is not None and node.op_type == "Constant" and node.graph is home:
        home.remove(node)
        branch.insert_before(branch[0], node)
        return True
    if isinstance(home, ir.Graph) and _is_weight_of(home, value):
        home.initializers.pop(str(value.name))
        branch.register_initializer(value)
        return True
    return False


def _is_weight_of(graph: ir.Graph, value: ir.Value) -> bool:
    return (
        value.is_initializer()
        and not value.is_graph_input()
        and value.graph is graph
        and not isinstance(value.const_value, ir.ExternalTensor)
    )

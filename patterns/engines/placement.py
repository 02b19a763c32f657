"""Whether the place of a tensor in memory can change the bits that are computed from it or into it.

A Scan reads its rows inside the whole tensor and writes them inside the whole stack, at any address. ONNX Runtime's
kernels built on Eigen take the elements up to the first aligned address one by one and the rest in packets, and
the two round differently (Log, Sin, Softplus; Exp and Tanh of doubles), order zeros differently (Max, Min) or add in
another order (ReduceSum). A Loop's rows and iterations have tensors of their own, which are aligned.

So only operators that copy, compare, or round each element correctly, and products, whose kernels in MLAS do
not look at addresses, may write a row in place; those and some that look at the result's address only may read one
in place. Integers are always exact.
"""

from __future__ import annotations

import onnx_ir as ir

from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import defined_in, source
from looplift.patterns.graph.view import LoopView, ScanOutput

INDIFFERENT = frozenset(
    "Abs Add And Cast Ceil Concat Div Equal Expand Floor Gather Gemm Greater GreaterOrEqual IsInf IsNaN Less "
    "LessOrEqual MatMul Mul Neg Not Or Shape Size Slice Split Sub Tile Transpose Where Xor".split()
)

ELEMENTWISE = frozenset("Exp Log Max Min Reciprocal Relu Sigmoid Sqrt Tanh".split())
"""Operators that take packets by the address of the result alone (floats and doubles): they may read a row in place."""

SAME_MEMORY = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose result may be the same memory, so that their readers count as readers of the input."""


def may_be_read_in_place(row: ir.Value, body: ir.Graph, types: Types) -> bool:
    """Whether nothing that reads the row minds where it lies."""
    dtype = types[row].dtype
    if dtype is not None and not dtype.is_floating_point():
        return True
    plain = dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    for node, _ in row.uses():
        if node.domain not in ("", "ai.onnx") or node.graph is not body:
            return False
        if node.op_type in SAME_MEMORY:
            if not may_be_read_in_place(node.outputs[0], body, types):
                return False
        elif node.op_type not in INDIFFERENT and not (plain and node.op_type in ELEMENTWISE):
            return False
    return True


def may_be_written_in_place(output: ScanOutput, view: LoopView, types: Types) -> bool:
    """Whether what makes the rows of a stack does not mind where they lie, or makes them elsewhere.

    It makes them elsewhere if something besides the copy that is stacked reads them: ONNX Runtime then keeps the
    copy, an Identity (see `is_copied`), which it otherwise takes out.
    """
    dtype = types[output.element].dtype
    if dtype is not None and not dtype.is_floating_point():
        return True
    made = _made(output.element)
    node = made.producer()
    if node is None or node.op_type == "Constant" or not defined_in(made, view.body):
        return True
    if node.op_type in INDIFFERENT and node.domain in ("", "ai.onnx"):
        return True
    if made is not source(output.element):
        return False
    return any(source(carry.updated) is made for carry in view.carries) or any(
        user.op_type not in SAME_MEMORY and any(out.uses() or out.is_graph_output() for out in user.outputs)
        for user, _ in made.uses()
    )


def is_copied(element: ir.Value) -> bool:
    """Whether the body copies the value, or writes it with an operator that does not mind where."""
    node = element.producer()
    return node is not None and (node.op_type == "Identity" or node.op_type in INDIFFERENT)


def _made(value: ir.Value) -> ir.Value:
    """The value whose memory this may be."""
    node = value.producer()
    while node is not None and node.op_type in SAME_MEMORY and node.domain in ("", "ai.onnx"):
        origin = node.inputs[0]
        if origin is None:
            return value
        value, node = origin, origin.producer()
    return value


__all__ = ["is_copied", "may_be_read_in_place", "may_be_written_in_place"]

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

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from looplift.patterns.engines.onnxruntime.kernels import BY_RESULT, INDIFFERENT
from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import defined_in, is_used, reshaped_from, source, subgraphs
from looplift.patterns.graph.view import LoopView, ScanOutput, is_scan


def may_be_read_in_place(row: ir.Value, body: ir.Graph, types: Types) -> bool:
    """Whether nothing that reads the row minds where it lies."""
    dtype = types[row].dtype
    if dtype is not None and not dtype.is_floating_point():
        return True
    plain = dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    for node, _ in row.uses():
        if not is_standard(node) or node.graph is not body:
            return False
        if has(node, Trait.RESHAPES):
            if not may_be_read_in_place(node.outputs[0], body, types):
                return False
        elif node.op_type not in INDIFFERENT and not (plain and node.op_type in BY_RESULT):
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
    made = reshaped_from(output.element)
    node = made.producer()
    if node is None or node.op_type == "Constant" or not defined_in(made, view.body):
        return True
    if is_standard(node, *INDIFFERENT):
        return True
    if made is not source(output.element):
        return False
    return any(source(carry.updated) is made for carry in view.carries) or any(
        not has(user, Trait.RESHAPES) and any(out.uses() or out.is_graph_output() for out in user.outputs)
        for user, _ in made.uses()
    )


Stacked = Mapping[int, int]
"""By the identity of a graph's output: inside how many stacks an engine writes it in place."""


def stacked(graph: ir.Graph | ir.Function, opset: int, around: Stacked | None = None) -> Iterator[tuple[ir.Value, int]]:
    """What the bodies in a graph give that is written in place into a stack of a Scan, through branches of If too.

    Args:
        graph: in which they are.
        opset: of the default domain; before 9, the states of a Scan lie in tensors of a whole batch, too.
        around: the outputs of the graph itself that are.
    """
    for node in graph:
        for inner in subgraphs(node):
            deep = {id(value): depth for value, depth in _given(node, inner, opset, around or {})}
            yield from ((value, deep[id(value)]) for value in inner.outputs if id(value) in deep)
            yield from stacked(inner, opset, deep)


def _given(node: ir.Node, inner: ir.Graph, opset: int, around: Stacked) -> Iterator[tuple[ir.Value, int]]:
    scan = is_scan(node)
    if not scan and not (is_standard(node, "If")):
        return
    for k, (value, output) in enumerate(zip(inner.outputs, node.outputs, strict=False)):
        depth = around.get(id(output), 0) + (scan and (opset < 9 or k >= _states(node, inner)))
        if depth:
            yield value, depth


def _states(scan: ir.Node, body: ir.Graph) -> int:
    read = scan.attributes.get_int("num_scan_inputs", None)
    return 0 if read is None else len(body.inputs) - read


def rows(graph: ir.Graph | ir.Function, opset: int) -> Iterator[ir.Value]:
    """What the bodies of Scans in a graph read that lies in place."""
    for node in graph:
        for inner in subgraphs(node):
            if is_scan(node):
                yield from inner.inputs[0 if opset < 9 else _states(node, inner) :]
            yield from rows(inner, opset)


def depth_without_copies(value: ir.Value, places: Stacked) -> int:
    """Inside how many stacks the value is written once an engine has taken out the copy that alone reads it."""
    while not value.is_graph_output():
        readers = [node for node, _ in value.uses() if any(map(is_used, node.outputs))]
        if len(readers) != 1 or not is_standard(readers[0], "Identity"):
            return 0
        value = readers[0].outputs[0]
    return places.get(id(value), 0)


def writer_minds(node: ir.Node, dtype: ir.DataType | None) -> bool:
    """Whether the place of the result may change what the node makes of this type."""
    if dtype is not None and not dtype.is_floating_point():
        return False
    return not (is_standard(node, "Constant", *INDIFFERENT) or has(node, Trait.RESHAPES))


def reader_minds(node: ir.Node, dtype: ir.DataType | None) -> bool:
    """Whether the place of an operand of this type may change what the node makes."""
    if not writer_minds(node, dtype):
        return False
    plain = dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    return not (plain and is_standard(node, *BY_RESULT))


def is_copied(element: ir.Value) -> bool:
    """Whether the body copies the value, or writes it with an operator that does not mind where."""
    node = element.producer()
    return node is not None and (node.op_type == "Identity" or node.op_type in INDIFFERENT)


__all__ = [
    "Stacked",
    "depth_without_copies",
    "is_copied",
    "may_be_read_in_place",
    "may_be_written_in_place",
    "reader_minds",
    "rows",
    "stacked",
    "writer_minds",
]

"""MatMul and Einsum over time: the time axis joins the batch axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.vectorize.context import OverTime, Rule
from looplift.patterns.graph.own_nodes import flag
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.types import Dim


def matmul(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """MatMul: matrices broadcast over time; vectors become matrices for the product where they must.

    Each product adds over the same axis in the engine's own order.
    """
    a, b = node.inputs
    assert a is not None
    assert b is not None
    rank_a, rank_b = over.rank(a), over.rank(b)
    if rank_a == 0 or rank_b == 0:
        raise Refused(Refusal("MatMul of a scalar", node))
    rank = max(rank_a, rank_b, 2)
    drop = []
    both_vectors = rank_a == rank_b == 1 and over.varies(b)
    if rank_a == 1 and (both_vectors or (over.varies(a) and (over.varies(b) or rank_b > 2))):
        left = _row(over, a, rank)
        drop.append(-2)
    else:
        left = over.operand(a, rank) if rank_a > 1 else _plain(over, a)
    if rank_b == 1 and over.varies(b):
        right = _column(over, b, rank)
        drop.append(-1)
    else:
        right = over.operand(b, rank) if rank_b > 1 else _plain(over, b)
    product = over.emit.op("MatMul", [left, right])
    total = over.lead + rank
    return [over.emit.squeeze(product, sorted(total + axis for axis in drop))]


def _plain(over: OverTime, value: ir.Value) -> ir.Value:
    """A vector as it is: an invariant one, or a stack of rows times an invariant matrix."""
    return over.stack(value) if over.varies(value) else over.outside(value)


def _row(over: OverTime, value: ir.Value, rank: int) -> ir.Value:
    if not over.varies(value):
        return over.emit.unsqueeze(over.outside(value), [0])
    return over.emit.unsqueeze(over.stack(value), range(over.lead, over.lead + rank - 1))


def _column(over: OverTime, value: ir.Value, rank: int) -> ir.Value:
    last = over.lead + rank - 1
    return over.emit.unsqueeze(over.stack(value), [*range(over.lead, last - 1), last])


def einsum(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Einsum: a letter for each leading axis goes in front of what varies and of the result."""
    equation = node.attributes["equation"].as_string().replace(" ", "")
    if "..." in equation or "->" not in equation:
        raise Refused(Refusal(f"the equation {equation} is not spelled out", node))
    terms, result = equation.split("->")
    free = [letter for letter in "TBXYZWVU" if letter not in equation][: over.lead]
    front = "".join(free)
    inputs = [value for value in node.inputs if value is not None]
    labelled = [front + t if over.varies(v) else t for t, v in zip(terms.split(","), inputs, strict=True)]
    operands = [over.stack(v) if over.varies(v) else over.outside(v) for v in inputs]
    text = ",".join(labelled) + "->" + front + result
    return [over.emit.op("Einsum", operands, {"equation": ir.AttrString("equation", text)})]


def gemm(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Gemm of rows that vary with a matrix that does not: the rows of all iterations in one Gemm.

    The bias may not name the rows: it is a scalar, a vector, or has one row.
    """
    a, b, c = [*node.inputs, None][:3]
    assert a is not None and b is not None
    invariant = all(value is None or not over.varies(value) for value in (b, c))
    shape, result = over.types[a].shape, over.types[node.outputs[0]]
    if not invariant or flag(node, "transA"):
        raise Refused(Refusal("more of Gemm than its rows varies", node))
    if c is not None and not _one_row(over.types[c].shape):
        raise Refused(Refusal("the bias of Gemm has a row of its own for each row", node))
    if shape is None or not isinstance(shape[1], int) or shape[1] == 0:
        raise Refused(Refusal("the length of Gemm's rows is not known", node))
    emit, stack = over.emit, over.stack(a)
    rows = emit.op("Reshape", [stack, emit.const([-1, shape[1]])])
    bias = [over.outside(c)] if c is not None else []
    product = emit.op("Gemm", [rows, over.outside(b), *bias], dict(node.attributes))
    leading = emit.slice(emit.op("Shape", [stack]), 0, over.lead + 1, 0)
    width = emit.slice(emit.op("Shape", [product]), 1, 2, 0)
    extents = emit.op("Concat", [leading, width], {"axis": 0})
    return [over.reshaped(product, extents, result, node)]


def _one_row(shape: tuple[Dim, ...] | None) -> bool:
    return shape is not None and (len(shape) < 2 or shape[0] == 1)


RULES: dict[str, Rule] = {"Einsum": einsum, "Gemm": gemm, "MatMul": matmul}

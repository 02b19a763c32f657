"""MatMul and Einsum over time: the time axis joins the batch axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.over_time.context import NotOverTime, OverTime, Rule
from looplift.patterns.proof import Refusal


def matmul(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """MatMul: matrices broadcast over time; vectors become matrices for the product where they must.

    Each product adds over the same axis in the engine's own order.
    """
    a, b = node.inputs
    assert a is not None
    assert b is not None
    rank_a, rank_b = over.rank(a), over.rank(b)
    if rank_a == 0 or rank_b == 0:
        raise NotOverTime(Refusal("MatMul of a scalar", node))
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
        raise NotOverTime(Refusal(f"the equation {equation} is not spelled out", node))
    terms, result = equation.split("->")
    free = [letter for letter in "TBXYZWVU" if letter not in equation][: over.lead]
    front = "".join(free)
    inputs = [value for value in node.inputs if value is not None]
    labelled = [front + t if over.varies(v) else t for t, v in zip(terms.split(","), inputs, strict=True)]
    operands = [over.stack(v) if over.varies(v) else over.outside(v) for v in inputs]
    text = ",".join(labelled) + "->" + front + result
    return [over.emit.op("Einsum", operands, {"equation": ir.AttrString("equation", text)})]


RULES: dict[str, Rule] = {"Einsum": einsum, "MatMul": matmul}

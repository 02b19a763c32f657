"""Ordinary operators of every opset, each with inputs from the scope that fit it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto as T

from programs.block import FLOATS, INTEGERS, Block, Dim, Var, allows

NUMBERS = (*FLOATS, *INTEGERS)
LARGEST = 64
"""Elements of a value; programs stay small."""

ARITHMETIC = ("Add", "Add", "Add", "Sub", "Sub", "Mul", "Mul", "Min", "Max", "Div", "Pow")
UNARY = ("Neg", "Abs", "Identity", "Relu", "Floor", "Sqrt", "Exp", "Tanh", "Sigmoid", "Sign", "Neg", "Identity")
COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
CASTS = {
    T.BOOL: (T.FLOAT, T.INT64, T.INT32, T.DOUBLE),
    T.FLOAT: (T.DOUBLE, T.FLOAT16, T.BOOL),
    T.DOUBLE: (T.FLOAT, T.BOOL),
    T.FLOAT16: (T.FLOAT, T.DOUBLE),
    T.BFLOAT16: (T.FLOAT,),
    T.INT64: (T.INT32, T.FLOAT, T.DOUBLE, T.BOOL, T.FLOAT16),
    T.INT32: (T.INT64, T.FLOAT, T.DOUBLE, T.BOOL),
}
"""What a number fits into: what a cast to an integer makes of a NaN is nobody's rule."""

Maker = Callable[[Block], Var | None]


def numeric(var: Var) -> bool:
    """Whether one can compute with the value."""
    return var.dtype in NUMBERS


def binary(block: Block, op: str, left: Var, right: Var) -> Var | None:
    """The operator on both, if their shapes and types fit, and its result stays small."""
    writer = block.writer
    dims = writer.broadcast(left, right)
    if dims is None or left.dtype != right.dtype or not allows(op, writer.opset, left.dtype):
        return None
    if (op in ("Div", "Pow") and left.dtype not in FLOATS) or np.prod([writer.size(d) for d in dims]) > LARGEST:
        return None  # an integer divided by zero ends the process
    return block.add(op, [left, right], T.BOOL if op in COMPARISONS else left.dtype, dims)


def arithmetic(block: Block) -> Var | None:
    left = block.find(numeric)
    if left is None:
        return None
    writer = block.writer
    right = block.find(lambda v: v.dtype == left.dtype and writer.broadcast(v, left) is not None)
    if right is None or writer.chance(0.2):
        right = block.number(left.dtype)
    pair = (left, right) if writer.chance(0.6) else (right, left)
    return binary(block, writer.random.choice(ARITHMETIC), *pair)


def compare(block: Block) -> Var | None:
    left = block.find(numeric)
    if left is None:
        return None
    right = block.find(lambda v: v.dtype == left.dtype and block.writer.broadcast(v, left) is not None)
    return binary(block, block.writer.random.choice(COMPARISONS), left, right or block.number(left.dtype))


def logic(block: Block) -> Var | None:
    left = block.find(lambda v: v.dtype == T.BOOL)
    if left is None:
        return None
    right = block.find(lambda v: v.dtype == T.BOOL and v != left)
    if right is None or block.writer.chance(0.4):
        return block.add("Not", [left], T.BOOL, left.dims)
    return binary(block, block.writer.random.choice(("And", "Or", "Xor")), left, right)


def unary(block: Block) -> Var | None:
    op = block.writer.random.choice(UNARY)
    var = block.find(lambda v: allows(op, block.writer.opset, v.dtype))
    return var and block.add(op, [var], var.dtype, var.dims)


def cast(block: Block) -> Var | None:
    var = block.find(lambda v: v.dtype in CASTS)
    if var is None:
        return None
    to = block.writer.random.choice(CASTS[var.dtype])
    return block.add("Cast", [var], to, var.dims, to=to)


def where(block: Block) -> Var | None:
    writer = block.writer
    mask = block.find(lambda v: v.dtype == T.BOOL)
    one = block.find(lambda v: allows("Where", writer.opset, v.dtype) and v.dtype != T.BOOL)
    if mask is None or one is None or writer.opset < 9:
        return None
    other = block.find(lambda v: v.dtype == one.dtype and writer.broadcast(v, one) is not None) or one
    dims = writer.broadcast(one, other)
    whole = writer.broadcast(mask, Var("", T.BOOL, dims or ()))
    if dims is None or whole is None or np.prod([writer.size(d) for d in whole]) > LARGEST:
        return None
    return block.add("Where", [mask, one, other], one.dtype, whole)


def read_row(block: Block, series: Var, index: Var) -> Var:
    """The series' row of this iteration, in one of the spellings that exporters have."""
    writer, row = block.writer, series.dims[1:]
    if writer.opset >= 10 and writer.chance(0.25):
        one = block.ints(1)
        axes = block.ints(0)
        start = index if index.dims == (1,) else unsqueeze(block, index, 0)
        after = block.add("Add", [start, one], T.INT64, (1,))
        cut = block.add("Slice", [series, start, after, axes], series.dtype, (writer.unknown(1), *row))
        return squeeze(block, cut, 0)
    return block.add("Gather", [series, index], series.dtype, (*index.dims, *row), axis=0)


def rows(block: Block) -> Var | None:
    index = block.find(lambda v: v.role == "iteration")
    if index is None:
        return None
    series = block.find(lambda v: v.role == "series" and block.writer.size(v.dims[0]) >= index.trips)
    return series and read_row(block, series, index)


def gather(block: Block) -> Var | None:
    writer = block.writer
    var = block.find(lambda v: len(v.dims) > 0 and writer.shape(v)[0] > 0)
    if var is None:
        return None
    axis = writer.random.randrange(len(var.dims))
    size = writer.shape(var)[axis]
    taken = writer.random.choice(((), (1,), (2,)))
    indices = block.constant(
        np.array([writer.random.randrange(size) for _ in range(int(np.prod(taken)))]).reshape(taken), T.INT64
    )
    return block.add("Gather", [var, indices], var.dtype, (*var.dims[:axis], *taken, *var.dims[axis + 1 :]), axis=axis)


def cut(block: Block) -> Var | None:
    """A Slice by constants; ends may be left open or lie beyond the end."""
    writer = block.writer
    var = block.find(lambda v: len(v.dims) > 0)
    if var is None:
        return None
    axis = writer.random.randrange(len(var.dims))
    start, end, step = writer.random.choice(((0, -1, 1), (1, 2**31, 1), (0, 1, 1), (-2, 9, 1), (0, 2, 1), (9, -9, -1)))
    size = len(range(writer.shape(var)[axis])[start:end:step]) if step > 0 else writer.shape(var)[axis]
    dims = (*var.dims[:axis], writer.unknown(size), *var.dims[axis + 1 :])
    if writer.opset < 10:
        if step < 0:
            return None
        return block.add("Slice", [var], var.dtype, dims, starts=[start], ends=[end], axes=[axis])
    inputs = [var, block.ints(start), block.ints(end), block.ints(axis)]
    return block.add("Slice", [*inputs, block.ints(step)] if step != 1 else inputs, var.dtype, dims)


def concat(block: Block) -> Var | None:
    writer = block.writer
    one = block.find(lambda v: len(v.dims) > 0)
    if one is None:
        return None
    axis = writer.random.randrange(len(one.dims))
    rest = [d for k, d in enumerate(writer.shape(one)) if k != axis]
    alike = lambda v: v.dtype == one.dtype and len(v.dims) == len(one.dims)  # noqa: E731
    other = block.find(lambda v: alike(v) and [d for k, d in enumerate(writer.shape(v)) if k != axis] == rest)
    assert other is not None
    size = writer.shape(one)[axis] + writer.shape(other)[axis]
    both = isinstance(one.dims[axis], int) and isinstance(other.dims[axis], int)
    if np.prod(rest) * size > LARGEST:
        return None
    dims = [a if a == b else writer.unknown(writer.size(a)) for a, b in zip(one.dims, other.dims, strict=True)]
    dims[axis] = size if both else writer.unknown(size)
    return block.add(
        "Concat",
        [one, other],
        one.dtype,
        dims,
        axis=axis - len(dims) if writer.opset > 10 and writer.chance(0.3) else axis,
    )


def unsqueeze(block: Block, var: Var, axis: int) -> Var:
    """With a new dim of 1."""
    dims = (*var.dims[:axis], 1, *var.dims[axis:])
    if block.writer.opset < 13:
        return block.add("Unsqueeze", [var], var.dtype, dims, axes=[axis])
    return block.add("Unsqueeze", [var, block.ints(axis)], var.dtype, dims)


def squeeze(block: Block, var: Var, axis: int) -> Var:
    """Without this dim of 1."""
    dims = (*var.dims[:axis], *var.dims[axis + 1 :])
    if block.writer.opset < 13:
        return block.add("Squeeze", [var], var.dtype, dims, axes=[axis])
    return block.add("Squeeze", [var, block.ints(axis)], var.dtype, dims)


def reshape(block: Block) -> Var | None:
    """Unsqueeze, Squeeze, a Reshape to numbers or to what is left, a Transpose, an Expand."""
    writer = block.writer
    var = block.find(lambda v: v.dtype != T.BOOL)
    if var is None:
        return None
    sizes, rank = writer.shape(var), len(var.dims)
    kind = writer.random.choice(("unsqueeze", "squeeze", "flat", "numbers", "kept", "transpose", "expand"))
    if kind == "unsqueeze" and rank < 3:
        return unsqueeze(block, var, writer.random.randint(0, rank))
    if kind == "squeeze" and 1 in sizes:
        return squeeze(block, var, sizes.index(1))
    if kind == "flat":
        return block.add("Reshape", [var, block.ints(-1)], var.dtype, (writer.unknown(int(np.prod(sizes))),))
    if kind == "numbers" and rank:
        return block.add("Reshape", [var, block.ints(*sizes[::-1])], var.dtype, sizes[::-1])
    if kind == "kept" and rank:
        dims = (var.dims[0], writer.unknown(int(np.prod(sizes[1:]))))
        return block.add("Reshape", [var, block.ints(0, -1)], var.dtype, dims)
    if kind == "transpose" and rank > 1:
        order = [*range(1, rank), 0]
        return block.add("Transpose", [var], var.dtype, [var.dims[k] for k in order], perm=order)
    if kind == "expand" and np.prod(sizes) <= LARGEST / 2:
        dims: tuple[Dim, ...] = (2, *(1 for _ in sizes)) if rank < 3 else tuple(sizes)
        whole = writer.broadcast(Var("", var.dtype, dims), var)
        return block.add("Expand", [var, block.ints(*map(writer.size, dims))], var.dtype, whole or ())
    return None


def reduce(block: Block) -> Var | None:
    writer = block.writer
    op = writer.random.choice(("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"))
    var = block.find(lambda v: len(v.dims) > 0 and allows(op, writer.opset, v.dtype))
    if var is None:
        return None
    axis, keep = writer.random.randrange(len(var.dims)), writer.chance(0.5)
    dims = (*var.dims[:axis], *((1,) if keep else ()), *var.dims[axis + 1 :])
    if writer.opset >= (13 if op == "ReduceSum" else 18):
        return block.add(op, [var, block.ints(axis)], var.dtype, dims, keepdims=int(keep))
    return block.add(op, [var], var.dtype, dims, keepdims=int(keep), axes=[axis])


def matmul(block: Block) -> Var | None:
    writer = block.writer
    right = block.find(lambda v: len(v.dims) == 2 and allows("MatMul", writer.opset, v.dtype))
    if right is None:
        return None
    inner = writer.shape(right)[0]
    left = block.find(lambda v: v.dtype == right.dtype and len(v.dims) in (1, 2) and writer.shape(v)[-1] == inner)
    if left is None:
        left = block.constant(np.arange(2 * inner).reshape(2, inner) % 3, right.dtype)
    return block.add("MatMul", [left, right], right.dtype, (*left.dims[:-1], right.dims[1]))


def accumulate(block: Block) -> Var | None:
    writer = block.writer
    var = block.find(lambda v: len(v.dims) > 0 and allows("CumSum", writer.opset, v.dtype))
    if var is None:
        return None
    axis = block.constant(writer.random.randrange(len(var.dims)), T.INT64)
    return block.add("CumSum", [var, axis], var.dtype, var.dims, exclusive=int(writer.chance(0.3)))


def has_shape(var: Var) -> bool:
    """Whether its shape may be asked for: not a stack's, whose rows may have others where no iteration runs (README)."""
    is_stack = var.role == "series" and len(var.dims) > 1 and str(var.dims[0]).startswith("?")
    return len(var.dims) > 0 and not is_stack


def size_of(block: Block) -> Var | None:
    """A dim as a number to compute with."""
    writer = block.writer
    var = block.find(has_shape)
    if var is None:
        return None
    shape = block.add("Shape", [var], T.INT64, (len(var.dims),))
    index = block.constant(writer.random.randrange(len(var.dims)), T.INT64)
    return block.add("Gather", [shape, index], T.INT64, (), axis=0)


def filled(block: Block) -> Var | None:
    """Zeros, or ones, of the shape of another value."""
    var = block.find(has_shape)
    if var is None or block.writer.opset < 9:
        return None
    shape = block.add("Shape", [var], T.INT64, (len(var.dims),))
    return block.add("ConstantOfShape", [shape], T.FLOAT, var.dims)


def split(block: Block) -> Var | None:
    writer = block.writer
    var = block.find(lambda v: len(v.dims) > 0 and v.dims[-1] in (2, 4) and v.dtype in FLOATS)
    if var is None:
        return None
    half = int(writer.size(var.dims[-1])) // 2
    outs = [Var(writer.fresh("t"), var.dtype, (*var.dims[:-1], half)) for _ in range(2)]
    block.write("Split", [var], outs, axis=len(var.dims) - 1, **({"num_outputs": 2} if writer.opset >= 18 else {}))
    return outs[1]


ORDINARY: dict[Maker, int] = {
    arithmetic: 10, compare: 2, logic: 1, unary: 3, cast: 2, where: 2, rows: 4, gather: 1, cut: 2, concat: 1,
    reshape: 3, reduce: 2, matmul: 1, accumulate: 1, size_of: 1, filled: 1, split: 1,
}  # fmt: skip

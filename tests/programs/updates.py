"""What a loop's body makes of a carried value: mostly forms that can be lifted, and what stands close to them."""

from __future__ import annotations

import dataclasses

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from programs.block import FLOATS, Block, Var, allows
from programs.ordinary import binary, unsqueeze


def update(block: Block, state: Var, before: list[Var]) -> Var | None:
    """The state's next value; None if a draw did not fit. `before`: all carried values of the loop."""
    writer = block.writer
    kinds = {step: 8, scaled: 4, chosen: 3, branched: 2, there_and_back: 2, other: 3, kept: 1, counter: 2, written: 2}
    kind = writer.random.choices(list(kinds), list(kinds.values()))[0]
    made = kind(block, state, before)
    if made is None or writer.shape(made) != writer.shape(state):
        return None
    writer.used[f"update: {kind.__name__}"] += 1
    return made


def operand(block: Block, state: Var, before: list[Var]) -> Var:
    """Something to add to a state or to multiply it by; now and then it depends on another carry."""
    writer = block.writer
    free = block.find(lambda v: v not in before and writer.fits(v, state) and v.role != "iteration", local=0.5)
    if free is None or writer.chance(0.15):
        return block.number(state.dtype)
    return block.find(lambda v: writer.fits(v, state)) or free if writer.chance(0.15) else free


def step(block: Block, state: Var, before: list[Var]) -> Var | None:
    """An addition or a subtraction, now and then two."""
    writer = block.writer
    made = state
    for _ in range(1 + writer.chance(0.15)):
        pair = [made, operand(block, state, before)]
        writer.random.shuffle(pair)
        following = binary(block, "Add" if writer.chance(0.7) else "Sub", *pair)
        if following is None:
            return None
        made = following
    return made


def scaled(block: Block, state: Var, before: list[Var]) -> Var | None:
    """A product, and mostly a sum."""
    product = binary(block, "Mul", state, operand(block, state, before))
    if product is None or block.writer.chance(0.3):
        return product
    return binary(block, block.writer.random.choice(("Add", "Add", "Sub")), product, operand(block, state, before))


def chosen(block: Block, state: Var, before: list[Var]) -> Var | None:
    """The updated state or the old one, by a mask."""
    writer = block.writer
    following = step(block, state, before)
    whole = Var("", T.BOOL, state.dims)
    mask = block.find(lambda v: v.dtype == T.BOOL and v not in before and writer.fits(v, whole))
    if following is None or mask is None or not allows("Where", writer.opset, T.BOOL):
        return following
    pair = (following, state) if writer.chance(0.7) else (state, following)
    return block.add("Where", [mask, *pair], state.dtype, state.dims)


def branched(block: Block, state: Var, before: list[Var]) -> Var | None:
    """The updated state or another value, by an If."""
    flag = block.find(lambda v: v.dtype == T.BOOL and v.dims == ())
    if flag is None:
        return None
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = block.inner()
        made = (step(inner, state, before) if block.writer.chance(0.6) else None) or operand(inner, state, before)
        if block.writer.fits(made, state) and made.dims != state.dims:
            made = state
        out = inner.result(made)
        branches[name] = inner.graph([], [out.info(block.writer.style())])
    return block.add("If", [flag], state.dtype, state.dims, **branches)


def there_and_back(block: Block, state: Var, before: list[Var]) -> Var | None:
    """The update in a wider type."""
    wide = {T.FLOAT16: T.FLOAT, T.FLOAT: T.DOUBLE, T.INT32: T.INT64, T.BFLOAT16: T.FLOAT}.get(state.dtype)
    if wide is None:
        return None
    terms = [state, operand(block, state, before)]
    cast = [block.add("Cast", [v], wide, v.dims, to=wide) for v in terms]
    total = binary(block, "Add", *cast)
    return total and block.add("Cast", [total], state.dtype, total.dims, to=state.dtype)


def other(block: Block, state: Var, before: list[Var]) -> Var | None:
    """Any value of the state's type and shape: another carry, a row, something captured."""
    return block.find(lambda v: (v.dtype, v.dims) == (state.dtype, state.dims) and v != state)


def kept(block: Block, state: Var, before: list[Var]) -> Var:
    """The state itself."""
    return state


def counter(block: Block, state: Var, before: list[Var]) -> Var | None:
    """A step by a constant, of any type."""
    return binary(block, "Add", state, block.number(state.dtype))


def written(block: Block, state: Var, before: list[Var]) -> Var | None:
    """A row of the state, replaced by the index of the iteration."""
    writer = block.writer
    index = block.find(lambda v: v.role == "iteration" and v.dims == ())
    row = Var("", state.dtype, state.dims[1:])
    if index is None or not state.dims or writer.opset < 11 or writer.size(state.dims[0]) < 4:
        return None
    value = block.find(lambda v: v not in before and (v.dtype, v.dims) == (row.dtype, row.dims))
    if value is None:
        value = block.constant(np.ones(writer.shape(row)), row.dtype)
    indices = block.add("Reshape", [index, block.ints(1, 1)], T.INT64, (1, 1))
    return block.add("ScatterND", [state, indices, unsqueeze(block, value, 0)], state.dtype, state.dims)


@dataclasses.dataclass
class Grown:
    """A carry that grows: a list (SequenceInsert), or a tensor to which rows are appended (Concat)."""

    initial: str
    state: str
    updated: str
    declared: list
    joined: Var
    is_list: bool


def grow(outside: Block, block: Block, row: Var, trips: int) -> Grown:
    """A list or a tensor that takes this row of the body in each iteration; `joined` comes into scope afterwards."""
    writer = outside.writer
    dims = (writer.unknown(trips), *row.dims)
    joined, state, updated = Var(writer.fresh("rows"), row.dtype, dims), writer.fresh("l"), writer.fresh("l")
    if writer.opset >= 13 and writer.chance(0.6):
        initial = writer.fresh("l")
        outside.nodes.append(helper.make_node("SequenceEmpty", [], [initial], dtype=row.dtype))
        block.nodes.append(helper.make_node("SequenceInsert", [state, row.name], [updated]))
        shape = row.info().type.tensor_type.shape
        shape = [d.dim_value if d.HasField("dim_value") else None for d in shape.dim] if writer.chance(0.5) else None
        declared = [helper.make_tensor_sequence_value_info(name, row.dtype, shape) for name in (state, updated)]
        writer.used["list"] += 1
        return Grown(initial, state, updated, declared, joined, True)
    rank = len(row.dims) + 1
    empty = outside.constant(np.zeros((0, *writer.shape(row))), row.dtype)
    new = unsqueeze(block, row, 0)
    block.nodes.append(helper.make_node("Concat", [state, new.name], [updated], axis=0))
    grown = Var(state, row.dtype, tuple(writer.unknown(0) for _ in range(rank)))
    declared = [grown.info("ranks", name) for name in (state, updated)]
    writer.used["grown tensor"] += 1
    return Grown(empty.name, state, updated, declared, joined, False)


def numbers(var: Var) -> bool:
    """Whether a state of this type is worth an update by arithmetic."""
    return var.dtype in FLOATS or var.dtype in (T.INT64, T.INT32)

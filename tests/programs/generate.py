"""A program from a seed: a model whose graph holds a loop or several, and inputs for it."""

from __future__ import annotations

import collections
import dataclasses

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from programs.block import FLOATS, INTEGERS, Block, Dim, Var, Writer
from programs.loops import DOMAIN, call, fill, loop, scan

OPSETS = (*range(8, 27),)
NAMES = ("A", "B", "N", "T")
TYPES = {
    T.FLOAT: 40, T.DOUBLE: 12, T.INT64: 16, T.INT32: 12, T.FLOAT16: 10, T.BFLOAT16: 2, T.INT8: 2, T.INT16: 1,
    T.UINT8: 1, T.UINT16: 1, T.UINT32: 2, T.UINT64: 1,
}  # fmt: skip
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.1, np.inf, -np.inf, np.nan, 1e-45, 1e30, -3.5, 65504.0)

FIRST = "as written"
"""The inputs whose sizes a program was written for."""

Feeds = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Program:
    """A model, named inputs for it, and what it is made of."""

    model: onnx.ModelProto
    feeds: dict[str, Feeds]
    used: collections.Counter[str]

    def text(self) -> str:
        """As ONNX text."""
        return onnx.printer.to_text(self.model)


def program(seed: int) -> Program:
    """The program of this seed: always the same one."""
    draw = Writer(seed, 0).random
    writer = Writer(draw.randrange(2**62), draw.choice(OPSETS) if draw.random() < 0.6 else 17)
    draw = writer.random
    writer.main = draw.choices(list(TYPES), list(TYPES.values()))[0]
    if writer.main in INTEGERS[2:] and writer.opset < 14:
        writer.main = T.INT64
    if writer.main == T.BFLOAT16 and writer.opset < 19:
        writer.main = T.FLOAT
    writer.used[f"opset {writer.opset}"] += 1
    writer.used[f"type {T.DataType.Name(writer.main).lower()}"] += 1
    for name in NAMES:
        writer.sizes[name] = draw.choice((1, 2, 2, 3, 3)) if name != "T" else 4
    block = Block(writer)
    inputs = _inputs(writer)
    block.own += inputs
    fixed = _initializers(block)
    fill(block, draw.randint(0, 1))
    for _ in range(draw.choice((1, 1, 1, 2))):
        draw.choices((loop, scan, call), (6, 2, 1))[0](block)
    fill(block, draw.randint(0, 1))
    made = [v for v in block.own if v not in inputs and v not in fixed]
    last = list(dict.fromkeys([*made[-6:], *writer.some(made, 0, 2)]))
    outputs = [v for v in last if writer.chance(0.75)] or last[-1:]
    outputs = [v if writer.chance(0.9) else block.add("Identity", [v], v.dtype, v.dims) for v in outputs]
    styles = ("symbols", "symbols", "ranks") if writer.chance(0.8) else ("type", "symbols")  # the checker wants shapes
    declared = [v.info(draw.choice(styles)) for v in inputs]
    returned = [v.info(draw.choice(styles)) for v in outputs]
    defaults = [v.info() for v in fixed if writer.chance(0.2)]
    model = helper.make_model(
        block.graph([*declared, *defaults], returned),
        functions=[function for function, _, _ in writer.functions],
        opset_imports=[helper.make_opsetid("", writer.opset)]
        + ([helper.make_opsetid(DOMAIN, 1)] if writer.functions else []),
        ir_version=8 if writer.opset < 21 else 10,
    )
    return Program(model, _feeds(writer, inputs), writer.used)


def _inputs(writer: Writer) -> list[Var]:
    """Trip count, flags, series, and tensors whose dims are numbers or symbols."""
    draw = writer.random

    def dims(rank: int) -> tuple[Dim, ...]:
        return tuple(draw.choice((*NAMES[:3], 1, 2, 3)) for _ in range(rank))

    second = draw.choice((T.FLOAT, T.INT64, T.INT32, T.DOUBLE, T.BOOL))
    shapes = [dims(draw.randint(0, 2)) for _ in range(2)]
    inputs = [
        Var("n", T.INT64, (1,) if writer.chance(0.1) else (), "limit"),
        Var("flag", T.BOOL, ()),
        Var("series", writer.main, ("T", *draw.choice((shapes[0], dims(1), ()))), "series"),
        *(Var(f"x{k}", writer.main, shape) for k, shape in enumerate([*shapes, draw.choice(shapes), dims(1)])),
        Var("y", second, draw.choice(shapes)),
        Var("mask", T.BOOL, draw.choice((shapes[0], ("T",), ("T", *shapes[0])))),
    ]
    return [v if v.name != "mask" or v.dims[:1] != ("T",) else dataclasses.replace(v, role="series") for v in inputs]


def _initializers(block: Block) -> list[Var]:
    """Up to two tensors of the model itself, for bodies to capture."""
    writer = block.writer
    made = []
    for _ in range(writer.random.randint(0, 2)):
        shape = tuple(writer.random.choice((1, 2, 3, 5)) for _ in range(writer.random.randint(0, 2)))
        count = int(np.prod(shape))
        values = [writer.random.choice((0, 1, 2, 3)) for _ in range(count)]
        var = Var(writer.fresh("w"), writer.main, shape, "series" if shape[:1] == (5,) else "")
        block.initializers.append(helper.make_tensor(var.name, var.dtype, shape, values))
        made.append(var)
    block.own += made
    return made


def _feeds(writer: Writer, inputs: list[Var]) -> dict[str, Feeds]:
    """Inputs of the sizes the program was written for; of others; without iterations, by M, by cond, by sizes."""
    draw = writer.random
    sizes = dict(writer.sizes)
    special = writer.chance(0.5)
    odd = draw.choice((0, 0, 1, 2, 3))
    cases = {
        FIRST: (sizes, 4, True, False),
        "special": (sizes, draw.choice((1, 2, 3)), True, special),
        "no iteration": (sizes, draw.choice((0, 0, -1, -(2**62))), draw.random() < 0.7, False),
        "cond false": (sizes, 4, False, special),
        "all sizes alike": (dict.fromkeys(sizes, odd) | {"T": max(odd, 1)}, draw.choice((0, 1, 4)), True, False),
        "other sizes": ({name: draw.choice((0, 1, 2, 3)) for name in sizes}, draw.choice((0, 1, 2)), True, False),
    }
    return {name: _case(writer, inputs, *case) for name, case in cases.items()}


def _case(writer: Writer, inputs: list[Var], sizes: dict[str, int], trips: int, flag: bool, special: bool) -> Feeds:
    random = np.random.default_rng(writer.random.randrange(2**32))
    feeds: Feeds = {}
    for var in inputs:
        shape = tuple(d if isinstance(d, int) else sizes[d] for d in var.dims)
        feeds[var.name] = _values(random, var.dtype, shape, special)
    feeds["n"] = np.full(feeds["n"].shape, trips, np.int64)
    feeds["flag"] = np.array(flag)
    return feeds


def _values(random: np.random.Generator, dtype: int, shape: tuple[int, ...], special: bool) -> np.ndarray:
    """Small whole numbers, whose sums no order changes; with special ones, where asked for."""
    kind = ml_dtypes.bfloat16 if dtype == T.BFLOAT16 else helper.tensor_dtype_to_np_dtype(dtype)
    values = random.integers(-3, 4, shape)
    if dtype == T.BOOL:
        return np.asarray(random.random(shape) < 0.6)
    if not special:
        return np.asarray(np.abs(values) if np.dtype(kind).kind == "u" else values).astype(kind)
    if dtype in FLOATS:
        drawn = np.where(random.random(shape) < 0.25, random.choice(SPECIAL, shape), random.standard_normal(shape) * 3)
        with np.errstate(over="ignore"):
            return np.asarray(drawn).astype(kind)
    return np.asarray(random.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, dtype=kind, endpoint=True))

"""What programs are made of: values with sizes, graphs that are being written, and constants wherever they may stand."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

Dim = int | str
"""A number, a symbol, or (with a leading ``?``) a dim without a name."""

FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
INTEGERS = (T.INT64, T.INT32, T.INT16, T.INT8, T.UINT64, T.UINT32, T.UINT16, T.UINT8)
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Var:
    """A tensor in scope.

    Attributes:
        name: unique in the program.
        dtype: a code of ``TensorProto``.
        dims: of its shape.
        role: ``iteration``, ``series`` (its rows are for reading one an iteration), ``limit`` or nothing.
        trips: for an iteration number, how many there are with the first inputs.
    """

    name: str
    dtype: int
    dims: tuple[Dim, ...]
    role: str = ""
    trips: int = 0

    def info(self, style: str = "symbols", name: str = "") -> onnx.ValueInfoProto:
        """Its declaration; styles: ``symbols``, ``ranks`` (no dim is known), ``type`` (no shape), ``nothing``,
        ``lie`` (dims that it does not have: of a body's values no engine checks them)."""
        if style == "nothing":
            return onnx.ValueInfoProto(name=name or self.name)
        shape = [None if isinstance(d, str) and (style == "ranks" or d.startswith("?")) else d for d in self.dims]
        if style == "lie":
            shape = [d + 1 if isinstance(d, int) else "A" for d in self.dims]
        return helper.make_tensor_value_info(name or self.name, self.dtype, None if style == "type" else shape)


@functools.cache
def allows(op: str, opset: int, dtype: int) -> bool:
    """Whether the operator takes this type as its first input."""
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return False
    name = f"tensor({T.DataType.Name(dtype).lower()})"
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return name in constraints.get(schema.inputs[0].type_str, [schema.inputs[0].type_str])


class Writer:
    """State shared by all graphs of a program: the draws, fresh names, sizes of symbols, functions, what was used."""

    def __init__(self, seed: int, opset: int) -> None:
        self.random = random.Random(seed)
        self.opset = opset
        self.sizes: dict[str, int] = {}
        self.used: collections.Counter[str] = collections.Counter()
        self.main: int = T.FLOAT
        self.functions: list[tuple[onnx.FunctionProto, list[Var], list[Var]]] = []
        self._names = itertools.count()

    def fresh(self, prefix: str) -> str:
        """A name that nothing else has."""
        return f"{prefix}{next(self._names)}"

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self.random.random() < share

    def pick(self, options: Iterable[Item]) -> Item | None:
        """One of them, or None if there is none."""
        found = list(options)
        return self.random.choice(found) if found else None

    def some(self, options: Sequence[Item], least: int, most: int) -> list[Item]:
        """Some of them, one may come twice."""
        return [self.random.choice(options) for _ in range(self.random.randint(least, most))] if options else []

    def size(self, dim: Dim) -> int:
        """Of the dim, in the first inputs."""
        return dim if isinstance(dim, int) else self.sizes[dim]

    def shape(self, var: Var) -> tuple[int, ...]:
        """Of the value, in the first inputs."""
        return tuple(map(self.size, var.dims))

    def unknown(self, size: int) -> Dim:
        """A dim of this size about which no declaration says anything."""
        name = self.fresh("?")
        self.sizes[name] = size
        return name

    def joined(self, one: Dim, other: Dim) -> Dim:
        """The dim of a broadcast; true for all inputs with which the broadcast is legal."""
        if one == other or other == 1:
            return one
        if one == 1 or isinstance(other, int):
            return other
        return one if isinstance(one, int) else self.unknown(max(self.size(one), self.size(other)))

    def broadcast(self, one: Var, other: Var) -> tuple[Dim, ...] | None:
        """The dims of what an operator makes of both, None if their shapes don't fit."""
        rank = max(len(one.dims), len(other.dims))
        left, right = ((1,) * (rank - len(v.dims)) + v.dims for v in (one, other))
        sizes = [(self.size(a), self.size(b)) for a, b in zip(left, right, strict=True)]
        if any(a != b and 1 not in (a, b) for a, b in sizes):
            return None
        return tuple(self.joined(a, b) for a, b in zip(left, right, strict=True))

    def fits(self, var: Var, into: Var) -> bool:
        """Whether the value has `into`'s type and leaves its shape as it is when both are added."""
        both = self.broadcast(var, into)
        return var.dtype == into.dtype and both is not None and tuple(map(self.size, both)) == self.shape(into)

    def carried_style(self) -> str:
        """How a carried value is declared in a body."""
        return "lie" if self.chance(0.02) else self.style()

    def style(self, shaped: bool = False) -> str:
        """How something inside is declared; `shaped`: mostly with a shape, which ONNX Runtime wants to know of rows."""
        weights = (16, 6, 1, 1) if shaped else (8, 2, 3, 2)
        return self.random.choices(("symbols", "ranks", "type", "nothing"), weights)[0]


class Block:
    """A graph that is being written: the main one, a function's, or one in a node.

    Attributes:
        endless: in the outermost graph, names of trip counts that no loop reaches.
    """

    def __init__(self, writer: Writer, outer: Sequence[Var] = (), root: Block | None = None) -> None:
        self.writer = writer
        self.outer = list(outer)
        self.own: list[Var] = []
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.root = root or self
        self.depth = 0
        self.holds_initializers = True
        self.endless: set[str] = set()

    @property
    def scope(self) -> list[Var]:
        """All values that nodes here can read."""
        return self.outer + self.own

    def inner(self) -> Block:
        """A block in a node of this one."""
        block = Block(self.writer, self.scope, self.root)
        block.depth = self.depth + 1
        return block

    def add(self, op: str, inputs: Sequence[Var | str], dtype: int, dims: Sequence[Dim], **attributes: Any) -> Var:
        """Writes a node with one output, which comes into scope."""
        out = Var(self.writer.fresh("t"), dtype, tuple(dims))
        self.write(op, inputs, [out], **attributes)
        return out

    def write(self, op: str, inputs: Sequence[Var | str], outputs: Sequence[Var], **attributes: Any) -> None:
        """Writes a node."""
        names = [v if isinstance(v, str) else v.name for v in inputs]
        self.nodes.append(
            helper.make_node(op, names, [v.name for v in outputs], name=self.writer.fresh("n"), **attributes)
        )
        self.own += outputs
        self.writer.used[op] += 1

    def find(self, wanted: Callable[[Var], bool], local: float = 0.7) -> Var | None:
        """A value in scope, with this chance one of this block if there is any."""
        own = [v for v in self.own if wanted(v)]
        if own and self.writer.chance(local):
            return self.writer.random.choice(own)
        return self.writer.pick(v for v in self.scope if wanted(v))

    def constant(self, array: Any, dtype: int) -> Var:
        """A constant: a node or an initializer, here or in the outermost graph; not among the values to pick from."""
        values = np.asarray(array, np.float64 if dtype in FLOATS else None)
        name = self.writer.fresh("k")
        tensor = helper.make_tensor(name, dtype, values.shape, values.reshape(-1).tolist())
        home = self if self.writer.chance(0.5) else self.root
        short = {T.FLOAT: "value_float", T.INT64: "value_int"}.get(dtype)
        if short and values.ndim < 2 and values.size and self.writer.opset >= 12 and self.writer.chance(0.2):
            short, number = (short, values.item()) if values.ndim == 0 else (f"{short}s", values.tolist())
            home.nodes.insert(0, helper.make_node("Constant", [], [name], **{short: number}))
            return Var(name, dtype, values.shape)
        if self.root.holds_initializers and self.writer.chance(0.4):
            self.writer.used["initializer inside" if home.depth else "initializer outside"] += 1
            home.initializers.append(tensor)
        else:
            home.nodes.insert(0, helper.make_node("Constant", [], [name], value=tensor))
        return Var(name, dtype, values.shape)

    def ints(self, *values: int) -> Var:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64), T.INT64)

    def number(self, dtype: int) -> Var:
        """A scalar (or a vector of one) to compute with."""
        value = self.writer.random.choice([0, 1, 2, 3, 1, 0.5, 0.1, -1] if dtype in FLOATS else [0, 1, 2, 3])
        return self.constant(np.full((1,) if self.writer.chance(0.15) else (), value), dtype)

    def graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """What was written."""
        return helper.make_graph(self.nodes, self.writer.fresh("g"), inputs, outputs, self.initializers)

    def result(self, var: Var) -> Var:
        """The value under a name that this block's outputs may have: a copy, unless a node here made it."""
        if any(var.name in node.output for node in self.nodes if node.op_type != "Constant") and self.writer.chance(
            0.4
        ):
            self.writer.used["direct output"] += 1
            return var
        return self.add("Identity", [var], var.dtype, var.dims)

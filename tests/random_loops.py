"""Random Loop and Scan programs as ONNX text, with inputs, for properties of the lift."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

SHAPES = {"": (), "3": (3,), "2,3": (2, 3)}
DTYPES = {"float": "f4", "double": "f8", "int32": "i4", "int64": "i8", "float16": "f2"}
FORMS = [
    "{p} + {x}",
    "{x} + {p}",
    "{p} - {x}",
    "{x} - {p}",
    "{p} * {x}",
    "{p} * {x} + {y}",
    "{p} * {x} - {y}",
    "{p} + {x} + {y}",
    "{p} - {x} + {y}",
    "any",
]
ONNX_TYPES = {"float": 1, "double": 11, "int32": 6, "int64": 7, "float16": 10}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.1, np.inf, -np.inf, np.nan, 1e-45, 1e30, -3.5, 65504.0]


@dataclasses.dataclass
class Program:
    """ONNX text and a maker of feeds for it."""

    text: str
    opset: int
    dtype: str
    inputs: dict[str, str]

    def feeds(self, trip: int, condition: bool, seed: int) -> dict[str, np.ndarray]:
        """Inputs with special values among them; `series` has 7 rows."""
        random = np.random.default_rng(seed)
        values: dict[str, np.ndarray] = {"n": np.array(trip), "c": np.array(condition)}
        for name, dims in self.inputs.items():
            shape = tuple(7 if d == "T" else int(d) for d in dims.split(",") if d)
            kind = np.dtype(DTYPES[self.dtype])
            if kind.kind == "f":
                array = np.where(
                    random.random(shape) < 0.2, random.choice(SPECIAL, shape), random.standard_normal(shape) * 3
                ).astype(kind)
            else:
                array = random.integers(-(2**31), 2**31 - 1, shape).astype(kind)
            values[name] = np.asarray(array)
        return values


def _update(draw: st.DrawFn, carry: int, pool: list[str], add: Callable[[str], None]) -> str:
    """The name of a carry's updated value: mostly of a form that can be lifted, now and then anything."""
    form = draw(st.sampled_from(FORMS))
    if form == "any":
        return draw(st.sampled_from(pool))
    free = [name for name in pool if not name.startswith("p")]
    text = form.format(p=f"p{carry}", x=draw(st.sampled_from(free)), y=draw(st.sampled_from(free)))
    words = {"+": "Add", "-": "Sub", "*": "Mul"}
    left, sign, right, *rest = text.split()
    add(f"{words[sign]}({left}, {right})")
    if rest:
        add(f"{words[rest[0]]}({pool[-1]}, {rest[1]})")
    return pool[-1]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A Loop with one to three carries and zero to three scan outputs over a random body."""
    dtype = draw(st.sampled_from(list(DTYPES)))
    opset = draw(st.sampled_from([14, 17, 18, 21]))
    dims = [draw(st.sampled_from(list(SHAPES))) for _ in range(draw(st.integers(1, 3)))]
    inputs = {f"x{k}": d for k, d in enumerate(dims)} | {"s": draw(st.sampled_from(list(SHAPES))), "w": "3"}
    inputs["series"] = draw(st.sampled_from(["T", "T,3", "T,2,3"]))
    pool = [f"p{k}" for k in range(len(dims))] + ["s", "w"]
    lines: list[str] = []

    def value() -> str:
        return draw(st.sampled_from(pool))

    def add(expression: str) -> None:
        name = f"t{len(lines)}"
        lines.append(f"{name} = {expression}")
        pool.append(name)

    if draw(st.booleans()):
        add("Gather(series, i)")
    if draw(st.booleans()):
        add(f"Cast<to = {ONNX_TYPES[dtype]}>(i)")
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["Add", "Sub", "Mul", "Neg", "Identity", "Abs", "Max"]))
        if kind in ("Neg", "Identity", "Abs"):
            add(f"{kind}({value()})")
        else:
            add(f"{kind}({value()}, {value()})")
    updated = [_update(draw, k, pool, add) for k in range(len(dims))]
    stacked = [draw(st.sampled_from(pool)) for _ in range(draw(st.integers(0, 3)))]
    lines += [f"u{k} = Identity({name})" for k, name in enumerate(updated)]
    lines += [f"o{k} = Identity({name})" for k, name in enumerate(stacked)]
    condition = draw(st.sampled_from(['""', "c"]))
    finals, stacks = [f"v{k}" for k in range(len(dims))], [f"q{k}" for k in range(len(stacked))]
    declared = ", ".join(f"{dtype}[{d}] {name}" for name, d in inputs.items())
    returned = ", ".join(f"{dtype}[] {name}" for name in finals + stacks).replace("[]", "[" + "]")
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
agraph (int64 n, bool c, {declared}) => ({returned}) {{
  {", ".join(finals + stacks)} = Loop (n, {condition}, {", ".join(f"x{k}" for k in range(len(dims)))}) <body = b (
      int64 i, bool ci, {", ".join(f"p{k}" for k in range(len(dims)))}) => (
      bool co, {", ".join([f"u{k}" for k in range(len(dims))] + [f"o{k}" for k in range(len(stacked))])}) {{
    co = Identity(ci)
    {chr(10).join(lines)}
  }}>
}}"""
    return Program(text, opset, dtype, inputs)

"""Loops around one step of LSTM, GRU or RNN, and how their results are compared."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import looplift
from tests.engine_bits import bits, drawn

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
WIDTH, HIDDEN = 3, 4

HEAD = "(float[T,B,3] x, {states}, float[1,{g},3] W, float[1,{g},4] R, float[1,{b}] D)"
FORWARD = "xt = Gather<axis = 0>(x, i) xs = Unsqueeze(xt, zero)"
BACKWARD = "last = Sub(n, s1) j = Sub(last, i) xt = Gather<axis = 0>(x, j) xs = Unsqueeze(xt, zero)"
CONSTANTS = """zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() s1 = Constant<value_int = 1>()
  length = Shape<end = 1>(x) n = Squeeze(length)"""


def loop(
    op: str = "LSTM",
    *,
    read: str = FORWARD,
    attributes: str = "",
    inputs: str = "",
    ways: tuple[str, str] = ("{s}s = Unsqueeze({s}p, zero)", "{s}n = Squeeze(Y{s}, zero)"),
    more: str = "",
    row: str = "y = Identity(hn)",
    rows: str = "float[T,B,4] ys",
    state: str = "float[B,4]",
    behind: str = "",
    trips: str = "n",
) -> str:
    """The text of a graph: a Loop around one step; `ways` lead each state into the cell and out of it."""
    states = "hc" if op == "LSTM" else "h"
    into, out = (" ".join(way.format(s=s) for s in states) for way in ways)
    finals = ", ".join(f"{s}T" for s in states)
    gates = GATES[op] * HIDDEN
    head = HEAD.format(states=", ".join(f"{state} {s}0" for s in states), g=gates, b=2 * gates)
    produced = ", ".join([f"{state} {s}T" for s in states] + [rows])
    carried = ", ".join(f"{state} {s}p" for s in states)
    carried_on = ", ".join(f"{state} {s}n" for s in states)
    initial = ", ".join(f"{s}s" for s in states)
    made = ", ".join(f"Y{s}" for s in states)
    element = rows.rsplit(" ", 1)[0].replace("[T,", "[", 1)
    return f"""agraph {head} => ({produced}) {{ {CONSTANTS}
      {finals}, {"raw" if behind else rows.split()[-1]} = Loop ({trips}, "", {", ".join(f"{s}0" for s in states)})
        <body = b (int64 i, bool k, {carried}) => (bool go, {carried_on}, {element} y) {{
          {read} {more} {into}
          Y, {made} = {op}<hidden_size = 4{attributes}>(xs, W, R, D, {inputs or '""'}, {initial})
          {out} {row} go = Identity(k)
      }}>
      {behind}
    }}"""


def weights(op: str = "LSTM") -> dict[str, np.ndarray]:
    gates = GATES[op] * HIDDEN
    return {"W": drawn(1, gates, WIDTH), "R": drawn(1, gates, HIDDEN), "D": drawn(1, 2 * gates)}


def feeds(subject: ir.Model, steps: int, batch: int, state: tuple[int | None, ...] = (None, HIDDEN)):
    random = np.random.default_rng(steps + 10 * batch)
    shape = [batch if extent is None else extent for extent in state]
    values = {
        "x": random.standard_normal((steps, batch, WIDTH)),
        "h0": random.standard_normal(shape),
        "c0": -random.random(shape),
        "g0": random.standard_normal(shape),
        "d0": random.standard_normal(shape),
    }
    found = {name: value.astype(np.float32) for name, value in values.items()}
    found |= {"M": np.array(steps), "flag": np.array(True)}
    return {value.name: found[value.name] for value in subject.graph.inputs}


def agree(before: ir.Model, after: ir.Model, inputs: dict[str, np.ndarray]) -> None:
    """The same bits in ONNX Runtime, with its optimizers and without, and in Session, both ways."""
    for level in ("none", "all"):
        assert bits(before, inputs, level) == bits(after, inputs, level), f"{level}: {inputs['x'].shape}"
    wanted = looplift.Session(before, device="numpy").run(None, inputs)
    for definitions in (False, True):
        session = looplift.Session(after, device="numpy", definitions=definitions)
        for left, right in zip(wanted, session.run(None, inputs), strict=True):
            assert left.dtype == right.dtype
            assert left.shape == right.shape or not left.size + right.size
            assert left.tobytes() == right.tobytes()


SIZES = [(0, 2), (1, 1), (1, 2), (2, 3), (17, 2)]
"""Steps and batch. Of one batch entry and more steps, ONNX Runtime adds in another order (RNN, weights not known)."""

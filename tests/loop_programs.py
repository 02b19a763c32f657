"""Random programs with Loop, Scan and If: typed, in bounds, and valid in every engine that keeps to the standard."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper

DTYPES = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.INT64: np.int64, T.INT32: np.int32, T.BOOL: np.bool_}
SHAPES = [(), (2,), (1, 3)]
ROWS = 5
"""Length of what is gathered by the iteration number; no loop runs more often."""
UNKNOWN = -1


@dataclasses.dataclass(frozen=True)
class Var:
    name: str
    dtype: int
    shape: tuple[int, ...]

    def info(self, name: str | None = None) -> onnx.ValueInfoProto:
        shape = [None if d == UNKNOWN else d for d in self.shape]
        return helper.make_tensor_value_info(name or self.name, self.dtype, shape)


class Builder:
    """Draws nodes one at a time; every node's inputs are variables in scope."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.counter = itertools.count()

    def fresh(self, prefix: str = "t") -> str:
        return f"{prefix}{next(self.counter)}"

    def pick(self, scope: list[Var], **want: Any) -> Var | None:
        found = [v for v in scope if all(getattr(v, key) == value for key, value in want.items())]
        return self.draw(st.sampled_from(found)) if found else None

    def node(self, scope: list[Var], nodes: list[onnx.NodeProto], depth: int) -> None:
        """Add one node, or none if the draw does not fit what is in scope."""
        kinds = ["binary", "binary", "compare", "cast", "where", "neg", "gather", "reshape", "if", "loop", "scan"]
        kind = self.draw(st.sampled_from(kinds if depth < 2 else kinds[:8]))
        make = getattr(self, f"_{kind}")
        made = make(scope, nodes, depth) if kind in ("if", "loop", "scan") else make(scope, nodes)
        scope.extend(made or [])

    def emit(
        self, nodes: list[onnx.NodeProto], op: str, inputs: list[str], dtype: int, shape: Any, **attrs: Any
    ) -> Var:
        out = Var(self.fresh(), dtype, tuple(shape))
        nodes.append(helper.make_node(op, inputs, [out.name], name=self.fresh("n"), **attrs))
        return out

    def _binary(self, scope, nodes):
        a = self.draw(st.sampled_from(scope))
        b = self.pick([v for v in scope if v.shape in ((), a.shape)], dtype=a.dtype)
        if b is None:
            return None
        op = self.draw(
            st.sampled_from(["And", "Or", "Xor"] if a.dtype == T.BOOL else ["Add", "Sub", "Mul", "Max", "Min"])
        )
        return [self.emit(nodes, op, [a.name, b.name], a.dtype, a.shape)]

    def _compare(self, scope, nodes):
        a = self.draw(st.sampled_from([v for v in scope if v.dtype != T.BOOL]))
        b = self.pick([v for v in scope if v.shape in ((), a.shape)], dtype=a.dtype)
        op = self.draw(st.sampled_from(["Less", "Greater", "LessOrEqual", "Equal"]))
        if b is None:
            return None
        return [self.emit(nodes, op, [a.name, b.name], T.BOOL, a.shape)]

    def _cast(self, scope, nodes):
        a = self.draw(st.sampled_from(scope))
        # a float need not fit an integer, and what a cast gives then is nobody's rule
        to = self.draw(st.sampled_from([T.FLOAT, T.DOUBLE, T.BOOL] if a.dtype in (T.FLOAT, T.DOUBLE) else list(DTYPES)))
        return [self.emit(nodes, "Cast", [a.name], to, a.shape, to=to)]

    def _where(self, scope, nodes):
        a = self.draw(st.sampled_from(scope))
        c, b = self.pick(scope, dtype=T.BOOL), self.pick(scope, dtype=a.dtype, shape=a.shape)
        if c is None or c.shape not in ((), a.shape) or a.dtype == T.BOOL:
            return None
        return [self.emit(nodes, "Where", [c.name, a.name, b.name], a.dtype, a.shape)]

    def _neg(self, scope, nodes):
        a = self.draw(st.sampled_from(scope))
        return [self.emit(nodes, "Not" if a.dtype == T.BOOL else "Neg", [a.name], a.dtype, a.shape)]

    def _gather(self, scope, nodes):
        index = self.pick([v for v in scope if v.name.startswith("i_")])
        rows = self.pick([v for v in scope if v.shape[:1] == (ROWS,)])
        if index is None or rows is None:
            return None
        return [self.emit(nodes, "Gather", [rows.name, index.name], rows.dtype, rows.shape[1:], axis=0)]

    def _reshape(self, scope, nodes):
        a = self.draw(st.sampled_from([v for v in scope if len(v.shape) < 2] or scope))
        axis = self.draw(st.integers(0, len(a.shape)))
        axes = self.fresh("axes")
        nodes.append(helper.make_node("Constant", [], [axes], value=helper.make_tensor("", T.INT64, [1], [axis])))
        shape = (*a.shape[:axis], 1, *a.shape[axis:])
        return [self.emit(nodes, "Unsqueeze", [a.name, axes], a.dtype, shape)]

    def _graph(self, scope: list[Var], wanted: list[Var], inputs: list[onnx.ValueInfoProto], depth: int):
        """A graph whose outputs have the dtypes and shapes of `wanted`, each by a node of its own."""
        inner, nodes = list(scope), []
        for _ in range(self.draw(st.integers(0, 5))):
            self.node(inner, nodes, depth)
        outputs = []
        for want in wanted:
            source = self.pick(inner[len(scope) :], dtype=want.dtype, shape=want.shape) or want
            outputs.append(self.emit(nodes, "Identity", [source.name], want.dtype, want.shape))
        return helper.make_graph(nodes, self.fresh("g"), inputs, [v.info() for v in outputs])

    def _if(self, scope, nodes, depth):
        cond = self.pick(scope, dtype=T.BOOL, shape=())
        if cond is None:
            return None
        wanted = self.draw(st.lists(st.sampled_from(scope), min_size=1, max_size=2))
        branches = {f"{name}_branch": self._graph(scope, wanted, [], depth + 1) for name in ("then", "else")}
        outs = [Var(self.fresh(), v.dtype, v.shape) for v in wanted]
        nodes.append(helper.make_node("If", [cond.name], [v.name for v in outs], name=self.fresh("n"), **branches))
        return outs

    def _loop(self, scope, nodes, depth):
        limit = self.fresh("m")
        nodes.append(
            helper.make_node("Constant", [], [limit], value=helper.make_tensor("", T.INT64, [], [self.trips()]))
        )
        body, inputs, outs = self.loop_parts(scope, depth)
        nodes.append(
            helper.make_node("Loop", [limit, "", *inputs], [v.name for v in outs], name=self.fresh("n"), body=body)
        )
        return outs

    def trips(self) -> int:
        return self.draw(st.sampled_from([0, 1, 2, ROWS]))

    def loop_parts(self, scope: list[Var], depth: int):
        """A body, the initial values, and the outputs of the node."""
        initial = self.draw(st.lists(st.sampled_from(scope), min_size=1, max_size=3))
        index, keep = Var(self.fresh("i_"), T.INT64, ()), Var(self.fresh("c"), T.BOOL, ())
        states = [Var(self.fresh("s"), v.dtype, v.shape) for v in initial]
        rows = self.draw(st.lists(st.sampled_from(states), max_size=2))
        inner = [*scope, index, keep, *states]
        body = self._graph(inner, [*states, *rows], [v.info() for v in (index, keep, *states)], depth + 1)
        on = self.fresh("on")
        if self.draw(st.booleans()):  # stop after a few iterations
            bound = self.fresh("b")
            tensor = helper.make_tensor("", T.INT64, [], [self.draw(st.integers(0, ROWS))])
            body.node.append(helper.make_node("Constant", [], [bound], value=tensor))
            body.node.append(helper.make_node("Less", [index.name, bound], [on]))
        else:
            body.node.append(helper.make_node("Identity", [keep.name], [on]))
        body.output.insert(0, helper.make_tensor_value_info(on, T.BOOL, []))
        outs = [Var(self.fresh(), v.dtype, v.shape) for v in states]
        stacked = [Var(self.fresh("stack"), v.dtype, (UNKNOWN, *v.shape)) for v in rows]
        return body, [v.name for v in initial], [*outs, *stacked]

    def _scan(self, scope, nodes, depth):
        xs = [v for v in scope if v.shape[:1] == (ROWS,)]
        if not xs:
            return None
        initial = self.draw(st.lists(st.sampled_from([v for v in scope if v not in xs]), max_size=2))
        states = [Var(self.fresh("s"), v.dtype, v.shape) for v in initial]
        elements = [Var(self.fresh("e"), v.dtype, v.shape[1:]) for v in xs]
        rows = [self.draw(st.sampled_from([*states, *elements]))]
        body = self._graph(
            [*scope, *states, *elements], [*states, *rows], [v.info() for v in (*states, *elements)], depth + 1
        )
        outs = [Var(self.fresh(), v.dtype, v.shape) for v in states]
        stacked = [Var(self.fresh("stack"), v.dtype, (ROWS, *v.shape)) for v in rows]
        directions = [self.draw(st.integers(0, 1)) for _ in xs]
        back = self.draw(st.integers(0, 1))
        nodes.append(
            helper.make_node(
                "Scan", [v.name for v in (*initial, *xs)], [v.name for v in (*outs, *stacked)], name=self.fresh("n"),
                body=body, num_scan_inputs=len(xs), scan_input_directions=directions, scan_output_directions=[back],
            )
        )  # fmt: skip
        return [*outs, *stacked]


@st.composite
def programs(draw: Callable[[Any], Any]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model whose graph holds at least one Loop, and feeds for it."""
    builder = Builder(draw)
    dtypes = draw(st.lists(st.sampled_from(list(DTYPES)), min_size=2, max_size=4))
    scope = [Var(f"x{n}", dtype, draw(st.sampled_from(SHAPES))) for n, dtype in enumerate(dtypes)]
    scope += [Var("rows", T.FLOAT, (ROWS, 2)), Var("count", T.INT64, ()), Var("flag", T.BOOL, ())]
    inputs, nodes = list(scope), []
    for _ in range(draw(st.integers(0, 2))):
        builder.node(scope, nodes, 1)
    body, initial, outs = builder.loop_parts(scope, 0)
    start = draw(st.sampled_from(["", "flag"]))
    nodes.append(helper.make_node("Loop", ["count", start, *initial], [v.name for v in outs], name="outer", body=body))
    graph = helper.make_graph(nodes, "g", [v.info() for v in inputs], [v.info() for v in outs])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    feeds = {v.name: rng.integers(-3, 4, v.shape).astype(DTYPES[v.dtype]) for v in inputs}
    feeds |= {"count": np.array(builder.trips()), "flag": np.array(draw(st.booleans()))}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), feeds

"""How far an output may move if some nodes round differently: found by running the model with results pushed.

Each such node's result is pushed by what its rounding may amount to: a sum of K products by ``K * eps * sum |a * b|``,
the textbook bound for any order of adding; a function by `FUNCTION_ULPS` units in its last place. What the pushes,
all upwards, all downwards and at random, make of the model's outputs is the distance that rounding explains. Sums and
functions behind such a node are pushed, too: given other numbers, they round otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from looplift.patterns.graph.values import nodes_within
from looplift.verification.cases.made_up import Feeds
from looplift.verification.compare import Array, Value, is_float
from looplift.verification.engines import Interpreter
from looplift.verification.last_bits.influence import NONE, nodes_reached

FUNCTION_ULPS = 4
"""Units in the last place by which two implementations of a function may differ."""

RUNS = 6
"""One with all results pushed upwards, one downwards, the others at random."""

LARGEST_SHARE = 2.0**-5
"""No sum is pushed by more of its magnitude: beyond, so many terms of so few bits say nothing."""

_DOMAIN = "looplift.verification"
_LINEAR = {
    "Conv": (0, 1, 2),
    "ConvTranspose": (0, 1, 2),
    "CumSum": (0,),
    "Einsum": tuple(range(8)),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "ReduceL1": (0,),
    "ReduceMean": (0,),
    "ReduceSum": (0,),
}
"""Operators whose magnitude is what they give for absolute values, and which inputs these are."""


_WEIGHTED = {"Conv": 0, "ConvTranspose": 1}
"""Operators whose weights, the second input, say how many terms are added, and the axis of these that is not."""


_CELLS = frozenset({"GRU", "LSTM", "RNN"})


@dataclasses.dataclass(frozen=True)
class Spread:
    """How the outputs of one run may move: what they are, and what they become with each push."""

    base: list[Value]
    pushed: list[list[Value]]

    def of(self, output: int) -> Any:
        """For each element the largest distance, for a sequence a list; None if its shape changed or it is no float."""
        return _spread(self.base[output], [values[output] for values in self.pushed])


def _spread(base: Value, pushed: Sequence[Value]) -> Any:
    if isinstance(base, list | tuple):
        if any(not isinstance(value, list | tuple) or len(value) != len(base) for value in pushed):
            return None
        return [_spread(one, [value[k] for value in pushed]) for k, one in enumerate(base)]
    if not _is_float_tensor(base):
        return None
    found = np.zeros(np.shape(base))
    for value in pushed:
        if not _is_float_tensor(value) or np.shape(value) != np.shape(base):
            return None
        with np.errstate(all="ignore"):
            away = np.abs(np.asarray(value).astype(np.float64) - np.asarray(base).astype(np.float64))
        found = np.fmax(found, np.where(np.isnan(away), 0.0, away))
    return found


class Rounding:
    """A model with some of its nodes pushed.

    Args:
        model: not changed.
        marked: which nodes round differently; asked about each node of the model.
        rounds: which nodes are pushed if such a node's result reaches them.
        seconds: longest run.
    """

    def __init__(
        self,
        model: ir.Model,
        marked: Callable[[ir.Node], bool],
        rounds: Callable[[ir.Node], bool],
        *,
        seconds: float,
    ) -> None:
        copy = model.clone()
        roots: list[ir.Graph | ir.Function] = [copy.graph, *copy.functions.values()]
        nodes = [node for root in roots for node in nodes_within(root) if marked(node)]
        behind = nodes_reached(copy, lambda node, _: frozenset([True]) if marked(node) else NONE)
        nodes += [node for node in behind if rounds(node) and not marked(node)]
        self._push = _Push()
        for node in nodes:
            _insert(node)
        ops = {(_DOMAIN, node.op_type): self._push.by(node.op_type) for node in nodes}
        self._engine = Interpreter(copy, seconds=seconds, extra=ops)

    def spread(self, feeds: Feeds) -> Spread | None:
        """How the outputs may move; None if the model fails, or takes too long."""
        found: list[list[Value]] = []
        for run in range(-1, RUNS):
            self._push.begin(run)
            outcome = self._engine.run(feeds)
            if outcome.outputs is None:
                return None
            found.append(outcome.outputs)
        return Spread(found[0], found[1:])


class _Push:
    """What pushes results: in one run all up, in one all down, and then at random."""

    def begin(self, run: int) -> None:
        """Begins a run; -1: nothing is pushed."""
        self._run = run
        self._random = np.random.default_rng(max(run, 0))

    def by(self, op_type: str) -> Callable[..., Any]:
        """Pushes a result of such an operator; given are the result, an operand and the magnitude, if any."""

        def push(result: Value, operand: Value, *magnitude: Value) -> Value:
            if self._run < 0 or not _is_float_tensor(result):
                return result
            array = np.asarray(result)
            with np.errstate(all="ignore"):
                wide = array.astype(np.float64)
                bound = _bound(op_type, array, np.asarray(operand), magnitude)
                signs = self._signs(array.shape)
                return np.asarray((wide + signs * np.where(np.isnan(bound), 0.0, bound)).astype(array.dtype))

        return push

    def _signs(self, shape: tuple[int, ...]) -> Array:
        if self._run < 2:
            return np.full(shape, 1.0 - 2.0 * self._run)
        return np.asarray(self._random.choice((-1.0, 1.0), shape))


def _bound(op_type: str, result: Array, operand: Array, magnitude: Collection[Value]) -> Array:
    eps = float(ml_dtypes.finfo(result.dtype).eps)  # type: ignore[no-untyped-call]
    size = np.abs(result.astype(np.float64))
    terms = _terms(op_type, result, operand)
    if terms is None:
        return np.asarray(FUNCTION_ULPS * eps * size)
    sizes = [np.asarray(each).astype(np.float64) for each in magnitude] or [size + _more(op_type)]
    return np.asarray(np.maximum(min(terms * eps, LARGEST_SHARE) * sizes[0], eps * size))


def _more(op_type: str) -> float:
    """What a logarithm, or a gate of a cell, is of at least, where its result is near 0."""
    return 1.0 if "Log" in op_type or op_type in _CELLS else 0.0


def _terms(op_type: str, result: Array, operand: Array) -> int | None:
    """How many terms each element is a sum of, at most; None for what is no sum."""
    if op_type == "MatMul":
        return int(operand.shape[-1]) if operand.ndim else 1
    if op_type == "Gemm":
        return int(operand.size) // max(int(result.shape[0]), 1) + 1
    if op_type.startswith("Reduce"):
        return max(int(operand.size) // max(int(result.size), 1), 1)
    if op_type in ("CumSum", "Einsum", "LogSoftmax", "Softmax"):
        return max(map(int, operand.shape), default=1)
    if op_type in _WEIGHTED:
        return int(operand.size) // max(int(operand.shape[_WEIGHTED[op_type]]), 1) + 1
    if op_type in _CELLS:
        return int(operand.shape[0] * (operand.shape[-1] + result.shape[-1]))
    return None


def _is_float_tensor(value: Value) -> bool:
    return value is not None and not isinstance(value, list | tuple) and is_float(np.asarray(value).dtype)


def _insert(node: ir.Node) -> None:
    """Puts a push behind each output of a node."""
    graph = node.graph
    assert graph is not None
    added: list[ir.Node] = []
    magnitudes: list[ir.Value] = []
    if node.op_type in _LINEAR:
        inputs = list(node.inputs)
        for place in _LINEAR[node.op_type]:
            if place < len(inputs) and (operand := inputs[place]) is not None:
                added.append(ir.Node("", "Abs", [operand]))
                inputs[place] = added[-1].outputs[0]
        added.append(ir.Node(node.domain, node.op_type, inputs, node.attributes.values()))
        magnitudes = list(added[-1].outputs)
    for result in node.outputs:
        pushed = ir.Value(name=f"{result.name} pushed", type=result.type, shape=result.shape)
        ir.convenience.replace_all_uses_with(result, pushed, replace_graph_outputs=True)
        operand = node.inputs[1 if node.op_type in _WEIGHTED else 0]
        added.append(ir.Node(_DOMAIN, node.op_type, [result, operand, *magnitudes], outputs=[pushed]))
    for number, each in enumerate(value for new in added for value in new.outputs):
        each.name = each.name or f"{node.outputs[0].name} magnitude {number}"
    graph.insert_after(node, added)

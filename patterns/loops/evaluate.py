"""What a loop's body computes from constants and its iteration number alone, found by computing it.

A value is *closed* if nothing but constants, the iteration number and carries that start as constants and are updated
by closed values goes into it. Closed values can be computed before the model runs, iteration by iteration. Only ops
are followed whose results the standard settles bit for bit.

Source: bounded interpretation, as in XLA's analysis of while loops (its ``while_loop_analysis``, by evaluating the
condition and the induction variable).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from looplift.patterns.graph.budget import Array, Budget, budget
from looplift.patterns.graph.constants import constant, shape_part
from looplift.patterns.graph.operators import TRAITS, Trait, has_references, is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import defined_in
from looplift.patterns.graph.view import LoopView

SETTLED = (TRAITS[Trait.FOLDS] | {"NonZero", "ReduceProd"}) - {"CastLike", "Div", "Mod", "Relu"}
"""Division of integers is left out: onnx's reference implementation rounds it otherwise than the standard."""

DTYPES = frozenset({np.dtype(t) for t in (np.bool_, np.int32, np.int64, np.float32, np.float64)})

LARGEST = 4096
"""Elements of a closed value."""


class Simulation:
    """A Loop's closed values and their numbers."""

    def __init__(self, view: LoopView, types: Types) -> None:
        self.view, self.types = view, types
        self._closed: dict[int, ir.Value] = {}
        self._carries = {id(c.previous): c for c in view.carries if _small(constant(c.initial, view.opset))}
        while True:
            self._closed = self._follow()
            lost = [key for key, carry in self._carries.items() if not self.holds(carry.updated)]
            if not lost:
                break
            for key in lost:
                del self._carries[key]

    def holds(self, value: ir.Value) -> bool:
        """Whether the value is closed."""
        return id(value) in self._closed or _small(self.fixed(value))

    def fixed(self, value: ir.Value) -> Array | None:
        """The value if it is a constant, or a shape that is known."""
        array, node = constant(value, self.view.opset), value.producer()
        if array is not None or not is_standard(node, "Shape"):
            return array
        shape = self.types[node.inputs[0]].shape
        known = [dim for dim in shape or () if isinstance(dim, int)]
        if shape is None or len(known) != len(shape) or has_references(node):
            return None
        return np.array(known[shape_part(node)], np.int64)

    def _follow(self) -> dict[int, ir.Value]:
        """The closed values of the body, inputs first, then in the order of its nodes."""
        view = self.view
        inputs = [view.iteration, view.condition_in, *(carry.previous for carry in self._carries.values())]
        found = {id(value): value for value in inputs}
        for node in view.body:
            if not is_standard(node) or node.op_type not in SETTLED:
                continue
            if has_references(node):
                continue
            read = [value for value in node.inputs if value is not None]
            if all(id(value) in found or _small(self.fixed(value)) for value in read):
                found.update((id(output), output) for output in node.outputs)
        return found

    def run(self, wanted: list[ir.Value]) -> Iterator[list[Array]]:
        """The numbers of closed values, iteration by iteration, for ever.

        Ends where an op fails, one of the numbers gets large, or the budget (`patterns.graph.budget`) is spent. What
        was computed once is remembered there, so that to ask again costs nothing.
        """
        carries = list(self._carries.values())
        program = _Program(self, self._closed, [*wanted, *(carry.updated for carry in carries)])
        states = [constant(carry.initial, self.view.opset) for carry in carries]
        key, now = program.key(states), budget()
        for iteration in itertools.count():
            found: list[Array] | None = now.kept((key, iteration))
            if found is None:
                found = program([carry.previous for carry in carries], states, iteration, now) or []
                now.keep((key, iteration), found, sum(array.nbytes for array in found))
            if not found:
                return
            yield found[: len(wanted)]
            states = [*found[len(wanted) :]]


class _Program:
    """The nodes behind some closed values as a function of the iteration number and the closed carries."""

    def __init__(self, simulation: Simulation, closed: dict[int, ir.Value], results: list[ir.Value]) -> None:
        view = self._view = simulation.view
        self._fixed = simulation.fixed
        self._names: dict[int, str] = {}
        self._constants: dict[str, Array] = {}
        self._results = results
        needed: set[int] = set()
        work = list(results)
        while work:
            value = work.pop()
            node = value.producer()
            if id(value) in needed:
                continue
            needed.add(id(value))
            if node is not None and id(value) in closed and defined_in(value, view.body):
                work.extend(x for x in node.inputs if x is not None)
        self._nodes = [
            node for node in view.body if any(id(output) in needed and id(output) in closed for output in node.outputs)
        ]
        nodes = [self._proto(node) for node in self._nodes]
        for value in results:
            self._name(value)
        read = {name for node in nodes for name in node.input} | {self._names[id(value)] for value in results}
        made = {name for node in nodes for name in node.output}
        outputs = [onnx.helper.make_value_info(self._names[id(v)], onnx.TypeProto()) for v in results]
        inputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in sorted(read - made - {""})]
        graph = onnx.helper.make_graph(nodes, "closed", inputs, outputs)
        opsets = [onnx.helper.make_opsetid("", view.opset)]
        self._evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets))
        self._text = graph.SerializeToString(deterministic=True)

    def key(self, states: list[Array | None]) -> bytes:
        """What tells it from every other program that starts from other numbers."""
        arrays = [(name, array) for name, array in self._constants.items()]
        arrays += [(str(k), state) for k, state in enumerate(states) if state is not None]
        parts = [(name, array.dtype.name, array.shape, array.tobytes()) for name, array in arrays]
        iteration = self._view.iteration.shape
        rank = None if iteration is None else len(iteration)
        return hashlib.sha256(repr((self._view.opset, rank, self._text, parts)).encode()).digest()

    def _name(self, value: ir.Value | None) -> str:
        if value is None:
            return ""
        if id(value) not in self._names:
            self._names[id(value)] = f"v{len(self._names)}"
            array = self._fixed(value)
            if array is not None:
                self._constants[self._names[id(value)]] = array
        return self._names[id(value)]

    def _proto(self, node: ir.Node) -> onnx.NodeProto:
        proto = onnx.NodeProto(op_type=node.op_type)
        proto.input.extend(self._name(value) for value in node.inputs)
        proto.output.extend(self._name(value) for value in node.outputs)
        proto.attribute.extend(ir.to_proto(attribute) for attribute in node.attributes.values())
        return proto

    def __call__(
        self, previous: list[ir.Value], states: list[Array | None], iteration: int, now: Budget
    ) -> list[Array] | None:
        """The results; None if an op refuses its inputs, costs too much, or a result is not one that is followed."""
        values: dict[str, Any] = {"": None, **self._constants}
        shape = (1,) if self._view.iteration.shape is not None and len(self._view.iteration.shape) == 1 else ()
        values[self._name(self._view.iteration)] = np.full(shape, iteration, np.int64)
        values[self._name(self._view.condition_in)] = np.ones((), np.bool_)
        values.update((self._name(value), state) for value, state in zip(previous, states, strict=True))
        for node, operator in zip(self._nodes, self._evaluator.rt_nodes_, strict=True):
            given = [values[name] for name in operator.input]
            if now.spend(node, given) is not None:
                return None
            try:
                with np.errstate(all="ignore"):  # integers wrap
                    made = operator.run(*given)
            except Exception:  # the loop meets the same error if it comes that far
                return None
            values.update((name, np.asarray(array)) for name, array in zip(operator.output, made, strict=False))
        found = [np.asarray(values[self._name(value)]) for value in self._results]
        return found if all(_small(array) for array in found) else None


def _small(array: Array | None) -> bool:
    return array is not None and array.dtype in DTYPES and array.size <= LARGEST

"""Plans a model: every graph becomes one Python function, every node one line of it.

Names are resolved, types inferred, attributes read and operators chosen once, here. Constants become globals,
Identity costs nothing, functions of the model are planned in place, and a value is released after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import operators, types, values, ways
from looplift.runtime.interpreter.call import Call, RunKernel
from looplift.runtime.interpreter.scope import (
    ABSENT,
    Frame,
    Planned,
    Slot,
    captures,
    label,
    needed_nodes,
    opsets_of,
    resolve,
)
from looplift.runtime.interpreter.source import Line, Site, Source, releasing_before
from looplift.runtime.ops import DOMAIN, all_ops


class Program:
    """A model planned for one way of running it."""

    def __init__(
        self,
        model: ir.Model,
        *,
        run_kernel: RunKernel,
        keeps_on_device: bool = False,
        definitions: bool = False,
        max_iterations: int | None = None,
        progress: Callable[[str, int, int | None], None] | None = None,
        extra: Mapping[tuple[str, str], Callable[..., Any]] = MappingProxyType({}),
    ) -> None:
        self.model = model
        self.run_kernel = run_kernel
        self.keeps_on_device = keeps_on_device
        self.definitions = definitions
        self.max_iterations = max_iterations
        self.progress = progress
        self.extra = extra
        self.source = Source()
        self.source.use(values.truth, values.host, values.as_value)
        self.source.globals["np"] = np
        self.run = self._plan_main()

    def _plan_main(self) -> Callable[..., tuple[Any, ...]]:
        graph = self.model.graph
        frame = Frame({}, {}, opsets_of(self.model.opset_imports), "/")
        for value in graph.inputs:
            frame.slots[value] = Slot(self.source.fresh("v"), types.type_string(value.type))
        try:
            planned = self.plan(frame, graph)
        except _LocatedError as error:
            raise LoopliftError(str(error)) from error
        site = Site("graph", graph.name or "", "/")
        results = "".join(f"{slot.host}, " for slot in planned.outputs)
        last = Line(f"return ({results})", site, tuple(slot.name for slot in planned.outputs))
        lines = releasing_before(planned.lines, last)
        self.source.define("main", [frame.slots[v].name for v in graph.inputs], site, lines)
        self.source.compile()
        run: Callable[..., tuple[Any, ...]] = self.source.globals["main"]
        return run

    # -- graphs ---------------------------------------------------------------------------------------------------

    def plan(self, frame: Frame, graph: ir.Graph) -> Planned:
        """Plan the nodes of a graph that its outputs need; its inputs must have slots already.

        Raises:
            LoopliftError: the graph is not valid.
        """
        lines: list[Line] = []
        needed = needed_nodes(graph)
        for node in graph:
            if node in needed:
                lines.extend(self._plan_node(frame, node))
        return Planned(lines, [self.slot(frame, value, "an output of the graph") for value in graph.outputs])

    def slot(self, frame: Frame, value: ir.Value | None, user: str) -> Slot:
        """Where a value is found.

        Raises:
            LoopliftError: nothing has computed it.
        """
        if value is None:
            return ABSENT
        if value in frame.slots:
            return frame.slots[value]
        if value.const_value is not None and value.producer() is None and not value.is_graph_input():
            return self.constant(frame, value, values.tensor_array(value.const_value))
        raise LoopliftError(f"'{value.name}', {user}, is computed by nothing before it: the model is not valid ONNX")

    def constant(self, frame: Frame, value: ir.Value, array: values.Array) -> Slot:
        """Give a value a constant array."""
        slot = Slot(self.source.bind("c", array), types.of_dtype(array.dtype), constant=array)
        frame.slots[value] = slot
        return slot

    def captured(self, frame: Frame, graph: ir.Graph) -> list[Slot]:
        """Slots of the outer values that a subgraph reads and that are variables."""
        found = {s.name: s for s in (frame.slots.get(v) for v in captures(graph)) if s and not s.absent}
        return [slot for slot in found.values() if slot.constant is None]

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _plan_node(self, frame: Frame, node: ir.Node) -> list[Line]:
        try:
            return self._choose(frame, node)
        except _LocatedError:
            raise
        except Exception as error:  # whatever an op's own code makes of a wrong node
            site = Site(node.op_type, label(node), frame.path)
            message = error if isinstance(error, LoopliftError) else f"{type(error).__name__}: {error}"
            raise _LocatedError(f"{site}: {message}") from error

    def _choose(self, frame: Frame, node: ir.Node) -> list[Line]:
        inputs = [self.slot(frame, value, "an input") for value in node.inputs]
        attributes = resolve(node.attributes, frame.attributes)
        call = Call(self, frame, node, inputs, attributes)
        domain = operators.standard_domain(node.domain)
        if (domain, node.op_type) in self.extra:
            return ways.by_extra(call, self.extra[domain, node.op_type])
        known = all_ops().get(node.op_type) if domain == DOMAIN and not self.definitions else None
        if known is not None:
            return ways.by_kernel(call, known)
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return ways.by_function(call, function)
        if domain == DOMAIN and node.op_type in all_ops():
            opset = frame.opset("") or onnx.defs.onnx_opset_version()
            return ways.by_function(call, ir.serde.deserialize_function(all_ops()[node.op_type].definition(opset)))
        version = frame.opset(domain)
        if version is None:
            raise LoopliftError(f"the model does not import the domain '{domain or 'ai.onnx'}'")
        schema = operators.schema_of(domain, node.op_type, version)
        if schema is None:
            raise LoopliftError(f"there is no op {domain or 'ai.onnx'}::{node.op_type} in opset {version}")
        return ways.by_standard(call, schema)


class _LocatedError(LoopliftError):
    """An error on its way out whose message names its node already."""

"""One node while it is planned: what it is given, and the lines that it gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import onnx_ir as ir

from looplift.runtime.interpreter import operators, values
from looplift.runtime.interpreter.scope import Frame, Planned, Slot, label
from looplift.runtime.interpreter.source import Line, Site, Source
from looplift.runtime.ops import Op

RunKernel = Callable[[Op, Mapping[str, Any], Sequence[bool]], Callable[..., Any]]
"""Makes the function that runs one custom node from its op, attributes and which outputs are wanted."""


class Planner(Protocol):
    """What a node may ask of the program that it is planned for."""

    model: ir.Model
    run_kernel: RunKernel
    keeps_on_device: bool
    max_iterations: int | None
    progress: Callable[[str, int, int | None], None] | None
    source: Source

    def plan(self, frame: Frame, graph: ir.Graph) -> Planned:
        """The lines of a graph whose inputs have slots."""

    def constant(self, frame: Frame, value: ir.Value, array: values.Array) -> Slot:
        """Give a value a constant array."""

    def captured(self, frame: Frame, graph: ir.Graph) -> list[Slot]:
        """Slots of the outer values that a subgraph reads and that are variables."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One node while it is planned: its slots and resolved attributes."""

    program: Planner
    frame: Frame
    node: ir.Node
    inputs: list[Slot]
    attributes: dict[str, ir.Attr]

    @property
    def site(self) -> Site:
        """Where the node stands."""
        return Site(self.node.op_type, label(self.node), self.frame.path)

    @property
    def used(self) -> list[bool]:
        """Which outputs anything reads."""
        return [bool(v.name) and (bool(v.uses()) or v.is_graph_output()) for v in self.node.outputs]

    def input_types(self) -> list[operators.Input]:
        """The types of the inputs, False for an absent one."""
        return [False if slot.absent else slot.type for slot in self.inputs]

    def line(self, expression: str, kinds: Sequence[str | None], **facts: Any) -> list[Line]:
        """One line that assigns an expression's result to the node's outputs."""
        reads = tuple(dict.fromkeys(s.name for s in self.inputs if not s.absent))
        return [self.assign(expression, kinds, reads=reads, **facts)]

    def assign(
        self,
        expression: str,
        kinds: Sequence[str | None],
        *,
        reads: tuple[str, ...],
        random: bool = False,
        unpack: bool | None = None,
        on_device: bool = False,
    ) -> Line:
        """The line ``outputs = expression``, which gives the outputs their slots."""
        names = []
        for value, used, kind in zip(self.node.outputs, self.used, kinds, strict=True):
            name = self.program.source.fresh("v") if used else "_"
            names.append(name)
            if used:
                self.frame.slots[value] = Slot(name, kind, on_device=on_device)
        unpack = len(names) != 1 if unpack is None else unpack
        target = ", ".join(names) + "," * (unpack and len(names) == 1)
        text = f"{target} = {expression}" if names else expression
        return Line(text, self.site, reads, tuple(n for n in names if n != "_"), random)

    def arguments(self, *, host: bool = True) -> list[str]:
        """The inputs as expressions, in host memory unless told otherwise."""
        return [s.host if host else s.name for s in self.inputs]

"""One node while it is planned: what it is given, and the ways to run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import control_flow, numpy_forms, operators, own_ops, reference, values
from looplift.runtime.interpreter.scope import ABSENT, Frame, Slot, label, opsets_of, subgraphs
from looplift.runtime.interpreter.source import Line, Site
from looplift.runtime.ops import Op

if TYPE_CHECKING:
    from looplift.runtime.interpreter.program import Program


@dataclasses.dataclass(frozen=True)
class Call:
    """One node while it is planned: its slots and resolved attributes."""

    program: Program
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

    # -- the ways to run a node -----------------------------------------------------------------------------------

    def kernel(self, op: Op) -> list[Line]:
        """A custom op by its kernel."""
        proto = operators.node_proto(self.node, self.attributes)
        kinds = operators.output_types(op.schema, proto, self.input_types(), self.frame.opsets)
        attributes = {name: attr.value for name, attr in (operators.defaults(op.schema) | self.attributes).items()}
        # A node may leave trailing outputs out; a kernel gives all of its op's.
        given = len(self.node.outputs)
        wanted = [*self.used, *[False] * (len(op.schema.outputs) - given)]
        run = self.program.source.bind("kernel", self.program.run_kernel(op, attributes, wanted))
        expression = f"{run}({', '.join(self.arguments(host=not self.program.keeps_on_device))})[:{given}]"
        return self.line(expression, kinds, unpack=True, on_device=self.program.keeps_on_device)

    def function(self, function: ir.Function) -> list[Line]:
        """A function of the model, planned in place."""
        name = function.identifier()
        if name in self.frame.calls:
            raise LoopliftError(f"function {function.domain}::{function.name} calls itself")
        if len(self.inputs) > len(function.inputs) or len(self.node.outputs) > len(function.outputs):
            raise LoopliftError(
                f"function {function.domain}::{function.name} has {len(function.inputs)} inputs and "
                f"{len(function.outputs)} outputs, the node {len(self.inputs)} and {len(self.node.outputs)}"
            )
        actual = [*self.inputs, *[ABSENT] * (len(function.inputs) - len(self.inputs))]
        defaults = {attr.name: attr for attr in function.attributes.values() if attr.value is not None}
        inner = Frame(
            slots=dict(zip(function.inputs, actual, strict=True)),
            attributes=defaults | self.attributes,
            opsets={**self.frame.opsets, **opsets_of(function.opset_imports)},
            path=f"{self.frame.path.rstrip('/')}/{label(self.node)}:function {function.domain}::{function.name}",
            calls=(*self.frame.calls, name),
        )
        planned = self.program.plan(inner, function.graph)
        self.frame.slots.update(zip(self.node.outputs, planned.outputs, strict=False))
        return planned.lines

    def standard(self, schema: onnx.defs.OpSchema) -> list[Line]:
        """A node of the standard: control flow, a sequence op, one numpy expression, or onnx's implementation."""
        if schema.domain == "" and self.node.op_type in control_flow.OPS:
            return control_flow.OPS[self.node.op_type](self, schema)
        if schema.domain == "" and self.node.op_type == "Constant":
            array = _constant(self.attributes)
            self.program.constant(self.frame, self.node.outputs[0], array)
            return []
        proto = operators.node_proto(self.node, self.attributes)
        kinds = operators.output_types(schema, proto, self.input_types(), self.frame.opsets)
        if schema.domain == "" and self.node.op_type == "Identity":
            self.frame.slots[self.node.outputs[0]] = self.inputs[0]
            return []
        expression = own_ops.form(self, schema.since_version)
        if expression is not None:
            return self._appending(self.line(expression, kinds))
        expression = numpy_forms.form(self, kinds) if schema.domain == "" else None
        if expression is not None:
            return [] if self._folds(expression, kinds) else self.line(expression, kinds)
        implementation = None if any(subgraphs(self.node)) else reference.load(proto, self.frame.opsets)
        if implementation is None:
            definition = operators.definition(schema, proto, self.input_types(), self.frame.opset(schema.domain) or 1)
            if "" not in self.frame.opsets:
                definition.opset_imports.setdefault("", onnx.defs.onnx_opset_version())
            return dataclasses.replace(self, attributes=operators.defaults(schema) | self.attributes).function(
                definition
            )
        run = self.program.source.bind(f"{schema.name}_", reference.ReferenceOp(implementation, kinds))
        random = schema.name in operators.RANDOM
        return self.line(f"{run}({', '.join(self.arguments())})", kinds, random=random)

    def _folds(self, expression: str, kinds: Sequence[str | None]) -> bool:
        """Compute a numpy expression of small constants now. One that fails is left to fail when, and if, it runs."""
        constants = [slot.constant for slot in self.inputs if not slot.absent]
        if len(kinds) != 1 or any(c is None or c.size > _SMALL for c in constants):
            return False
        try:
            with np.errstate(all="ignore"):
                result = np.array(eval(expression, self.program.source.globals))
        except Exception:
            return False
        if result.size > _SMALL:
            return False
        result.flags.writeable = False
        self.program.constant(self.frame, self.node.outputs[0], result)
        return True

    def _appending(self, lines: list[Line]) -> list[Line]:
        """Mark the line of a SequenceInsert at the end."""
        names = [slot.name for slot in self.inputs]
        if self.node.op_type != "SequenceInsert" or len(names) != 2 or names[0] == names[1] or self.inputs[1].on_device:
            return lines
        return [dataclasses.replace(line, appends_to=names[0]) for line in lines]


_SMALL = 256
"""Elements of a constant that is worth computing while planning."""

_CONSTANTS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def _constant(attributes: Mapping[str, ir.Attr]) -> values.Array:
    """The array of a Constant node.

    Raises:
        LoopliftError: it has not exactly one value, or a sparse one.
    """
    if len(attributes) != 1:
        raise LoopliftError(f"a constant needs exactly one value; it has {', '.join(attributes) or 'none'}")
    ((name, attribute),) = attributes.items()
    if name == "value":
        return values.tensor_array(attribute.as_tensor())
    if name not in _CONSTANTS:
        raise LoopliftError(f"a constant by the attribute '{name}' can't be run; give it as a tensor")
    array = np.array(attribute.value, dtype=_CONSTANTS[name])
    array.flags.writeable = False
    return array

"""Plans a model: every graph becomes one Python function, every node one line of it.

Names are resolved, types inferred, attributes read and operators chosen once, here. Constants become globals,
Identity costs nothing, functions of the model are planned in place, and a value is released after its last use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import control_flow, numpy_forms, operators, own_ops, reference, types, values
from looplift.runtime.interpreter.scope import ABSENT, Frame, Planned, Slot, captures, needed_nodes, resolve, subgraphs
from looplift.runtime.interpreter.source import Line, Site, Source
from looplift.runtime.ops import DOMAIN, Op, all_ops

RunKernel = Callable[[Op, Mapping[str, Any], Sequence[bool]], Callable[..., Any]]
"""Makes the function that runs one custom node from its op, attributes and which outputs are wanted."""


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
    ) -> None:
        self.model = model
        self.run_kernel = run_kernel
        self.keeps_on_device = keeps_on_device
        self.definitions = definitions
        self.max_iterations = max_iterations
        self.progress = progress
        self.source = Source()
        self.source.use(values.truth, values.host, values.as_value)
        self.source.globals["np"] = np
        self.run = self._plan_main()

    def _plan_main(self) -> Callable[..., tuple[Any, ...]]:
        graph = self.model.graph
        frame = Frame({}, {}, _opsets(self.model.opset_imports), "/")
        for value in graph.inputs:
            frame.slots[value] = Slot(self.source.fresh("v"), types.type_string(value.type))
        planned = self.plan(frame, graph)
        outputs = [f"host({slot.name})" if slot.on_device else slot.name for slot in planned.outputs]
        site = Site("graph", graph.name or "", "/")
        last = Line(
            f"return ({''.join(f'{name}, ' for name in outputs)})", site, tuple(s.name for s in planned.outputs)
        )
        lines = control_flow.releasing_before(planned.lines, last)
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
            return self.constant(frame, value, values.tensor_array(value.const_value), value.const_value.dtype)
        raise LoopliftError(f"'{value.name}', {user}, is computed by nothing before it: the model is not valid ONNX")

    def constant(self, frame: Frame, value: ir.Value, array: values.Array, dtype: ir.DataType) -> Slot:
        """Give a value a constant array."""
        slot = Slot(self.source.bind("c", array), types.type_string(ir.TensorType(dtype)), constant=array)
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
        except LoopliftError as error:
            site = Site(node.op_type, node.name or "", frame.path)
            raise _LocatedError(f"{site}: {error}") from error

    def _choose(self, frame: Frame, node: ir.Node) -> list[Line]:
        inputs = [self.slot(frame, value, "an input") for value in node.inputs]
        attributes = resolve(node.attributes, frame.attributes)
        call = Call(self, frame, node, inputs, attributes)
        domain = operators.standard_domain(node.domain)
        known = all_ops().get(node.op_type) if domain == DOMAIN and not self.definitions else None
        if known is not None:
            return call.kernel(known)
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return call.function(function)
        if domain == DOMAIN and node.op_type in all_ops():
            opset = frame.opset("") or onnx.defs.onnx_opset_version()
            return call.function(ir.serde.deserialize_function(all_ops()[node.op_type].definition(opset)))
        opset = frame.opset(domain)
        if opset is None:
            raise LoopliftError(f"the model does not import the domain '{domain or 'ai.onnx'}'")
        schema = operators.schema_of(domain, node.op_type, opset)
        if schema is None:
            raise LoopliftError(f"there is no op {domain or 'ai.onnx'}::{node.op_type} in opset {opset}")
        return call.standard(schema)


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
        return Site(self.node.op_type, self.node.name or "", self.frame.path)

    @property
    def used(self) -> list[bool]:
        """Which outputs anything reads."""
        return [bool(v.name) and (bool(v.uses()) or v.is_graph_output()) for v in self.node.outputs]

    def input_types(self) -> list[operators.Input]:
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
        return [f"host({s.name})" if s.on_device and host else s.name for s in self.inputs]

    # -- the ways to run a node -----------------------------------------------------------------------------------

    def kernel(self, op: Op) -> list[Line]:
        """A custom op by its kernel."""
        proto = operators.node_proto(self.node, self.attributes)
        kinds = operators.output_types(op.schema, proto, self.input_types(), self.frame.opsets)
        attributes = {name: attr.value for name, attr in (_defaults(op.schema) | self.attributes).items()}
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
            opsets={**self.frame.opsets, **_opsets(function.opset_imports)},
            path=f"{self.frame.path.rstrip('/')}/{self.node.name}:function {function.domain}::{function.name}",
            calls=(*self.frame.calls, name),
        )
        planned = self.program.plan(inner, function.graph)
        self.frame.slots.update(zip(self.node.outputs, planned.outputs, strict=False))
        return planned.lines

    def standard(self, schema: onnx.defs.OpSchema) -> list[Line]:
        """A node of the standard: control flow, a sequence op, one numpy expression, or onnx's implementation."""
        if schema.domain == "" and self.node.op_type in control_flow.OPS:
            return control_flow.OPS[self.node.op_type](self, schema)
        proto = operators.node_proto(self.node, self.attributes)
        kinds = operators.output_types(schema, proto, self.input_types(), self.frame.opsets)
        if schema.domain == "" and self._folds(proto, kinds):
            return []
        expression = own_ops.form(self, schema.since_version)
        if expression is None and schema.domain == "":
            expression = numpy_forms.form(self, kinds)
        if expression is not None:
            return self.line(expression, kinds)
        implementation = None if any(subgraphs(self.node)) else reference.load(proto, self.frame.opsets)
        if implementation is None:
            definition = _definition(schema, proto, self.input_types(), self.frame.opset(schema.domain) or 1)
            if "" not in self.frame.opsets:
                definition.opset_imports.setdefault("", onnx.defs.onnx_opset_version())
            return dataclasses.replace(self, attributes=_defaults(schema) | self.attributes).function(definition)
        run = self.program.source.bind(f"{schema.name}_", reference.ReferenceOp(implementation, kinds))
        random = schema.name in operators.RANDOM
        return self.line(f"{run}({', '.join(self.arguments())})", kinds, random=random)

    def _folds(self, proto: onnx.NodeProto, kinds: Sequence[str | None]) -> bool:
        """Plan nodes that compute nothing: constants, and Identity, whose output is its input's slot."""
        (output,) = self.node.outputs if len(self.node.outputs) == 1 else (None,)
        if output is None:
            return False
        if self.node.op_type == "Identity" and not self.inputs[0].on_device:
            self.frame.slots[output] = self.inputs[0]
            return True
        if self.node.op_type != "Constant":
            return False
        array = _constant(self.attributes, proto, self.frame.opsets, kinds)
        self.program.constant(self.frame, output, array, types.DATA_TYPES[types.of_dtype(array.dtype)[7:-1]])
        return True


class _LocatedError(LoopliftError):
    """An error whose message names its node already."""


def _opsets(imports: Mapping[str, int]) -> dict[str, int]:
    return {operators.standard_domain(domain): version for domain, version in imports.items()}


def _defaults(schema: onnx.defs.OpSchema) -> dict[str, ir.Attr]:
    """The attributes that a schema gives a default value."""
    protos = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: ir.serde.deserialize_attribute(proto) for name, proto in protos.items() if proto.name}


def _constant(
    attributes: Mapping[str, ir.Attr], proto: onnx.NodeProto, opsets: Mapping[str, int], kinds: Sequence[str | None]
) -> values.Array:
    """The array of a Constant node."""
    if "value" in attributes:
        return values.tensor_array(attributes["value"].as_tensor())
    result = reference.ReferenceOp(reference.load(proto, opsets), kinds)()
    array = np.asarray(result)
    array.flags.writeable = False
    return array


def _definition(
    schema: onnx.defs.OpSchema, proto: onnx.NodeProto, inputs: Sequence[operators.Input], opset: int
) -> ir.Function:
    """The function by which the standard defines an op that onnx does not implement.

    Raises:
        LoopliftError: the standard has none.
    """
    if opset in schema.function_opset_versions or schema.has_function:
        body = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, opset))
    elif schema.has_context_dependent_function and None not in inputs:
        kinds = [ir.serde.serialize_type(types.ir_type(k)) if isinstance(k, str) else onnx.TypeProto() for k in inputs]
        body = schema.get_context_dependent_function_with_opset_version(
            _newest(schema.context_dependent_function_opset_versions, opset),
            proto.SerializeToString(),
            [kind.SerializeToString() for kind in kinds],
        )
    else:
        raise LoopliftError("neither onnx's reference implementations nor the standard define this op")
    return ir.serde.deserialize_function(onnx.FunctionProto.FromString(body))


def _newest(versions: Iterable[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=opset)

"""The ways to run a node: by a kernel, as a function of the model, or as the standard says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import numpy_forms, operators, own_ops, reference, values
from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.control import control_flow
from looplift.runtime.interpreter.scope import ABSENT, Frame, label, opsets_of, subgraphs
from looplift.runtime.interpreter.source import Line
from looplift.runtime.ops import Op

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


def by_kernel(call: Call, op: Op) -> list[Line]:
    """A custom op by its kernel."""
    proto = operators.node_proto(call.node, call.attributes)
    kinds = operators.output_types(op.schema, proto, call.input_types(), call.frame.opsets)
    attributes = {name: attr.value for name, attr in (operators.defaults(op.schema) | call.attributes).items()}
    # A node may leave trailing outputs out; a kernel gives all of its op's.
    given = len(call.node.outputs)
    wanted = [*call.used, *[False] * (len(op.schema.outputs) - given)]
    run = call.program.source.bind("kernel", call.program.run_kernel(op, attributes, wanted))
    expression = f"{run}({', '.join(call.arguments(host=not call.program.keeps_on_device))})[:{given}]"
    return call.line(expression, kinds, unpack=True, on_device=call.program.keeps_on_device)


def by_extra(call: Call, run: Callable[..., Any]) -> list[Line]:
    """An op of the caller's own: of one output, and the first input's type."""
    name = call.program.source.bind("extra", run)
    return call.line(f"{name}({', '.join(call.arguments())})", [call.inputs[0].type], random=True)


def by_function(call: Call, function: ir.Function) -> list[Line]:
    """A function of the model, planned in place."""
    name = function.identifier()
    if name in call.frame.calls:
        raise LoopliftError(f"function {function.domain}::{function.name} calls itself")
    if len(call.inputs) > len(function.inputs) or len(call.node.outputs) > len(function.outputs):
        raise LoopliftError(
            f"function {function.domain}::{function.name} has {len(function.inputs)} inputs and "
            f"{len(function.outputs)} outputs, the node {len(call.inputs)} and {len(call.node.outputs)}"
        )
    actual = [*call.inputs, *[ABSENT] * (len(function.inputs) - len(call.inputs))]
    defaults = {attr.name: attr for attr in function.attributes.values() if attr.value is not None}
    inner = Frame(
        slots=dict(zip(function.inputs, actual, strict=True)),
        attributes=defaults | call.attributes,
        opsets={**call.frame.opsets, **opsets_of(function.opset_imports)},
        path=f"{call.frame.path.rstrip('/')}/{label(call.node)}:function {function.domain}::{function.name}",
        calls=(*call.frame.calls, name),
    )
    planned = call.program.plan(inner, function.graph)
    call.frame.slots.update(zip(call.node.outputs, planned.outputs, strict=False))
    return planned.lines


def by_standard(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """A node of the standard: control flow, a sequence op, one numpy expression, or onnx's implementation."""
    if schema.domain == "" and call.node.op_type in control_flow.OPS:
        return control_flow.OPS[call.node.op_type](call, schema)
    if schema.domain == "" and call.node.op_type == "Constant":
        array = _constant(call.attributes)
        call.program.constant(call.frame, call.node.outputs[0], array)
        return []
    proto = operators.node_proto(call.node, call.attributes)
    kinds = operators.output_types(schema, proto, call.input_types(), call.frame.opsets)
    if schema.domain == "" and call.node.op_type == "Identity":
        call.frame.slots[call.node.outputs[0]] = call.inputs[0]
        return []
    expression = own_ops.form(call, schema.since_version)
    if expression is not None:
        return _appending(call, call.line(expression, kinds))
    expression = numpy_forms.form(call, kinds) if schema.domain == "" else None
    if expression is not None:
        return [] if _folds(call, expression, kinds) else call.line(expression, kinds)
    implementation = None if any(subgraphs(call.node)) else reference.load(proto, call.frame.opsets)
    if implementation is None:
        definition = operators.definition(schema, proto, call.input_types(), call.frame.opset(schema.domain) or 1)
        if "" not in call.frame.opsets:
            definition.opset_imports.setdefault("", onnx.defs.onnx_opset_version())
        given = dataclasses.replace(call, attributes=operators.defaults(schema) | call.attributes)
        return by_function(given, definition)
    run = call.program.source.bind(f"{schema.name}_", reference.ReferenceOp(implementation, kinds))
    random = schema.name in operators.RANDOM
    return call.line(f"{run}({', '.join(call.arguments())})", kinds, random=random)


def _folds(call: Call, expression: str, kinds: Sequence[str | None]) -> bool:
    """Compute a numpy expression of small constants now. One that fails is left to fail when, and if, it runs."""
    constants = [slot.constant for slot in call.inputs if not slot.absent]
    if len(kinds) != 1 or any(c is None or c.size > _SMALL for c in constants):
        return False
    try:
        with np.errstate(all="ignore"):
            result = np.array(eval(expression, call.program.source.globals))
    except Exception:
        return False
    if result.size > _SMALL:
        return False
    result.flags.writeable = False
    call.program.constant(call.frame, call.node.outputs[0], result)
    return True


def _appending(call: Call, lines: list[Line]) -> list[Line]:
    """Mark the line of a SequenceInsert at the end."""
    names = [slot.name for slot in call.inputs]
    if call.node.op_type != "SequenceInsert" or len(names) != 2 or names[0] == names[1] or call.inputs[1].on_device:
        return lines
    return [dataclasses.replace(line, appends_to=names[0]) for line in lines]


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

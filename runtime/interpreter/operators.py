"""What ONNX's schemas say about a node: the version in force, the types it accepts and those it gives."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnx import shape_inference

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import types

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""Ops that may give another value each time, so that they can't leave a loop."""

Input = str | None | bool
"""The type of a node's input: a type string, None if unknown, False if the input is absent."""


def standard_domain(domain: str) -> str:
    """The domain as onnx keeps it: the standard one is the empty string, also spelled ai.onnx."""
    return "" if domain == "ai.onnx" else domain


@functools.cache
def schema_of(domain: str, op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """The schema in force for an op in an opset; None if there is none."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def node_proto(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> onnx.NodeProto:
    """The node with resolved attributes and positional names (x0, x1 -> y0, y1); an absent value stays ''."""
    proto = onnx.NodeProto(domain=standard_domain(node.domain), op_type=node.op_type, name=node.name or "")
    proto.input.extend("" if value is None else f"x{i}" for i, value in enumerate(node.inputs))
    proto.output.extend("" if not value.name else f"y{i}" for i, value in enumerate(node.outputs))
    proto.attribute.extend(ir.serde.serialize_attribute(attr) for attr in attributes.values())
    return proto


def _parameters(
    formal: Sequence[onnx.defs.OpSchema.FormalParameter], count: int
) -> Iterator[onnx.defs.OpSchema.FormalParameter]:
    """The formal parameter of each of `count` actual ones, a variadic last one repeated."""
    for i in range(count):
        yield formal[min(i, len(formal) - 1)]


def check_inputs(schema: onnx.defs.OpSchema, inputs: Sequence[Input]) -> dict[str, str | None]:
    """Check a node's inputs against its schema; the type that each type variable stands for.

    Raises:
        LoopliftError: too few or too many inputs, a required one absent, or a type that this version does not accept.
    """
    version = f"{schema.name}-{schema.since_version}"
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise LoopliftError(f"{version} takes {schema.min_input} to {schema.max_input} inputs, {len(inputs)} are given")
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    bound: dict[str, str | None] = {}
    for i, (parameter, kind) in enumerate(zip(_parameters(schema.inputs, len(inputs)), inputs, strict=True)):
        if kind is False:
            if parameter.option == onnx.defs.OpSchema.FormalParameterOption.Single:
                raise LoopliftError(f"input {i} ('{parameter.name}') of {version} is required and absent")
            continue
        if kind is None or kind is True:
            bound.setdefault(parameter.type_str, None)
            continue
        accepted = allowed.get(parameter.type_str, {parameter.type_str})
        if kind not in accepted:
            raise LoopliftError(f"input {i} ('{parameter.name}') is {kind}, which {version} does not accept")
        known = bound.get(parameter.type_str)
        if parameter.is_homogeneous and known is not None and known != kind:
            raise LoopliftError(f"input {i} ('{parameter.name}') of {version} is {kind}, an earlier one {known}")
        bound[parameter.type_str] = kind
    return bound


def output_types(
    schema: onnx.defs.OpSchema, proto: onnx.NodeProto, inputs: Sequence[Input], opsets: Mapping[str, int]
) -> list[str | None]:
    """The types of a node's outputs, after checking its inputs.

    Raises:
        LoopliftError: the schema does not accept the inputs.
    """
    bound = check_inputs(schema, inputs)
    if len(proto.output) > schema.max_output:
        raise LoopliftError(f"{schema.name} gives at most {schema.max_output} outputs, {len(proto.output)} are named")
    parameters = list(_parameters(schema.outputs, len(proto.output)))
    variables = {c.type_param_str for c in schema.type_constraints}
    found = [p.type_str if p.type_str not in variables else bound.get(p.type_str) for p in parameters]
    if None not in found:
        return [*found]
    inferred = _infer(schema, proto, inputs, opsets)
    return [known or inferred.get(name) for known, name in zip(found, proto.output, strict=True)]


def _infer(
    schema: onnx.defs.OpSchema, proto: onnx.NodeProto, inputs: Sequence[Input], opsets: Mapping[str, int]
) -> dict[str, str | None]:
    """Output types by the schema's own inference, from element types alone; empty where it needs more."""
    known = {n: onnx.TypeProto() for n in proto.input if n}
    for name, kind in zip(proto.input, inputs, strict=True):
        if name and isinstance(kind, str) and "map(" not in kind:
            known[name] = ir.serde.serialize_type(types.ir_type(kind))
        elif name:
            return {}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        found = shape_inference.infer_node_outputs(schema, proto, known, opset_imports=imports)
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise LoopliftError(" ".join(str(error).split())) from error
    return {name: types.proto_type_string(kind) for name, kind in found.items()}


def defaults(schema: onnx.defs.OpSchema) -> dict[str, ir.Attr]:
    """The attributes that a schema gives a default value."""
    protos = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: ir.serde.deserialize_attribute(proto) for name, proto in protos.items() if proto.name}


def definition(schema: Any, proto: onnx.NodeProto, inputs: Sequence[Input], opset: int) -> ir.Function:
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

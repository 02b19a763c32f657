"""What a model's tensors and types say of themselves, checked before anything believes it.

Models come from anywhere. A tensor whose data is not of the size that its dims and dtype ask for, or an unknown dtype,
would end in an error deep inside of whatever reads it first, or in a wrong value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]

from looplift.patterns.graph.operators import STANDARD
from looplift.runtime.errors import LoopliftError

_DTYPES = frozenset(dtype.value for dtype in ir.DataType if dtype != ir.DataType.UNDEFINED)

LARGEST_TENSOR = 1 << 48
"""Bytes that dims may ask for: what no machine holds is a mistake."""

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_WIDE = {"FLOAT": "float_data", "COMPLEX64": "float_data", "DOUBLE": "double_data", "COMPLEX128": "double_data"}
_WIDE |= {"INT64": "int64_data", "UINT32": "uint64_data", "UINT64": "uint64_data", "STRING": "string_data"}
LONGEST_NAME = 1 << 16
"""Characters of a name, which is written and shown in many places."""

MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""Of a tensor, in numpy."""

_LONG = {"doc_string", "value"}
_TEXTS = ("name", "doc_string", "external_data", "metadata_props")
_TEXT_OR_MESSAGE = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE}
_BODIES = {
    "Loop": {"body"},
    "Scan": {"body"},
    "SequenceMap": {"body"},
    "If": {"then_branch", "else_branch"},
}
_HOLDERS = {
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.TYPE_PROTO: "tp",
    onnx.AttributeProto.SPARSE_TENSOR: "sparse_tensor",
}


def require_whole(model: onnx.ModelProto) -> None:
    """Refuses a model with a tensor or a type that can't be what it says.

    Raises:
        LoopliftError: a dtype that ONNX does not have, negative dims, data of another size than dims and dtype ask
            for, an attribute without the value that its type announces, or that refers to one of a function outside
            of any, text that is not UTF-8, a very long name.
    """
    _check_text(model)
    _check_ports((*model.graph.input, *model.graph.output))
    _check_graph(model.graph)
    _check_references(model.graph)
    for function in model.functions:
        _check_infos(function.value_info)
        _check_nodes(function.node)


def _check_text(model: onnx.ModelProto) -> None:
    """Text that is not UTF-8 is read as bytes, and can't be written again."""
    work: list[Message] = [model]
    while work:
        message = work.pop()
        for field, value in _fields(message):
            values = (value,) if isinstance(value, str | bytes | Message) else value
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                work.extend(values)
            elif any(isinstance(text, bytes) for text in values):
                kind = type(message).__name__.removesuffix("Proto").lower()
                found = next(text for text in values if isinstance(text, bytes))
                raise LoopliftError(f"a {kind} has a {field.name} that is not UTF-8: {found!r:.80}; export it again")
            elif field.name not in _LONG and any(len(text) > LONGEST_NAME for text in values):
                kind = type(message).__name__.removesuffix("Proto").lower()
                raise LoopliftError(f"a {kind} has a {field.name} of more than {LONGEST_NAME:,} characters; rename it")


def _fields(message: Message) -> Iterator[tuple[FieldDescriptor, Any]]:
    """Those that hold text or messages. A tensor is not asked for all that it has, which would copy its data."""
    if isinstance(message, onnx.TensorProto):
        yield from ((onnx.TensorProto.DESCRIPTOR.fields_by_name[name], getattr(message, name)) for name in _TEXTS)
    else:
        yield from ((field, value) for field, value in message.ListFields() if field.type in _TEXT_OR_MESSAGE)


def _check_references(graph: onnx.GraphProto) -> None:
    work = [graph]
    while work:
        for node in work.pop().node:
            for attribute in node.attribute:
                if attribute.ref_attr_name:
                    what = f"attribute {attribute.name!r} of {node.op_type} {node.name!r}"
                    raise LoopliftError(f"{what} refers to an attribute of a function, but is in none; export it again")
                work.extend((*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs))


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model, those of bodies and functions included."""
    yield from _in_graph(model.graph)
    for function in model.functions:
        yield from _in_nodes(function.node)


def _in_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _in_nodes(graph.node)


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            yield from _in_graph(graph)


def _check_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        if not tensor.name:
            raise LoopliftError("an initializer has no name; export the model again")
        require_whole_tensor(tensor, f"initializer {tensor.name!r}")
    _check_infos((*graph.input, *graph.output, *graph.value_info))
    _check_nodes(graph.node)


def _check_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        _check_bodies(node)
        for attribute in node.attribute:
            _check_attribute(attribute, f"attribute {attribute.name!r} of {node.op_type} {node.name!r}")


def _check_bodies(node: onnx.NodeProto) -> None:
    """A node that runs graphs has just those that its op asks for; two attributes of one name mean nothing."""
    what = f"{node.op_type} {node.name!r}"
    names = [attribute.name for attribute in node.attribute]
    if len(set(names)) < len(names):
        raise LoopliftError(f"{what} has two attributes of one name; export the model again")
    if node.domain in STANDARD and node.op_type in _BODIES:
        graphs = {attribute.name for attribute in node.attribute if attribute.HasField("g")}
        if graphs != _BODIES[node.op_type] or any(attribute.graphs for attribute in node.attribute):
            wanted = ", ".join(sorted(_BODIES[node.op_type]))
            raise LoopliftError(f"{what} has other graphs than {wanted}; export the model again")


def _check_attribute(attribute: onnx.AttributeProto, what: str) -> None:
    holder = _HOLDERS.get(attribute.type)
    if holder is not None and not attribute.HasField(holder) and not attribute.ref_attr_name:
        raise LoopliftError(f"{what} has no value of its type; export the model again")
    strange = [name for kind, name in _HOLDERS.items() if kind != attribute.type and attribute.HasField(name)]
    if strange and attribute.type:
        raise LoopliftError(f"{what} has a value of another type than it says; export the model again")
    if attribute.type not in onnx.AttributeProto.AttributeType.values():
        raise LoopliftError(f"{what} has type {attribute.type}, which ONNX does not have; export the model again")
    for tensor in (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors):
        require_whole_tensor(tensor, what)
    for kind in (*((attribute.tp,) if attribute.HasField("tp") else ()), *attribute.type_protos):
        _check_type(kind, what)
    for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
        _check_graph(graph)


def _check_infos(infos: Iterable[onnx.ValueInfoProto]) -> None:
    for info in infos:
        if info.HasField("type"):
            _check_type(info.type, f"the type of {info.name!r}")


def _check_ports(infos: Iterable[onnx.ValueInfoProto]) -> None:
    """Types of the model's own inputs and outputs; inside, some exporters write dtype 0 for one they don't know."""
    for info in infos:
        if info.type.WhichOneof("value") == "tensor_type" and not info.type.tensor_type.elem_type:
            raise LoopliftError(f"{info.name!r} has no dtype; export the model again")


def _check_type(kind: onnx.TypeProto, what: str) -> None:
    while (field := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, field).elem_type
    if field in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, field)
        if tensor.elem_type and tensor.elem_type not in _DTYPES:
            raise _unknown_dtype(what, tensor.elem_type)
        if any(dim.HasField("dim_value") and dim.dim_value < 0 for dim in tensor.shape.dim):
            raise LoopliftError(f"{what} has a negative dim; export the model again")


def require_whole_tensor(tensor: onnx.TensorProto, what: str) -> None:
    """Refuses a tensor whose data is not what its dims and dtype ask for.

    Raises:
        LoopliftError: see `require_whole`; `what` says which tensor.
    """
    if tensor.data_type not in _DTYPES:
        raise _unknown_dtype(what, tensor.data_type)
    if any(dim < 0 for dim in tensor.dims):
        raise LoopliftError(f"{what} has a negative dim; export the model again")
    if len(tensor.dims) > MOST_AXES:
        raise LoopliftError(f"{what} has {len(tensor.dims)} axes; at most {MOST_AXES} can be handled: reshape it")
    dtype, elements = ir.DataType(tensor.data_type), math.prod(tensor.dims)
    bytes_wanted = 0 if dtype == ir.DataType.STRING else _packed(elements, dtype)
    if max(elements, bytes_wanted) > LARGEST_TENSOR:
        raise LoopliftError(f"{what} of shape {list(tensor.dims)} asks for more than {LARGEST_TENSOR:,} bytes")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    if tensor.HasField("raw_data"):
        found, wanted, unit = len(tensor.raw_data), bytes_wanted, "bytes"
    else:
        field, wanted = _typed_data(dtype, elements)
        found, unit = len(getattr(tensor, field)), "elements"
        if strange := [name for name in _FIELDS if name != field and len(getattr(tensor, name))]:
            raise LoopliftError(f"{what} of dtype {dtype} has {strange[0]}; export the model again")
    if found != wanted:
        raise LoopliftError(
            f"{what} of shape {list(tensor.dims)} has {found:,} {unit} of data, not {wanted:,}; copy the model again"
        )


def _typed_data(dtype: ir.DataType, elements: int) -> tuple[str, int]:
    """The field of a tensor without raw data, and how many entries it has to have: small elements share them."""
    each = 2 if dtype.name in ("COMPLEX64", "COMPLEX128") else 1
    small = dtype != ir.DataType.STRING and dtype.bitwidth < 8
    return _WIDE.get(dtype.name, "int32_data"), _packed(elements, dtype) if small else elements * each


def _packed(elements: int, dtype: ir.DataType) -> int:
    return -(-elements * dtype.bitwidth // 8)


def _unknown_dtype(what: str, dtype: int) -> LoopliftError:
    return LoopliftError(f"{what} has dtype {dtype}, which ONNX does not have; export the model again")


def external_bytes(tensor: onnx.TensorProto) -> int:
    """The bytes that a tensor with external data has to have.

    Raises:
        LoopliftError: see `require_whole_tensor`; or it holds strings, which external data can't.
    """
    what = f"tensor {tensor.name!r}"
    require_whole_tensor(tensor, what)
    dtype = ir.DataType(tensor.data_type)
    if dtype == ir.DataType.STRING:
        raise LoopliftError(f"{what} holds strings outside of the model, which ONNX does not allow")
    return _packed(math.prod(tensor.dims), dtype)

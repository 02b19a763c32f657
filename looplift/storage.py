"""Models on disk: reading with weights left where they are, writing whole files or none."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
from google.protobuf import json_format, message, text_format  # type: ignore[import-untyped]

from looplift.runtime.errors import LoopliftError

LARGEST_PROTO = 2**31 - 2**24
"""Bytes of weights that fit into one protobuf message (2 GB), with room left for the graph."""

DATA_THRESHOLD = 1024
"""Smaller tensors stay in the model file when weights are written beside it."""


_NOT_ONNX = (message.Error, json_format.Error, text_format.Error, onnx.parser.ParseError, ValueError)


def read_proto(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Reads an ONNX file; tensors with external data stay references relative to the file's folder.

    Raises:
        LoopliftError: the file can't be read, is not ONNX, is cut short, or external data is missing or too short.
    """
    file = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the text format is experimental
            model = onnx.load(file, load_external_data=False)
    except OSError as error:
        raise LoopliftError(f"can't read {file}: {error.strerror or error}") from error
    except _NOT_ONNX as error:
        raise LoopliftError(f"{file} is not an ONNX model, or is cut short; export or copy it again") from error
    if not model.HasField("graph") or not model.opset_import:
        raise LoopliftError(f"{file} is not a whole ONNX model (no graph or no opset); export or copy it again")
    require_data(model, file.parent)
    return model


def require_data(model: onnx.ModelProto, folder: Path) -> None:
    """Refuses a model whose external data is not there.

    Raises:
        LoopliftError: a file is missing, or ends before the tensor does.
    """
    for tensor in external_tensors(model):
        _require_data(tensor, folder)


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model whose data lies in another file."""
    yield from _external_in_graph(model.graph)
    for function in model.functions:
        yield from _external_in_nodes(function.node)


def _external_in_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from filter(_is_external, graph.initializer)
    yield from _external_in_nodes(graph.node)


def _external_in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from filter(_is_external, (attribute.t, *attribute.tensors))
        for graph in (attribute.g, *attribute.graphs):
            yield from _external_in_graph(graph)


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _require_data(tensor: onnx.TensorProto, folder: Path) -> None:
    info = {entry.key: entry.value for entry in tensor.external_data}
    data = folder / info.get("location", "")
    try:
        size = data.stat().st_size
    except OSError as error:
        raise LoopliftError(
            f"the data of tensor {tensor.name!r} is missing: {data}: {error.strerror}; copy it beside the model"
        ) from error
    if size < int(info.get("offset", 0)) + int(info.get("length", 0)):
        raise LoopliftError(f"{data} is cut short: tensor {tensor.name!r} reaches past its end; copy it again")


def bytes_on_disk(path: str | os.PathLike[str]) -> int:
    """Bytes of an ONNX file and of the files that hold its external data."""
    file = Path(path)
    locations = {
        entry.value
        for tensor in external_tensors(read_proto(file))
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return sum(each.stat().st_size for each in (file, *(file.parent / location for location in locations)))


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all tensors of the model, wherever they lie."""
    return sum(tensor.nbytes for tensor in _tensors(model))


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
    for node in _nodes(model):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                yield attribute.as_tensor()


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def has_external_data(model: ir.Model) -> bool:
    """Whether any tensor's data lies in a file of its own."""
    return any(isinstance(tensor, ir.ExternalTensor) for tensor in _tensors(model))


def load_initializers(model: ir.Model) -> None:
    """Brings external initializers into memory, in place.

    Raises:
        LoopliftError: the data can't be read.
    """
    try:
        ir.external_data.load_to_model(model)
    except (OSError, ValueError) as error:
        raise LoopliftError(f"can't read external data: {error}") from error


def load_attributes(model: ir.Model) -> None:
    """Brings external tensors that are node attributes into memory, in place: they move with the model file."""
    for node in _nodes(model):
        for attribute in list(node.attributes.values()):
            if attribute.type != ir.AttributeType.TENSOR or attribute.is_ref():
                continue
            tensor = attribute.as_tensor()
            if isinstance(tensor, ir.ExternalTensor):
                copy = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
                node.attributes[attribute.name] = ir.AttrTensor(attribute.name, copy)


def write_with_data(
    model: ir.Model, path: str | os.PathLike[str], to_proto: Callable[[ir.Model], onnx.ModelProto] = ir.to_proto
) -> Path:
    """Writes the model with its weights in ``NAME.data`` beside it; returns that file's path.

    Both files are complete before either gets its name, so weights that the model is read from may be replaced.
    Initializers of `model` are the same afterwards.

    Raises:
        OSError: the folder does not exist, or can't be written.
    """
    file = Path(path)
    data = file.with_name(file.name + ".data")
    held = [(value, value.const_value) for graph in model.graphs() for value in graph.initializers.values()]
    with _temporary(data) as temporary:
        try:
            load_attributes(model)
            ir.external_data.unload_from_model(model, file.parent, temporary.name, size_threshold_bytes=DATA_THRESHOLD)
            proto = to_proto(model)
        finally:
            for value, tensor in held:
                value.const_value = tensor
        for tensor in external_tensors(proto):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = data.name
        with _temporary(file) as other:
            other.write_bytes(proto.SerializeToString())
            os.replace(temporary, data)
            os.replace(other, file)
    return data


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Writes a file atomically: the whole content, or what was there before.

    Raises:
        OSError: the folder does not exist, or can't be written.
    """
    file = Path(path)
    with _temporary(file) as temporary:
        temporary.write_bytes(content)
        os.replace(temporary, file)


@contextlib.contextmanager
def _temporary(file: Path) -> Iterator[Path]:
    """A new file in the same folder, with the mode of a file made by ``open``; gone afterwards unless renamed."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    os.close(handle)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)

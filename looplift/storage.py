"""Models on disk: reading with weights left where they are, writing whole files or none."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
from google.protobuf import json_format, message, text_format  # type: ignore[import-untyped]

from looplift import bounds, doors
from looplift.runtime.errors import LoopliftError
from looplift.runtime.files import regular_size

LARGEST_PROTO = 2**31 - 2**24
"""Bytes of weights that fit into one protobuf message (2 GB), with room left for the graph."""

LARGEST_FILE = 2**31 - 1
"""Bytes of one protobuf message."""

DATA_THRESHOLD = 1024
"""Smaller tensors stay in the model file when weights are written beside it."""

DEEPEST_TEXT = 1000
"""Brackets within brackets in a model that is written as text."""

_TEXT = (".onnxtxt", ".onnxtext")
_NOT_ONNX = (message.Error, json_format.Error, text_format.Error, onnx.parser.ParseError, ValueError)


def read_proto(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Reads an ONNX file; tensors with external data stay references relative to the file's folder.

    Raises:
        LoopliftError: the file can't be read, is not regular, is not ONNX or cut short, nests too deep or grows too
            long (see `bounds.require_bounded`), or its external data is not what the model says (see `require_data`).
    """
    file = Path(path)
    try:
        if regular_size(file) > LARGEST_FILE:
            raise LoopliftError(f"{file} is larger than 2 GB, as no ONNX file can be")
        if file.suffix in _TEXT:
            _require_shallow(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the text format is experimental
            model = onnx.load(file, load_external_data=False)
    except OSError as error:
        raise LoopliftError(f"can't read {file}: {error.strerror or error}") from error
    except (*_NOT_ONNX, RecursionError) as error:
        raise LoopliftError(
            f"{file} is not an ONNX model, is cut short, or nests graphs more than {bounds.DEEPEST_GRAPHS} deep; "
            "export or copy it again"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise LoopliftError(f"{file} is not a whole ONNX model (no graph or no opset); export or copy it again")
    bounds.require_bounded(model)
    require_data(model, file.parent)
    return model


def _require_shallow(file: Path) -> None:
    """Refuses text in which graphs or types are nested so deep that onnx's parser, which recurses, would crash."""
    depth = deepest = 0
    for bracket in re.findall(rb"[{}()]", file.read_bytes()):
        depth += 1 if bracket in b"{(" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST_TEXT:
        raise LoopliftError(f"{file} nests brackets {deepest:,} deep; at most {DEEPEST_TEXT} is read")


def require_data(model: onnx.ModelProto, folder: Path) -> None:
    """Refuses a model whose external data can't be read as the model says.

    Raises:
        LoopliftError: a file is missing, outside of the folder, not regular or ends before the tensor does; an offset
            or a length is no number, or not that of the tensor.
    """
    for tensor in external_tensors(model):
        _require_data(tensor, folder)


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model whose data lies in another file."""
    return filter(_is_external, doors.tensors_of(model))


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _require_data(tensor: onnx.TensorProto, folder: Path) -> None:
    what = f"the data of tensor {tensor.name!r}"
    info = {entry.key: entry.value for entry in tensor.external_data}
    location = info.get("location", "")
    data = folder / location
    if not location or "\0" in location:
        raise LoopliftError(f"{what} has no location that can be a file: {location!r}; export the model again")
    try:
        size = regular_size(data)
    except OSError as error:
        raise LoopliftError(f"{what} is missing: {data}: {error.strerror}; copy it beside the model") from error
    if not data.resolve().is_relative_to(folder.resolve()):
        raise LoopliftError(f"{what} lies outside of the model's folder: {data}; copy it beside the model")
    needed = doors.external_bytes(tensor)
    offset, length = (_number(info.get(key, ""), f"{key} of {what}") for key in ("offset", "length"))
    if info.get("length") and length != needed:
        raise LoopliftError(f"{what} has {length:,} bytes, its shape and dtype {needed:,}; export the model again")
    if size < offset + needed:
        raise LoopliftError(f"{data} is cut short: tensor {tensor.name!r} reaches past its end; copy it again")


def _number(text: str, what: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise LoopliftError(f"the {what} is {text!r:.80}, not a number; export the model again")
    return int(text or 0)


def bytes_on_disk(path: str | os.PathLike[str]) -> int:
    """Bytes of an ONNX file and of the files that hold its external data."""
    file = Path(path)
    return sum(each.stat().st_size for each in (file, *data_files(read_proto(file), file.parent)))


def data_files(model: onnx.ModelProto, folder: Path) -> list[Path]:
    """The files that hold the model's external data, each once."""
    entries = (entry for tensor in external_tensors(model) for entry in tensor.external_data)
    return [folder / name for name in dict.fromkeys(entry.value for entry in entries if entry.key == "location")]


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
        LoopliftError: it is a link to another folder, from where the weights would not be found.
        OSError: the folder does not exist, or can't be written.
    """
    file = Path(os.path.realpath(path))
    if file.parent != Path(path).parent.resolve():
        raise LoopliftError(
            f"can't write {path}: it is a link to another folder, and weights go beside it; write there"
        )
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
    """Writes a file atomically: the whole content, or what was there before. A link is written through.

    Raises:
        OSError: the folder does not exist, or can't be written.
    """
    file = Path(os.path.realpath(path))
    with _temporary(file) as temporary:
        temporary.write_bytes(content)
        os.replace(temporary, file)


@contextlib.contextmanager
def _temporary(file: Path) -> Iterator[Path]:
    """A new file in the same folder, with the mode of the one there, or of one made by ``open``; gone afterwards."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name[:100]}.", dir=file.parent)
    os.close(handle)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o666 & ~mask)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)

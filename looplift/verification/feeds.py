"""Inputs and outputs in ``.npz`` files: one array per tensor, ``name[k]`` per element of a sequence."""

from __future__ import annotations

import io
import math
import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift import storage
from looplift.runtime.errors import LoopliftError
from looplift.runtime.files import regular_size
from looplift.verification.cases.made_up import Feeds
from looplift.verification.compare import Array

_ELEMENT = re.compile(r"^(.*)\[(\d*)\]$")


def save(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Writes named values. Absent optionals are left out; an empty sequence is kept as ``name[]``.

    dtypes that numpy does not know (bfloat16, float8, int4) are stored as raw bytes; `load` gives them back their
    dtype from the model's input.

    Raises:
        OSError: the file can't be written.
    """
    arrays: dict[str, Array] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            arrays.update({f"{name}[{k}]": _storable(item) for k, item in enumerate(value)})
            if not value:
                arrays[f"{name}[]"] = np.zeros(0, np.uint8)
        elif value is not None:
            arrays[name] = _storable(value)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    storage.write_bytes(content.getvalue(), path)


def _storable(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype == object:
        return array.astype(str)
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def load(path: str | os.PathLike[str], inputs: Sequence[ir.Value]) -> Feeds:
    """Reads the inputs of a model.

    Args:
        path: an ``.npz`` file.
        inputs: the model's inputs, which say what raw bytes and strings stand for.

    Raises:
        LoopliftError: the file can't be read or is not an ``.npz`` file.
    """
    kinds = {value.name: value.dtype for value in inputs}
    absent = [value.name or "" for value in inputs if isinstance(value.type, ir.OptionalType)]
    feeds: Feeds = dict.fromkeys(absent)
    for key, array in _read(path).items():
        match = None if key in kinds else _ELEMENT.match(key)
        if match is None:
            feeds[key] = _typed(array, kinds.get(key))
            continue
        sequence = feeds.get(match[1])
        if sequence is None:
            sequence = feeds[match[1]] = []
        if match[2]:
            sequence.append(_typed(array, kinds.get(match[1])))
    return feeds


def _read(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an archive, whose headers are read first: nothing is unpacked that is not as large as they say."""
    name = os.fspath(path)
    try:
        regular_size(path)
        if _starts_as_one_array(path):
            raise LoopliftError(f"{name} holds one array, not named ones; write it with numpy.savez")
        with zipfile.ZipFile(path) as archive:
            arrays = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            sizes = [_array_bytes(archive, entry) for entry in arrays.values()]
            if sum(sizes) > largest_inputs():
                raise LoopliftError(
                    f"{name} unpacks to {sum(sizes):,} bytes; more than {largest_inputs():,} are refused"
                )
            return {key: _array(archive, entry) for key, entry in arrays.items()}
    except OSError as error:
        raise LoopliftError(f"can't read {name}: {error.strerror or error}") from error
    except _BROKEN as error:
        raise LoopliftError(f"{name} is not an .npz file, or broken; write one with numpy.savez") from error


_BROKEN = (
    *(ValueError, TypeError, EOFError, SyntaxError, KeyError, OverflowError, RecursionError),
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError),
    *(NotImplementedError, RuntimeError),  # a packing that is not known, a password
)
"""What numpy and zipfile raise where a file is not what it should be."""


def _starts_as_one_array(path: str | os.PathLike[str]) -> bool:
    with open(path, "rb") as file:
        return file.read(6) == b"\x93NUMPY"


def largest_inputs() -> int:
    """Bytes that one file of inputs may hold, unpacked: half of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _array_bytes(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """The size of an array by its header.

    Raises:
        ValueError: it is not the size of the entry, or elements are Python objects or structures.
    """
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or dtype.fields or dtype.subdtype or min(shape, default=0) < 0:
            raise ValueError(f"an array of {dtype}")
        if entry.file_size != file.tell() + size:
            raise ValueError(f"{entry.file_size} bytes, {size} in the header")
        return size


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    with archive.open(entry) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _typed(array: Array, dtype: ir.DataType | None) -> Array:
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype.kind == "V" and dtype is not None and array.dtype.itemsize == np.dtype(dtype.numpy()).itemsize:
        return array.view(np.dtype(dtype.numpy()))
    return array

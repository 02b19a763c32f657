"""Inputs and outputs in ``.npz`` files: one array per tensor, ``name[k]`` per element of a sequence."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift import storage
from looplift.checking.compare import Array
from looplift.checking.inputs import Feeds
from looplift.runtime.errors import LoopliftError

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
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.lib.npyio.NpzFile):
            with archive:
                return {key: archive[key] for key in archive.files}
    except OSError as error:
        raise LoopliftError(f"can't read {os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LoopliftError(f"{os.fspath(path)} is not an .npz file; write one with numpy.savez") from error
    raise LoopliftError(f"{os.fspath(path)} holds one array, not named ones; write it with numpy.savez")


def _typed(array: Array, dtype: ir.DataType | None) -> Array:
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype.kind == "V" and dtype is not None:
        return array.view(np.dtype(dtype.numpy()))
    return array

"""Run-time values: arrays (or numpy scalars between ops), lists for sequences, None for an empty optional."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError

Array = np.ndarray[Any, Any]
Value = Any
"""An array, a numpy scalar, a list of values, None, or a tensor on a device."""


def as_value(value: Value) -> Value:
    """A value as onnx's implementations and the user expect it: numpy scalars become arrays of rank 0."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def truth(condition: Array) -> bool:
    """The truth of a condition, which must have one element.

    Raises:
        LoopliftError: it has none or several.
    """
    if condition.size != 1:
        raise LoopliftError(f"the condition has shape {list(condition.shape)}; it must have one element")
    return bool(condition.reshape(()))


def tensor_array(tensor: ir.TensorProtocol) -> Array:
    """A tensor's elements, read-only; an external tensor stays memory-mapped, strings become Python's.

    Raises:
        LoopliftError: the tensor holds more or fewer elements than its shape says.
    """
    try:
        return _elements(tensor)
    except ValueError as error:
        raise LoopliftError(
            f"the data of tensor '{tensor.name}' does not fit its shape {list(tensor.shape)}"
        ) from error


def _elements(tensor: ir.TensorProtocol) -> Array:
    if tensor.dtype == ir.DataType.STRING:
        raw = np.asarray(tensor.numpy(), dtype=object)
        decoded = [text.decode() if isinstance(text, bytes) else text for text in raw.ravel()]
        array = np.empty(raw.shape, dtype=object)
        array.ravel()[:] = decoded
    else:
        array = np.asarray(tensor.numpy()).view()
    array.flags.writeable = False
    return array


def host(value: Value) -> Value:
    """A value in host memory: a device tensor is read back, anything else is passed on."""
    return value if isinstance(value, np.ndarray | np.generic | list) or value is None else value.numpy()


def describe(value: Value) -> str:
    """A value's type and shape for an error message."""
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if value is None:
        return "nothing"
    return f"{value.dtype}{list(value.shape)}"

"""Recurrences over a series on the device: what the host settles before PrefixSum's and LinearRecurrence's kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.ops.element_types import NUMBERS
from looplift.runtime.webgpu.device import Array, Device, DeviceTensor
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.packages.package import package_of
from looplift.runtime.webgpu.tensors import expand, host, is_small

_FEWEST_COLUMNS = 32
"""With fewer columns, walking through time one dispatch after the other loses to the host."""

_SHORTEST_BLOCKED = 512
"""Integers of so many steps are summed up in blocks of time, side by side, however few the columns."""

_ON_A_CPU = {"widest_blocked": 32}
"""Few threads are busy with fewer columns: blocks of time would only read everything twice."""

_OFFSET_ALIGNMENT = 256
"""The bytes to which WebGPU aligns the offset of a binding: a chunk of time is whole multiples of it."""


def run_over_time(
    device: Device,
    package: str,
    initial: Array | DeviceTensor | None,
    series: Mapping[str, tuple[Array | DeviceTensor | None, bool]],
    attributes: Mapping[str, Any],
    wanted: Sequence[bool],
    least_bytes: int = 0,
) -> tuple[DeviceTensor | None, ...] | None:
    """Runs a recurrence as its numpy kernel does, with the results on the device.

    Args:
        device: where to run.
        package: the op's importable package.
        initial: the state before the first step.
        series: name -> value and whether it has no time axis.
        attributes: the op's.
        wanted: whether v_final and scan_output are used.
        least_bytes: what writes fewer is left to the host, unless an input lies on the device.

    Returns:
        v_final, scan_output (None if unused); or None where the numpy kernel is the one to take: few columns (but for
        long series of integers), no steps, little to write, input that is not valid, rows that do not start on a 32-bit
        word (odd columns of a small type) or that are too long for one binding.
    """
    values = [initial, *(value for value, _ in series.values())]
    given = [value for value in values if value is not None]
    if initial is None or len(given) < len(values) or {value.dtype for value in given} - {initial.dtype}:
        return None
    if initial.dtype not in NUMBERS:
        return None
    shape, columns = initial.shape, math.prod(initial.shape)
    lengths = {value.shape[:1] for value, invariant in series.values() if value is not None and not invariant}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        return None
    (length,) = lengths
    row = columns * initial.dtype.itemsize
    aligned_rows = _OFFSET_ALIGNMENT // math.gcd(row, _OFFSET_ALIGNMENT)
    narrow = columns < _FEWEST_COLUMNS and (initial.dtype.kind not in "iu" or length[0] < _SHORTEST_BLOCKED)
    if narrow or row % 4 or row * aligned_rows > device.limits["maxStorageBufferBindingSize"]:
        return None
    want_final, want_rows = (*wanted, False)[:2]
    if is_small(row * (length[0] if want_rows else 1), values, least_bytes):
        return None
    inputs = {"v_initial": expand(device, initial, shape).reshape((columns,))}
    for name, (value, invariant) in series.items():
        tensor = None if value is None else _by_time(device, value, () if invariant else length, shape)
        if tensor is None:
            return None
        inputs[name] = tensor
    names = [name for name, want in (("v_final", want_final), ("scan_output", want_rows)) if want]
    result = run_package(
        package_of(package),
        device,
        inputs,
        dict.fromkeys(names),
        {name: int(value) for name, value in attributes.items()},
        _ON_A_CPU if device.software else {},
    )
    return (
        result["v_final"].reshape(shape) if want_final else None,
        result["scan_output"].reshape((*length, *shape)) if want_rows else None,
    )


def _by_time(
    device: Device, value: Array | DeviceTensor, time: tuple[int, ...], state: tuple[int, ...]
) -> DeviceTensor | None:
    """A series as [time, columns] ([columns] if invariant); None where an element does not broadcast to the state."""
    flat = (*time, math.prod(state))
    if value.shape == (*time, *state):
        return expand(device, value, value.shape).reshape(flat)
    element = value.shape[len(time) :]
    aligned = host(value).reshape((*time, *(1,) * (len(state) - len(element)), *element))
    try:
        return DeviceTensor.upload(device, np.broadcast_to(aligned, (*time, *state))).reshape(flat)
    except ValueError:
        return None

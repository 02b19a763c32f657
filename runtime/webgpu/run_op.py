"""Runs one of our ops on the process's device."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from looplift.runtime.ops import Op
from looplift.runtime.webgpu.device import Array, Device, DeviceTensor
from looplift.runtime.webgpu.errors import DeviceError, DeviceLostError
from looplift.runtime.webgpu.opened import forget_device, open_device

Value = Array | DeviceTensor | None


def run_op(
    op: Op,
    inputs: Sequence[Value],
    attributes: Mapping[str, Any],
    wanted: Sequence[bool],
    *,
    device: Device | None = None,
    auto: bool = False,
) -> tuple[Value, ...] | None:
    """Run an op's WebGPU kernel; its values stay on the device.

    Args:
        op: which.
        inputs: as the numpy kernel takes them; numpy arrays are uploaded, device tensors used where they are.
        attributes: as the numpy kernel takes them.
        wanted: which outputs are used.
        device: where; by default the process's device.
        auto: the host may do it as well. Then what is too small for a device is left to it (`Device.least_bytes`; not
            if an input lies on the device), and where the device can't (memory, device lost) the result is None, with
            a warning, instead of an error. After a loss the next call opens a new device.

    Returns:
        The outputs (None for one not wanted), or None where this case is for the numpy kernel.

    Raises:
        DeviceError: the device can't, unless ``auto``.
    """
    if op.package is None or importlib.util.find_spec(f"{op.package}.webgpu_kernel") is None:
        return None
    kernel = importlib.import_module(f"{op.package}.webgpu_kernel")
    device = device or open_device("webgpu")
    least_bytes = device.least_bytes if auto else 0
    try:
        outputs: tuple[Value, ...] | None = kernel.run(device, inputs, attributes, wanted, least_bytes)
    except DeviceError as error:
        if isinstance(error, DeviceLostError):
            forget_device(device)
        if not auto:
            raise
        warnings.warn(f"{op.name} runs on numpy instead: {error}", RuntimeWarning, stacklevel=2)
        return None
    return outputs

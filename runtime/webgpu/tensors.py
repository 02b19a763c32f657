"""Moving values between the host and the device, as kernels need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from looplift.runtime.webgpu.device import Array, Device, DeviceTensor


def host(value: Array | DeviceTensor) -> Array:
    """The value as a numpy array."""
    return value.numpy() if isinstance(value, DeviceTensor) else value


def is_small(written: int, inputs: Sequence[Array | DeviceTensor | None], least_bytes: int) -> bool:
    """Whether the host should do it: fewer bytes are written than are worth a way there, and nothing lies there yet."""
    return written < least_bytes and not any(isinstance(value, DeviceTensor) for value in inputs)


def expand(device: Device, value: Array | DeviceTensor, shape: Sequence[int]) -> DeviceTensor:
    """The value broadcast to a shape, on the device; a tensor that is already there and fits is not copied."""
    if isinstance(value, DeviceTensor) and value.device is device and value.shape == tuple(shape):
        return value
    return DeviceTensor.upload(device, np.broadcast_to(host(value), tuple(shape)))

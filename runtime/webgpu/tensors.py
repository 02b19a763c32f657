"""Moving values between the host and the device, as kernels need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .device import Array, Device, DeviceTensor


def host(value: Array | DeviceTensor) -> Array:
    """The value as a numpy array."""
    return value.numpy() if isinstance(value, DeviceTensor) else value


def expand(device: Device, value: Array | DeviceTensor, shape: Sequence[int]) -> DeviceTensor:
    """The value broadcast to a shape, on the device; a tensor that is already there and fits is not copied."""
    if isinstance(value, DeviceTensor) and value.device is device and value.shape == tuple(shape):
        return value
    return DeviceTensor.upload(device, np.broadcast_to(host(value), tuple(shape)))

"""WebGPU: devices, tensors on them, and kernel packages.

Importing this needs neither the package ``wgpu`` nor a driver; opening a device does.
"""

from .adapters import is_software
from .check import PackageCheck, check_package, update_digests
from .describe import AdapterRow, describe_devices
from .device import Device, DeviceTensor
from .errors import DeviceError, DeviceLostError, DeviceMemoryError, DeviceUnavailableError
from .opened import open_device
from .run_op import run_op

__all__ = [
    "AdapterRow",
    "Device",
    "DeviceError",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceTensor",
    "DeviceUnavailableError",
    "PackageCheck",
    "check_package",
    "describe_devices",
    "is_software",
    "open_device",
    "run_op",
    "update_digests",
]

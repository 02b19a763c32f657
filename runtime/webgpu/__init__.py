"""WebGPU: devices, tensors on them, and kernel packages.

Importing this needs neither the package ``wgpu`` nor a driver; opening a device does.
"""

from looplift.runtime.webgpu.adapters import is_software
from looplift.runtime.webgpu.describe import AdapterRow, describe_devices
from looplift.runtime.webgpu.device import Device, DeviceTensor
from looplift.runtime.webgpu.errors import DeviceError, DeviceLostError, DeviceMemoryError, DeviceUnavailableError
from looplift.runtime.webgpu.opened import open_device
from looplift.runtime.webgpu.packages.check import PackageCheck, check_package, update_digests
from looplift.runtime.webgpu.run_op import run_op

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

"""What can go wrong with a device, apart from the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from looplift.runtime.errors import LoopliftError


class DeviceError(LoopliftError):
    """The device can't do this work; the numpy kernels can."""


class DeviceUnavailableError(DeviceError):
    """No adapter meets the requirement."""


class DeviceMemoryError(DeviceError):
    """A buffer is larger than the device allows, or its memory is used up."""


class DeviceLostError(DeviceError):
    """The device went away (driver reset, watchdog, unplugged)."""


def _cause(message: str) -> str:
    """The line of a wgpu message that says what happened, without its headings."""
    lines = [line.strip() for line in message.splitlines()]
    telling = [line for line in lines if line and not line.startswith(("In wgpu", "Caused by")) and "Error" not in line]
    return telling[0] if telling else " ".join(lines)


@contextmanager
def wgpu_errors_named(doing: str) -> Iterator[None]:
    """Turn the errors that wgpu raises inside the block into ours, with what was being done.

    Raises:
        DeviceMemoryError, DeviceLostError, DeviceError: instead of any ``wgpu.GPUError``.
    """
    import wgpu

    try:
        yield
    except wgpu.GPUError as error:
        cause = _cause(str(error)) or type(error).__name__
        if isinstance(error, MemoryError):
            raise DeviceMemoryError(f"the WebGPU device ran out of memory while {doing}: {cause}") from error
        if "lost" in str(error).lower():
            raise DeviceLostError(f"the WebGPU device was lost while {doing}: {cause}") from error
        raise DeviceError(f"the WebGPU device failed while {doing}: {cause}") from error

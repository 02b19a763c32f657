"""The one WebGPU device of the process: opened and measured once."""

from __future__ import annotations

import threading
from typing import Any

from looplift.runtime.webgpu.adapters import Requirement, choose_adapter
from looplift.runtime.webgpu.device import Device
from looplift.runtime.webgpu.selftest import examine

_opened: dict[Requirement, Device] = {}
_opening = threading.RLock()


def new_device(adapter: Any) -> Device:
    """A device of an adapter, measured; most callers want the process's own, `open_device`."""
    return Device(adapter, examine)


def open_device(requirement: Requirement = "auto") -> Device:
    """The process's WebGPU device, made at the first call.

    Args:
        requirement: "auto" takes only real hardware; "webgpu" takes any adapter, software too.

    Raises:
        DeviceUnavailableError: there is none; the message says why and what to do.
    """
    with _opening:
        if requirement not in _opened:
            adapter = choose_adapter(requirement)
            _opened[requirement] = open_device("webgpu") if requirement == "auto" else new_device(adapter)
        return _opened[requirement]


def forget_device(device: Device) -> None:
    """Let the next ``open_device`` make a new device in the place of this one, which is lost."""
    with _opening:
        for requirement in [key for key, opened in _opened.items() if opened is device]:
            del _opened[requirement]

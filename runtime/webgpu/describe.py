"""The machine's WebGPU adapters, as a person wants to read of them."""

from __future__ import annotations

import dataclasses

from looplift.runtime.webgpu.adapters import is_software, sorted_adapters
from looplift.runtime.webgpu.device import Device
from looplift.runtime.webgpu.errors import DeviceError
from looplift.runtime.webgpu.opened import open_device


@dataclasses.dataclass(frozen=True)
class AdapterRow:
    """One adapter of the machine.

    Attributes:
        name: what its driver calls it.
        driver: the driver and its version.
        backend: Vulkan, Metal, D3D12 or OpenGL.
        kind: DiscreteGPU, IntegratedGPU or software.
        used_by: which ``device=`` choices of a session take it; empty for none.
        notes: what the self-test found on the adapter in use.
    """

    name: str
    driver: str
    backend: str
    kind: str
    used_by: str
    notes: str


def describe_devices() -> tuple[AdapterRow, ...]:
    """One row an adapter, best first, for the command ``looplift devices``; empty where there is none."""
    rows = []
    for place, adapter in enumerate(sorted_adapters()):
        software, info = is_software(adapter), adapter.info
        kind = "software" if software else str(info["adapter_type"])
        used_by = "" if place else ("webgpu" if software else "auto, webgpu")
        notes = "" if place else _self_test_notes()
        rows.append(AdapterRow(info["device"], info["description"], info["backend_type"], kind, used_by, notes))
    return tuple(rows)


def _self_test_notes() -> str:
    try:
        return behaviour_in_words(open_device("webgpu"))
    except DeviceError as error:
        return str(error)


def behaviour_in_words(device: Device) -> str:
    """What the self-test found, in a line."""
    found = device.behaviour
    notes = [
        "rounds to nearest even" if found.adds_to_nearest_even else "does not round additions to nearest even",
        "keeps subnormals" if found.keeps_subnormals else "flushes subnormals",
        "fuses multiply-add" if found.fuses_multiply_add else "does not fuse multiply-add",
    ]
    if found.loop_limit is not None:
        notes.append(f"ends shader loops after {found.loop_limit:,} rounds")
    notes.append(f"answers in {device.round_trip * 1e3:.1f} ms")
    return ", ".join(notes)

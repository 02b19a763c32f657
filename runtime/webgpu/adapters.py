"""Which WebGPU adapters this machine has, and which one to use."""

from __future__ import annotations

import importlib.util
from typing import Any, Literal

from looplift.runtime.webgpu.errors import DeviceUnavailableError

Requirement = Literal["auto", "webgpu"]

_SOFTWARE_NAMES = ("llvmpipe", "lavapipe", "softpipe", "swiftshader", "microsoft basic render", "warp")


def list_adapters() -> list[Any]:
    """Every ``wgpu.GPUAdapter`` of this machine; none where wgpu is not installed or finds no driver."""
    if importlib.util.find_spec("wgpu") is None:
        return []
    import wgpu

    return list(wgpu.gpu.enumerate_adapters_sync())


def is_software(adapter: Any) -> bool:
    """Whether the adapter computes on the CPU (llvmpipe, SwiftShader, WARP)."""
    described = f"{adapter.info['device']} {adapter.info['vendor']} {adapter.info['description']}".lower()
    return adapter.info["adapter_type"] == "CPU" or any(name in described for name in _SOFTWARE_NAMES)


def _preference(adapter: Any) -> tuple[bool, bool, bool]:
    """Order of adapters: hardware first, then discrete, then any backend other than OpenGL."""
    info = adapter.info
    return is_software(adapter), info["adapter_type"] != "DiscreteGPU", info["backend_type"] == "OpenGL"


def sorted_adapters() -> list[Any]:
    """Every adapter, best first."""
    return sorted(list_adapters(), key=_preference)


def choose_adapter(requirement: Requirement) -> Any:
    """The best adapter that meets the requirement: "auto" takes only hardware, "webgpu" takes any.

    Raises:
        DeviceUnavailableError: none does; the message says what is there and what to install.
    """
    if importlib.util.find_spec("wgpu") is None:
        raise DeviceUnavailableError("WebGPU needs the package wgpu: pip install 'looplift[webgpu]'")
    adapters = sorted_adapters()
    if not adapters:
        raise DeviceUnavailableError(
            "no WebGPU adapter on this machine: install a Vulkan, Metal or DirectX 12 driver "
            "(Mesa's software driver is the Debian package mesa-vulkan-drivers), or use device='numpy'"
        )
    best = adapters[0]
    if requirement == "auto" and is_software(best):
        raise DeviceUnavailableError(
            f"the only WebGPU adapter computes on the CPU ({best.info['device']}), where numpy is faster; "
            "device='webgpu' takes it all the same"
        )
    return best

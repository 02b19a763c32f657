"""PrefixSum on a WebGPU device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from looplift.runtime.webgpu.device import Array, Device, DeviceTensor
from looplift.runtime.webgpu.over_time import run_over_time


def run(
    device: Device,
    inputs: Sequence[Array | DeviceTensor | None],
    attributes: Mapping[str, Any],
    wanted: Sequence[bool],
    least_bytes: int = 0,
) -> tuple[DeviceTensor | None, ...] | None:
    """Runs ``v = v + x[t]``; inputs v_initial and x, attributes and results as ``run_over_time`` says."""
    initial, x = inputs
    return run_over_time(device, __package__, initial, {"x": (x, False)}, attributes, wanted, least_bytes)

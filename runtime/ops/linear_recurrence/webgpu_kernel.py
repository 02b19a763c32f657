"""LinearRecurrence on a WebGPU device."""

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
    """Runs ``v = a[t] * v + b[t]``; inputs v_initial, a and b, attributes and results as ``run_over_time`` says."""
    initial, a, b = inputs
    series = {
        "a": (a, bool(attributes.get("a_invariant", 0))),
        "b": (b, bool(attributes.get("b_invariant", 0))),
    }
    return run_over_time(device, __package__, initial, series, attributes, wanted, least_bytes)

"""AddStep on a WebGPU device: the shapes are settled here, the arithmetic is the package's."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.ops.element_types import NUMBERS
from looplift.runtime.webgpu.device import Array, Device, DeviceTensor
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.packages.package import package_of
from looplift.runtime.webgpu.tensors import expand, host, is_small

_LARGEST_COUNT = 2**32 - 1
_ON_A_CPU = {
    "abreast": 16,
    "fewest_invocations": 1024,
    "marks_workgroup": 8,
    "rows_a_narrow_block": 512,
    "widest_kept_hardware": 16,
}
"""What suits a device with few threads and large caches, by measurement; the package's own values suit a GPU."""


def run(
    device: Device,
    inputs: Sequence[Array | DeviceTensor | None],
    attributes: Mapping[str, Any],
    wanted: Sequence[bool],
    least_bytes: int = 0,
) -> tuple[DeviceTensor | None, ...] | None:
    """Runs ``v = v + step`` as the numpy kernel does, with the results on the device.

    Args:
        device: where to run.
        inputs: M, cond (or None), v_initial, step, as the numpy kernel takes them.
        attributes: ``emit_previous``, default 0.
        wanted: whether v_final and scan_output are used.
        least_bytes: what writes fewer is left to the host, unless an input lies on the device.

    Returns:
        v_final, scan_output (None if unused); or None where the host has less to do than the device: no iterations,
        a state that grows in the first one, more than 2^32 - 1 iterations, little to write, input that is not
        valid.
    """
    limit, condition, initial, step = inputs
    if limit is None or initial is None or step is None or initial.dtype != step.dtype or initial.dtype not in NUMBERS:
        return None
    if not _is_one(limit, np.int64) or not (condition is None or _is_one(condition, np.bool_)):
        return None
    count = int(host(limit).item()) if condition is None or bool(host(condition).item()) else 0
    emit_previous = int(attributes.get("emit_previous", 0))
    shape = _state_shape(initial.shape, step.shape)
    if not 0 < count <= _LARGEST_COUNT or shape is None or (emit_previous and shape != initial.shape):
        return None
    columns = math.prod(shape)
    want_final, want_rows = (*wanted, False)[:2]
    if is_small(initial.dtype.itemsize * columns * (count if want_rows else 1), inputs, least_bytes):
        return None
    names = [name for name, want in (("v_final", want_final), ("scan_output", want_rows)) if want]
    result = run_package(
        package_of(__package__),
        device,
        {
            "m": _number(device, count),
            "cond": _number(device, True),
            "v_initial": expand(device, initial, shape).reshape((columns,)),
            "step": expand(device, step, shape).reshape((columns,)),
        },
        {name: (count, columns) if name == "scan_output" else None for name in names},
        {"emit_previous": emit_previous},
        tunables(device),
    )
    return (
        result["v_final"].reshape(shape) if want_final else None,
        result["scan_output"].reshape((count, *shape)) if want_rows else None,
    )


def tunables(device: Device) -> Mapping[str, int]:
    """What the package can't see of a device: whether its own additions may be used, and whether it is a CPU."""
    found = {"hardware_add": int(device.behaviour.adds_to_nearest_even)}
    return {**found, **_ON_A_CPU} if device.software else found


@functools.lru_cache(maxsize=64, typed=True)  # True is not 1
def _number(device: Device, value: int | bool) -> DeviceTensor:
    """A uint32 or bool on the device; kept, since an upload takes as long as a small kernel."""
    return DeviceTensor.upload(device, np.array(value, np.bool_ if isinstance(value, bool) else np.uint32))


def _is_one(value: Array | DeviceTensor, dtype: type[np.generic]) -> bool:
    return value.dtype == dtype and value.size == 1


def _state_shape(initial: tuple[int, ...], step: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(initial, step)
    except ValueError:
        return None

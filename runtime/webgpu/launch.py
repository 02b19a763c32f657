"""Runs a kernel package on a device."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.webgpu.device import Device, DeviceTensor, Dispatch, Slice, Timer
from looplift.runtime.webgpu.packages.expressions import evaluate_shape, numpy_dtype
from looplift.runtime.webgpu.packages.package import Package
from looplift.runtime.webgpu.packages.plan import BufferRange, Case, Plan, TensorSpec, make_plan


def run_package(
    package: Package,
    device: Device,
    inputs: Mapping[str, DeviceTensor],
    outputs: Mapping[str, Sequence[int] | None],
    attributes: Mapping[str, int] | None = None,
    tunables: Mapping[str, int] | None = None,
    timer: Timer | None = None,
) -> dict[str, DeviceTensor]:
    """Run a kernel package; returns at once, the device works on.

    Args:
        package: what to run.
        device: where.
        inputs: input port -> tensor on that device.
        outputs: wanted output port -> its shape, or None where the manifest derives it.
        attributes: values that differ from the manifest's.
        tunables: values that differ from the manifest's.
        timer: times the device's work.

    Returns:
        Output port -> tensor on the device.

    Raises:
        LoopliftError: a port, dtype, rank, attribute or tunable that the manifest does not allow; no variant fits.
        DeviceError: the device can't do it.
    """
    for name, port in package.manifest.inputs.items():
        if name not in inputs and not port.optional:
            raise LoopliftError(f"{package.name}: input {name!r} is missing")
    tensors = dict(inputs)
    for name, shape in outputs.items():
        tensors[name] = _make_output(package, device, name, shape, inputs, attributes or {})
    specs = ((name, TensorSpec(t.shape, _name(t.dtype), t.stored_bytes)) for name, t in tensors.items())
    case = Case(tuple(specs), _sorted_items(attributes), _sorted_items(tunables))
    _execute(make_plan(package, device, case), device, tensors, timer)
    return {name: tensors[name] for name in outputs}


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    """The dtype's name: numpy puts it together anew each time, which takes longer than to submit a kernel."""
    return str(dtype)


def _sorted_items(values: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((values or {}).items()))


def _make_output(
    package: Package,
    device: Device,
    name: str,
    shape: Sequence[int] | None,
    inputs: Mapping[str, DeviceTensor],
    attributes: Mapping[str, int],
) -> DeviceTensor:
    if name not in package.manifest.outputs:
        known = ", ".join(sorted(package.manifest.outputs))
        raise LoopliftError(f"{package.name}: no output {name!r}; there are {known}")
    port = package.manifest.outputs[name]
    if port.shape is not None:
        shapes = {key: value.shape for key, value in inputs.items()}
        derived = evaluate_shape(port.shape, {"shapes": shapes, "attrs": {**package.manifest.attributes, **attributes}})
        if shape is not None and tuple(shape) != derived:
            raise LoopliftError(f"{package.name}: output {name!r} has shape {derived}, not {tuple(shape)}")
        shape = derived
    if shape is None:
        raise LoopliftError(f"{package.name}: the caller must give the shape of output {name!r}")
    return DeviceTensor(device, shape, _output_dtype(package, port.dtype, inputs))


def _output_dtype(package: Package, declared: str | tuple[str, ...], inputs: Mapping[str, DeviceTensor]) -> Any:
    """The dtype of the input that shares an output's type variable, or the declared one."""
    sharing = (inputs[name].dtype for name, port in package.manifest.inputs.items() if port.dtype == declared)
    fallback = declared if isinstance(declared, str) else declared[0]
    return next(sharing, None) or numpy_dtype(fallback)


def _execute(plan: Plan, device: Device, tensors: Mapping[str, DeviceTensor], timer: Timer | None) -> None:
    scratch: dict[str, Any] = {}

    try:
        for name, size in plan.scratch.items():
            scratch[name] = device.allocate(size)
        if plan.dispatches:
            ports = {name: tensor.buffer for name, tensor in tensors.items()}
            device.submit(_bound(plan, tuple(ports.items()), tuple(scratch.items())), timer)
    finally:
        for buffer in scratch.values():
            device.release(buffer)


@functools.lru_cache(maxsize=256)
def _bound(
    plan: Plan, ports: tuple[tuple[str, Any], ...], scratch: tuple[tuple[str, Any], ...]
) -> tuple[Dispatch, ...]:
    """The plan's dispatches on these buffers; kept, since pooled buffers come round again."""
    named, kept = dict(ports), dict(scratch)

    def bind(part: BufferRange) -> Slice:
        if part.port is not None:
            return Slice(named[part.port], part.offset, part.size)
        return Slice(kept[part.scratch] if part.scratch else part.uniform, part.offset, part.size)

    return tuple(
        Dispatch(planned.pipeline, tuple(bind(part) for part in planned.ranges), planned.workgroups)
        for planned in plan.dispatches
    )

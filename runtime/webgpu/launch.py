"""Runs a kernel package on a device: chooses the variant, renders its shaders, binds buffers, dispatches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from looplift.runtime.errors import LoopliftError

from .device import Device, DeviceTensor, Dispatch, Slice, Timer
from .expressions import ceil_div, evaluate, evaluate_int, evaluate_shape
from .package import Binding, Manifest, Package, Pass, Port, Variant

_UNIFORM_ALIGNMENT = 16


@dataclasses.dataclass(frozen=True)
class Launch:
    """Everything that one run of a package needs, before anything is bound: what expressions see."""

    package: Package
    device: Device
    variant: Variant
    scope: Mapping[str, Any]
    tensors: Mapping[str, DeviceTensor]


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
    manifest = package.manifest
    scope = _base_scope(package, device, inputs, attributes or {}, tunables or {})
    tensors = dict(inputs)
    for name, shape in outputs.items():
        tensors[name] = _make_output(package, device, name, shape, scope)
    _add_tensors(scope, manifest, tensors)
    scope["derive"] = _derive(manifest.derive, {}, scope)
    if not evaluate(manifest.when, scope):
        raise LoopliftError(f"{package.name}: this case is outside of the kernel's contract ({manifest.when})")
    variant = _choose_variant(package, device, scope)
    scope["tunables"] = {**scope["tunables"], **variant.tunables, **(tunables or {})}
    scope["derive"] = _derive(variant.derive, scope["derive"], scope)
    _execute(Launch(package, device, variant, scope, tensors), timer)
    return {name: tensors[name] for name in outputs}


def _base_scope(
    package: Package,
    device: Device,
    inputs: Mapping[str, DeviceTensor],
    attributes: Mapping[str, int],
    tunables: Mapping[str, int],
) -> dict[str, Any]:
    manifest = package.manifest
    for given, known, kind in (
        (inputs, manifest.inputs, "input"),
        (attributes, manifest.attributes, "attribute"),
        (tunables, {name for owner in (manifest, *manifest.variants) for name in owner.tunables}, "tunable"),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise LoopliftError(f"{package.name}: no {kind} {unknown[0]!r}; there are {', '.join(sorted(known))}")
    for name, port in manifest.inputs.items():
        if name not in inputs and not port.optional:
            raise LoopliftError(f"{package.name}: input {name!r} is missing")
    scope: dict[str, Any] = {
        "args": dict(manifest.args),
        "attributes": {**manifest.attributes, **attributes},
        "tunables": {**manifest.tunables, **tunables},
        "device": {"limits": device.limits},
    }
    _add_tensors(scope, manifest, inputs)
    _check_types(package, inputs, scope["dtypes"])
    return scope


def _add_tensors(scope: dict[str, Any], manifest: Manifest, tensors: Mapping[str, DeviceTensor]) -> None:
    ports = {**manifest.inputs, **manifest.outputs}
    scope["shapes"] = {name: tensor.shape for name, tensor in tensors.items()}
    scope["ranks"] = {name: len(tensor.shape) for name, tensor in tensors.items()}
    scope["present"] = {name: name in tensors for name in ports}
    scope["dtypes"] = {name: str(tensor.dtype) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        variable = ports[name].dtype if name in ports else ""
        if isinstance(variable, str) and variable in manifest.typeConstraints:
            scope["dtypes"].setdefault(variable, str(tensor.dtype))


def _check_types(package: Package, tensors: Mapping[str, DeviceTensor], dtypes: Mapping[str, str]) -> None:
    constraints = package.manifest.typeConstraints
    for name, tensor in tensors.items():
        port = package.manifest.inputs[name]
        declared = (port.dtype,) if isinstance(port.dtype, str) else port.dtype
        allowed = [kind for item in declared for kind in constraints.get(item, (item,))]
        bound = dtypes.get(port.dtype, str(tensor.dtype)) if isinstance(port.dtype, str) else str(tensor.dtype)
        if str(tensor.dtype) not in allowed or str(tensor.dtype) != bound:
            wanted = bound if bound in allowed else " or ".join(allowed)
            raise LoopliftError(f"{package.name}: input {name!r} is {tensor.dtype}, not {wanted}")
        _check_rank(package, name, port, len(tensor.shape))


def _check_rank(package: Package, name: str, port: Port, rank: int) -> None:
    if rank not in ((port.rank,) if isinstance(port.rank, int) else port.rank):
        raise LoopliftError(f"{package.name}: {name!r} has rank {rank}, not {port.rank}")


def _make_output(
    package: Package, device: Device, name: str, shape: Sequence[int] | None, scope: Mapping[str, Any]
) -> DeviceTensor:
    if name not in package.manifest.outputs:
        raise LoopliftError(
            f"{package.name}: no output {name!r}; there are {', '.join(sorted(package.manifest.outputs))}"
        )
    port = package.manifest.outputs[name]
    if port.shape is not None:
        derived = evaluate_shape(port.shape, scope)
        if shape is not None and tuple(shape) != derived:
            raise LoopliftError(f"{package.name}: output {name!r} has shape {derived}, not {tuple(shape)}")
        shape = derived
    if shape is None:
        raise LoopliftError(f"{package.name}: the caller must give the shape of output {name!r}")
    _check_rank(package, name, port, len(shape))
    dtype = port.dtype if isinstance(port.dtype, str) else port.dtype[0]
    return DeviceTensor(device, shape, numpy_dtype(scope["dtypes"].get(dtype, dtype)))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an ONNX dtype's name."""
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def _derive(rules: Mapping[str, Any], before: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    derived = dict(before)
    for name, rule in rules.items():
        derived[name] = evaluate(rule, {**scope, "derive": derived})
    return derived


def _choose_variant(package: Package, device: Device, scope: Mapping[str, Any]) -> Variant:
    for variant in sorted(package.manifest.variants, key=lambda variant: -variant.priority):
        needed = (*package.manifest.requires, *variant.requires)
        if all(feature in device.features for feature in needed) and evaluate(variant.when, scope):
            return variant
    raise LoopliftError(f"{package.name}: no variant of the kernel fits this case")


def _single_passes(launch: Launch) -> Iterator[tuple[Pass, Mapping[str, Any]]]:
    """The passes to run, in order, each with what its expressions see."""
    for step in launch.variant.passes:
        if isinstance(step, Pass):
            yield step, launch.scope
        else:
            for index in range(evaluate_int(step.repeat.count, launch.scope)):
                scope = {**launch.scope, step.repeat.index: index}
                yield from ((single, scope) for single in step.passes)


def _execute(launch: Launch, timer: Timer | None) -> None:
    device = launch.device
    scratch: dict[str, Any] = {}
    uniforms: list[Any] = []
    try:
        dispatches = []
        for single, scope in _single_passes(launch):
            threads = evaluate_int(single.dispatch.threads, scope) if evaluate(single.when, scope) else 0
            if threads:
                dispatches.append(_prepare(launch, single, scope, threads, scratch, uniforms))
        if dispatches:
            device.submit(dispatches, timer)
    finally:
        for buffer in scratch.values():
            device.release(buffer)
        for buffer in uniforms:
            device.release_uniform(buffer)


def _prepare(
    launch: Launch,
    single: Pass,
    scope: Mapping[str, Any],
    threads: int,
    scratch: dict[str, Any],
    uniforms: list[Any],
) -> Dispatch:
    names = _present_bindings(launch, single)
    bindings = launch.package.manifest.bindings
    workgroup = evaluate_int(single.dispatch.workgroupSize, scope)
    source = _render(launch.package, single.shader, names, scope)
    pipeline = launch.device.pipeline(
        source,
        [bindings[name].access for name in names],
        {"WORKGROUP": workgroup} if "override WORKGROUP" in source else {},
    )
    slices = [_bind(launch, name, bindings[name], scope, scratch, uniforms) for name in names]
    groups = ceil_div(threads, workgroup)
    across = min(groups, launch.device.limits["maxComputeWorkgroupsPerDimension"])
    return Dispatch(pipeline, slices, (across, ceil_div(groups, across), 1))


def _present_bindings(launch: Launch, single: Pass) -> list[str]:
    """The pass's bindings without those of ports that this run does not have."""
    ports = {name: launch.package.manifest.bindings[name].port for name in single.bindings}
    return [name for name, port in ports.items() if port is None or port in launch.tensors]


def _bind(
    launch: Launch,
    name: str,
    binding: Binding,
    scope: Mapping[str, Any],
    scratch: dict[str, Any],
    uniforms: list[Any],
) -> Slice:
    if binding.uniform is not None:
        values = [evaluate_int(value, scope) for value in binding.uniform.values()]
        values += [0] * (-len(values) % (_UNIFORM_ALIGNMENT // 4))
        buffer = launch.device.allocate_uniform(np.array(values, np.uint32).tobytes())
        uniforms.append(buffer)
        return Slice(buffer, 0, 4 * len(values))
    if binding.port is not None:
        tensor = launch.tensors[binding.port]
        buffer, whole = tensor.buffer, tensor.stored_bytes
    else:
        whole = evaluate_int(binding.scratch or 0, scope)
        if name not in scratch:
            scratch[name] = launch.device.allocate(whole)
        buffer = scratch[name]
    size = whole if binding.size is None else evaluate_int(binding.size, scope)
    return Slice(buffer, evaluate_int(binding.offset, scope), max(ceil_div(size, 16) * 16, 16))


def _render(package: Package, shader: str, names: Sequence[str], scope: Mapping[str, Any]) -> str:
    structure = {key: scope[key] for key in ("attributes", "derive", "dtypes", "present", "ranks", "tunables")}
    declarations = _declarations(package, names, structure)
    try:
        return package.templates.get_template(shader).render(
            **structure, env={"wgsl": {"resourceDeclarations": declarations}}
        )
    except jinja2.TemplateError as error:
        raise LoopliftError(f"{package.folder / shader}: {error}") from error


def _declarations(package: Package, names: Sequence[str], structure: Mapping[str, Any]) -> str:
    lines = []
    for place, name in enumerate(names):
        binding = package.manifest.bindings[name]
        if binding.uniform is not None:
            struct = "".join(part.capitalize() for part in name.split("_"))
            fields = ", ".join(f"{field}: u32" for field in binding.uniform)
            lines.append(f"struct {struct} {{ {fields} }}")
            lines.append(f"@group(0) @binding({place}) var<uniform> {name}: {struct};")
        else:
            kind = package.templates.from_string(binding.type).render(**structure)
            lines.append(f"@group(0) @binding({place}) var<storage, {binding.access}> {name}: {kind};")
    return "\n".join(lines)


__all__ = ["numpy_dtype", "run_package"]

"""From a kernel package and the shapes of one case to the dispatches that compute it.

A plan holds no tensors, so that it is made once for each case and kept: evaluating a manifest's expressions takes
longer than small kernels do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.webgpu.device import Device
from looplift.runtime.webgpu.packages.expressions import ceil_div, evaluate, evaluate_size
from looplift.runtime.webgpu.packages.package import Binding, DispatchSize, Package, Pass, Port, Variant

Scope = Mapping[str, Any]
_UNIFORM_WORDS = 4
_BINDING_BYTES = 16
_LARGEST_WORD = 0xFFFFFFFF
_LARGEST_INDEX = (1 << 63) - 1

MOST_PASSES = 4096
"""Dispatches of one case."""


class TensorSpec(NamedTuple):  # as Case, hashed for every run
    """What a plan needs to know of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    stored_bytes: int


class Case(NamedTuple):
    """One case of a package: equal cases have equal plans."""

    tensors: tuple[tuple[str, TensorSpec], ...]
    attributes: tuple[tuple[str, int], ...]
    tunables: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class BufferRange:
    """What one binding binds: bytes of a port's tensor, of scratch memory, or a uniform buffer of known content."""

    offset: int
    size: int
    port: str | None = None
    scratch: str | None = None
    uniform: Any = None


@dataclasses.dataclass(frozen=True)
class PlannedDispatch:
    """One dispatch, all but the buffers."""

    pipeline: Any
    ranges: tuple[BufferRange, ...]
    workgroups: tuple[int, int, int]


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The dispatches of one case, in order, and the scratch memory they share (name -> bytes)."""

    variant: str
    dispatches: tuple[PlannedDispatch, ...]
    scratch: Mapping[str, int]


@functools.lru_cache(maxsize=256)
def make_plan(package: Package, device: Device, case: Case) -> Plan:
    """Choose the variant for a case, render and compile its shaders, size its dispatches.

    Raises:
        LoopliftError: a dtype, rank, attribute or tunable that the manifest does not allow; no variant fits.
        DeviceError: a shader does not compile on this device.
    """
    manifest = package.manifest
    scope = make_scope(package, device.limits, case)
    if not evaluate(manifest.when, scope):
        raise LoopliftError(f"{package.name}: this case is outside of the kernel's contract ({manifest.when})")
    variant = _choose_variant(package, device, scope)
    tunables = {**manifest.tunables, **variant.tunables, **dict(case.tunables)}
    scope = {**scope, "tunables": tunables}
    scope["derive"] = _derive(variant.derive, scope, _derive(manifest.derive, scope, {}))
    dispatches = tuple(
        planned
        for single, pass_scope in _single_passes(variant, scope)
        if (planned := _plan_pass(package, device, single, pass_scope))
    )
    used = {part.scratch for dispatch in dispatches for part in dispatch.ranges if part.scratch}
    largest = device.limits["maxBufferSize"]
    scratch = {name: evaluate_size(manifest.bindings[name].scratch or 0, scope, largest) for name in used}
    return Plan(variant.id, dispatches, scratch)


def make_scope(package: Package, limits: Mapping[str, int], case: Case) -> dict[str, Any]:
    """What a manifest's expressions see for a case.

    Raises:
        LoopliftError: a name, dtype or rank that the manifest does not allow.
    """
    manifest, tensors = package.manifest, dict(case.tensors)
    ports = {**manifest.inputs, **manifest.outputs}
    tunables = {*manifest.tunables, *(name for variant in manifest.variants for name in variant.tunables)}
    _check_names(package, "tensor", tensors, ports)
    _check_names(package, "attribute", dict(case.attributes), manifest.attributes)
    _check_names(package, "tunable", dict(case.tunables), tunables)
    dtypes: dict[str, str] = {}
    for name, tensor in tensors.items():
        _check_tensor(package, name, ports[name], tensor, dtypes)
        dtypes[name] = tensor.dtype
    scope: dict[str, Any] = {
        "args": manifest.args,
        "attrs": {**manifest.attributes, **dict(case.attributes)},
        "tunables": {**manifest.tunables, **dict(case.tunables)},
        "device": {"limits": limits},
        "shapes": {name: tensor.shape for name, tensor in tensors.items()},
        "ranks": {name: len(tensor.shape) for name, tensor in tensors.items()},
        "present": {name: name in tensors for name in ports},
        "stored_bytes": {name: tensor.stored_bytes for name, tensor in tensors.items()},
        "dtypes": dtypes,
    }
    scope["derive"] = _derive(manifest.derive, scope, {})
    return scope


def _check_names(package: Package, kind: str, given: Mapping[str, Any], known: Any) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise LoopliftError(f"{package.name}: no {kind} {unknown[0]!r}; there are {', '.join(sorted(known))}")


def _check_tensor(package: Package, name: str, port: Port, tensor: TensorSpec, dtypes: dict[str, str]) -> None:
    """Checks rank and dtype; the first tensor of a type variable binds it, in ``dtypes``."""
    ranks = (port.rank,) if isinstance(port.rank, int) else port.rank
    if len(tensor.shape) not in ranks:
        raise LoopliftError(
            f"{package.name}: {name!r} has rank {len(tensor.shape)}, not {' or '.join(map(str, ranks))}"
        )
    constraints = package.manifest.typeConstraints
    if isinstance(port.dtype, str) and port.dtype in constraints:
        allowed: Sequence[str] = (dtypes[port.dtype],) if port.dtype in dtypes else constraints[port.dtype]
        dtypes.setdefault(port.dtype, tensor.dtype)
    else:
        allowed = (port.dtype,) if isinstance(port.dtype, str) else port.dtype
    if tensor.dtype not in allowed:
        raise LoopliftError(f"{package.name}: {name!r} is {tensor.dtype}, not {' or '.join(allowed)}")


def _derive(rules: Mapping[str, Any], scope: Scope, before: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the rules, in order: each sees those before it."""
    derived = dict(before)
    for name, rule in rules.items():
        derived[name] = evaluate(rule, {**scope, "derive": derived})
    return derived


def _choose_variant(package: Package, device: Device, scope: Scope) -> Variant:
    for variant in sorted(package.manifest.variants, key=lambda variant: -variant.priority):
        needed = {*package.manifest.requires, *variant.requires}
        if needed <= device.features and evaluate(variant.when, scope):
            return variant
    raise LoopliftError(f"{package.name}: no variant of the kernel fits this case")


def _single_passes(variant: Variant, scope: Scope) -> Iterator[tuple[Pass, Scope]]:
    """The passes to run, in order, each with what its expressions see."""
    for step in variant.passes:
        if isinstance(step, Pass):
            yield step, scope
        else:
            for index in range(evaluate_size(step.repeat.count, scope, MOST_PASSES)):
                yield from ((single, {**scope, step.repeat.index: index}) for single in step.passes)


def _plan_pass(package: Package, device: Device, single: Pass, scope: Scope) -> PlannedDispatch | None:
    """The dispatch of a pass; None where it has nothing to do."""
    workgroups = _workgroups(single.dispatch, device, scope)
    if 0 in workgroups:
        return None
    bindings = {
        name: binding
        for name in single.bindings
        if (binding := package.manifest.bindings[name]).port is None or scope["present"][binding.port]
    }
    size = single.dispatch.workgroupSize
    pipeline = device.pipeline(
        _render(package, single.shader, bindings, scope),
        [binding.access for binding in bindings.values()],
        {} if size is None else {"WORKGROUP": evaluate_size(size, scope, _LARGEST_WORD)},
    )
    ranges = tuple(_range(device, name, binding, scope) for name, binding in bindings.items())
    return PlannedDispatch(pipeline, ranges, workgroups)


def _workgroups(size: DispatchSize, device: Device, scope: Scope) -> tuple[int, int, int]:
    """The grid of a dispatch; a row of groups is folded to a rectangle, since no side may exceed the device's limit."""
    most = device.limits["maxComputeWorkgroupsPerDimension"]
    if size.x is not None:
        x, y, z = (evaluate_size(side, scope, most) for side in (size.x, size.y, size.z))
        return x, y, z
    if size.workgroups is not None:
        groups = evaluate_size(size.workgroups, scope, most * most)
    else:
        threads, each = (evaluate_size(part or 0, scope, _LARGEST_INDEX) for part in (size.threads, size.workgroupSize))
        groups = ceil_div(threads, max(each, 1))
    across = min(groups, most)
    return across, ceil_div(groups, max(across, 1)), 1


def _range(device: Device, name: str, binding: Binding, scope: Scope) -> BufferRange:
    if binding.uniform is not None:
        values = [evaluate_size(value, scope, _LARGEST_WORD) for value in binding.uniform.values()]
        values += [0] * (-len(values) % _UNIFORM_WORDS)
        return BufferRange(0, 4 * len(values), uniform=device.constants(np.array(values, np.uint32).tobytes()))
    largest = device.limits["maxBufferSize"]
    offset = evaluate_size(binding.offset, scope, largest)
    size = evaluate_size(_whole_size(binding, scope) if binding.size is None else binding.size, scope, largest)
    padded = max(ceil_div(size, _BINDING_BYTES) * _BINDING_BYTES, _BINDING_BYTES)
    return BufferRange(offset, padded, binding.port, name if binding.scratch is not None else None)


def _whole_size(binding: Binding, scope: Scope) -> Any:
    return binding.scratch if binding.port is None else scope["stored_bytes"][binding.port]


def _render(package: Package, shader: str, bindings: Mapping[str, Binding], scope: Scope) -> str:
    names = ("attrs", "derive", "dtypes", "present", "ranks", "tunables")
    structure = {name: scope[name] for name in names}
    declarations = _declarations(package, bindings, structure)
    environment = {"wgsl": {"resourceDeclarations": declarations}}
    return package.templates.render_file(shader, {**structure, "env": environment})


def _declarations(package: Package, bindings: Mapping[str, Binding], structure: Scope) -> str:
    """The WGSL declarations of a pass's bindings: what ``env.wgsl.resourceDeclarations`` stands for."""
    lines = []
    for place, (name, binding) in enumerate(bindings.items()):
        if binding.uniform is not None:
            struct = "".join(part.capitalize() for part in name.split("_"))
            fields = ", ".join(f"{field}: u32" for field in binding.uniform)
            lines.append(f"struct {struct} {{ {fields} }}")
            lines.append(f"@group(0) @binding({place}) var<uniform> {name}: {struct};")
        else:
            kind = package.templates.render_text(binding.type, structure)
            lines.append(f"@group(0) @binding({place}) var<storage, {binding.access}> {name}: {kind};")
    return "\n".join(lines)

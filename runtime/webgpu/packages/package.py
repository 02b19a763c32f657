"""Kernel packages: a folder with a manifest, WGSL templates, tests and digests, read as the published layout says.

The manifest is the contract. Every key is checked: one that is not known is an error, never ignored.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from looplift.runtime.errors import LoopliftError
from looplift.runtime.files import read_bounded
from looplift.runtime.webgpu.device import Access
from looplift.runtime.webgpu.packages.expressions import make_environment
from looplift.runtime.webgpu.packages.sandbox import Sandbox

Expression = str | int | bool

LARGEST_JSON = 1 << 24
"""Bytes of each JSON file of a package."""


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output tensor: key = its WGSL identifier."""

    dtype: str | tuple[str, ...]
    """ONNX dtype, several of them, or a type variable of ``typeConstraints``."""
    rank: int | tuple[int, ...]
    onnx: str = ""
    description: str = ""
    optional: bool = False
    shape: str | None = None
    """Expression; without it the caller gives the shape."""


@dataclasses.dataclass(frozen=True)
class Binding:
    """What a shader binds: one of a port, scratch memory of so many bytes, or a uniform struct of u32 fields."""

    port: str | None = None
    scratch: Expression | None = None
    uniform: Mapping[str, Expression] | None = None
    access: Access = "uniform"
    type: str = ""
    offset: Expression = 0
    size: Expression | None = None


@dataclasses.dataclass(frozen=True)
class DispatchSize:
    """How much a pass runs: threads in workgroups of a size, so many workgroups, or a grid of them; 0 is nothing to do.

    With ``threads``, the shader's ``override WORKGROUP`` is set to ``workgroupSize``.
    """

    threads: Expression | None = None
    workgroupSize: Expression | None = None  # noqa: N815 (a key of the published layout)
    workgroups: Expression | None = None
    x: Expression | None = None
    y: Expression = 1
    z: Expression = 1


@dataclasses.dataclass(frozen=True)
class Pass:
    """One dispatch of one shader; ``bindings`` are in the order of their indices in group 0."""

    id: str
    shader: str
    bindings: tuple[str, ...]
    dispatch: DispatchSize


@dataclasses.dataclass(frozen=True)
class RepeatRange:
    """How often, and the name of the index in expressions."""

    count: Expression
    index: str


@dataclasses.dataclass(frozen=True)
class Repeat:
    """Passes that run several times."""

    repeat: RepeatRange
    passes: tuple[Pass, ...]


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run the op; the one of highest priority whose ``when`` holds is taken."""

    id: str
    passes: tuple[Pass | Repeat, ...]
    priority: int = 0
    when: Expression = True
    requires: tuple[str, ...] = ()
    tunables: Mapping[str, int] = dataclasses.field(default_factory=dict)
    derive: Mapping[str, Expression] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contract of a kernel package (``manifest.json``)."""

    domain: str
    name: str
    description: str
    conformance: str
    sinceVersion: int  # noqa: N815 (a key of the published layout)
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    bindings: Mapping[str, Binding]
    variants: tuple[Variant, ...]
    args: Mapping[str, Expression] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    typeConstraints: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # noqa: N815
    tunables: Mapping[str, int] = dataclasses.field(default_factory=dict)
    derive: Mapping[str, Expression] = dataclasses.field(default_factory=dict)
    when: Expression = True
    requires: tuple[str, ...] = ()
    onnx: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Package:
    """A kernel package, read and checked; equal only to itself, so that plans can be kept by it."""

    folder: Path
    manifest: Manifest
    templates: Sandbox

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.manifest.domain}.{self.manifest.name}"


def _build(kind: Any, value: Any, where: str) -> Any:
    """JSON value -> the annotated type; the manifest's schema is the dataclasses above."""
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(value, list):
        return tuple(_build(arguments[0], item, f"{where}[{place}]") for place, item in enumerate(value))
    if origin is Mapping or kind is Mapping or origin is typing.get_origin(Mapping[str, int]):
        if isinstance(value, dict):
            return {key: _build(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    elif origin in (typing.Union, types.UnionType):
        return _build_union(arguments, value, where)
    elif origin is typing.Literal:
        if value in arguments:
            return value
    elif isinstance(kind, type) and isinstance(value, kind):
        return value
    raise LoopliftError(f"{where}: {value!r} is not a {getattr(kind, '__name__', kind)}")


def _build_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if dataclasses.is_dataclass(kind):
            names = {field.name for field in dataclasses.fields(kind)}
            if isinstance(value, dict) and ("repeat" in value) == ("repeat" in names):
                return _build(kind, value, where)
        elif typing.get_origin(kind) is not None:
            if isinstance(value, list | dict):
                return _build(kind, value, where)
        elif isinstance(kind, type) and isinstance(value, kind):
            return value
    raise LoopliftError(f"{where}: {value!r} is not one of {kinds}")


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise LoopliftError(f"{where}: {value!r} is not an object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise LoopliftError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(fields)}")
    hints = typing.get_type_hints(kind)
    needed = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in needed if name not in value]
    if missing:
        raise LoopliftError(f"{where}: key {missing[0]!r} is missing")
    return kind(**{key: _build(hints[key], item, f"{where}.{key}") for key, item in value.items()})


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        LoopliftError: it can't be read, is larger than `LARGEST_JSON` or is not JSON.
    """
    try:
        return json.loads(read_bounded(path, LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise LoopliftError(f"{path}: not a readable JSON file: {error}") from error


def _check_references(manifest: Manifest, where: str) -> None:
    ports = {**manifest.inputs, **manifest.outputs}
    for name, binding in manifest.bindings.items():
        sources = [binding.port is not None, binding.scratch is not None, binding.uniform is not None]
        if sum(sources) != 1:
            raise LoopliftError(f"{where}: binding {name!r} needs exactly one of port, scratch, uniform")
        if binding.port is not None and binding.port not in ports:
            raise LoopliftError(f"{where}: binding {name!r} names no port: {binding.port!r}")
        if (binding.uniform is None) != bool(binding.type):
            raise LoopliftError(f"{where}: binding {name!r}: a port or scratch needs a type, a uniform has none")
    for variant in manifest.variants:
        for step in variant.passes:
            for single in step.passes if isinstance(step, Repeat) else (step,):
                unbound = [name for name in single.bindings if name not in manifest.bindings]
                if unbound:
                    raise LoopliftError(f"{where}: pass {variant.id}/{single.id} names no binding: {unbound[0]!r}")
                size = single.dispatch
                if sum(form is not None for form in (size.threads, size.workgroups, size.x)) != 1:
                    raise LoopliftError(
                        f"{where}: pass {variant.id}/{single.id}: dispatch needs threads, workgroups or x"
                    )


@functools.cache
def load_package(folder: Path) -> Package:
    """Read the kernel package in a folder (``.../build/webgpu``).

    Raises:
        LoopliftError: a file is missing, a key unknown or missing, a value of the wrong type, a name not defined.
    """
    where = str(folder / "manifest.json")
    manifest: Manifest = _build(Manifest, read_json(folder / "manifest.json"), where)
    _check_references(manifest, where)
    return Package(folder, manifest, make_environment(folder))


def package_of(module: str) -> Package:
    """The kernel package inside an importable package."""
    return load_package(Path(str(importlib.resources.files(module) / "build" / "webgpu")))

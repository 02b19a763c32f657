"""Checks a kernel package: its digests, its contract, its templates, and its own test cases on a device."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from looplift.runtime.errors import LoopliftError

from .device import Array, Device, DeviceTensor
from .expressions import numpy_dtype
from .launch import run_package
from .opened import open_device
from .package import Package, load_package, read_json

_METADATA_KEYS = {"id", "spec", "digests", "provenance"}
_CASE_KEYS = {"name", "skipGpu", "attributes", "inputs", "outputs"}
_SPECIAL_VALUES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0": -0.0}


@dataclasses.dataclass(frozen=True)
class PackageCheck:
    """The outcome for one package; ``problem`` is empty where all is well."""

    package: str
    cases: int
    skipped: int
    device: str
    problem: str


def check_package(folder: Path, device: Device | None = None) -> PackageCheck:
    """Check the kernel package in a folder (``.../build/webgpu``).

    Args:
        folder: where ``manifest.json`` lies.
        device: where to run its cases; by default any adapter.

    Raises:
        DeviceError: there is no device to run on.
    """
    device = device or open_device("webgpu")
    name, cases, skipped = str(folder), 0, 0
    try:
        _check_digests(folder)
        package = load_package(folder)
        name = package.name
        _check_templates(package)
        for case in _cases(folder):
            if case.get("skipGpu"):
                skipped += 1
                continue
            _run_case(package, device, case)
            cases += 1
        if not cases:
            raise LoopliftError(f"{folder / 'test.json'}: no case runs on a device")
    except LoopliftError as error:
        return PackageCheck(name, cases, skipped, device.name, str(error))
    return PackageCheck(name, cases, skipped, device.name, "")


def digests(folder: Path) -> dict[str, str]:
    """File name -> SHA-256 of every file of a package but ``metadata.json``, which holds them."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "metadata.json")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def update_digests(folder: Path) -> None:
    """Write a package's digests into its ``metadata.json``, after a change to its other files."""
    path = folder / "metadata.json"
    metadata = {**read_json(path), "digests": digests(folder)}
    path.write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")


def _check_digests(folder: Path) -> None:
    path = folder / "metadata.json"
    metadata = read_json(path)
    if not isinstance(metadata, dict) or set(metadata) != _METADATA_KEYS:
        raise LoopliftError(f"{path}: its keys must be {', '.join(sorted(_METADATA_KEYS))}")
    recorded, actual = metadata["digests"], digests(folder)
    for name in sorted({*recorded, *actual}):
        if recorded.get(name) != actual.get(name):
            state = "is missing" if name not in actual else "is not listed" if name not in recorded else "has changed"
            raise LoopliftError(f"{path}: {name} {state} (digests)")


def _check_templates(package: Package) -> None:
    for name in package.templates.list_templates(extensions=["jinja"]):
        try:
            package.templates.get_template(name)
        except jinja2.TemplateError as error:
            raise LoopliftError(f"{package.folder / name}: {error}") from error


def _cases(folder: Path) -> Sequence[Mapping[str, Any]]:
    path = folder / "test.json"
    content = read_json(path)
    if not isinstance(content, dict) or set(content) != {"cases"}:
        raise LoopliftError(f"{path}: must hold one key, cases")
    for case in content["cases"]:
        unknown = sorted(set(case) - _CASE_KEYS)
        if unknown or not {"name", "inputs", "outputs"} <= set(case):
            raise LoopliftError(f"{path}: case {case.get('name')!r}: unknown or missing key {unknown}")
    cases: list[Mapping[str, Any]] = content["cases"]
    return cases


def _run_case(package: Package, device: Device, case: Mapping[str, Any]) -> None:
    inputs = {port: DeviceTensor.upload(device, read_tensor(tensor)) for port, tensor in case["inputs"].items()}
    expected = {port: read_tensor(tensor) for port, tensor in case["outputs"].items()}
    shapes = {port: value.shape for port, value in expected.items()}
    results = run_package(package, device, inputs, shapes, case.get("attributes"))
    for port, value in expected.items():
        tolerance = float(case["outputs"][port].get("tolerance", 0))
        if not _equal(results[port].numpy(), value, tolerance):
            raise LoopliftError(f"{package.name}: case {case['name']!r}: output {port!r} is wrong on {device.name}")


def read_tensor(tensor: Mapping[str, Any]) -> Array:
    """The array of ``{dtype, shape, data: {kind: "values", values}}``; special floats are written as strings."""
    if tensor["data"].get("kind") != "values":
        raise LoopliftError(f"test data of kind {tensor['data'].get('kind')!r} is not supported; write values")
    values = [
        _SPECIAL_VALUES.get(value, value) if isinstance(value, str) else value for value in tensor["data"]["values"]
    ]
    dtype = numpy_dtype(tensor["dtype"])
    array: Array = np.array(values, object if dtype.kind in "iu" else np.float64)
    shape: tuple[int, ...] = tuple(tensor["shape"])
    return array.astype(dtype).reshape(shape)


def _equal(result: Array, expected: Array, tolerance: float) -> bool:
    """Bit for bit, NaN as NaN; with a tolerance, within it."""
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return False
    if tolerance:
        return bool(np.allclose(result.astype(np.float64), expected.astype(np.float64), 0, tolerance, equal_nan=True))
    same = result.view(f"u{result.itemsize}") == expected.view(f"u{result.itemsize}")
    return bool(np.all(same | ((result != result) & (expected != expected))))

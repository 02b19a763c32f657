"""Checks a kernel package: its digests, its contract, its templates, and its own test cases on a device."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.files import read_bounded
from looplift.runtime.webgpu.device import Array, Device, DeviceTensor
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.opened import open_device
from looplift.runtime.webgpu.packages.expressions import numpy_dtype
from looplift.runtime.webgpu.packages.package import LARGEST_JSON, Package, load_package, read_json

_METADATA_KEYS = {"id", "spec", "digests", "provenance"}
_CASE_KEYS = {"name", "skipGpu", "attributes", "inputs", "outputs"}
_DTYPES = (
    *("bool", "float16", "bfloat16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
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
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "metadata.json")
        return {path.name: hashlib.sha256(read_bounded(path, LARGEST_JSON).encode()).hexdigest() for path in files}
    except OSError as error:
        raise LoopliftError(f"can't read {folder}: {error.strerror or error}") from error


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
    if not isinstance(recorded, dict):
        raise LoopliftError(f"{path}: digests must be an object")
    for name in sorted({*recorded, *actual}):
        if recorded.get(name) != actual.get(name):
            state = "is missing" if name not in actual else "is not listed" if name not in recorded else "has changed"
            raise LoopliftError(f"{path}: {name} {state} (digests)")


def _check_templates(package: Package) -> None:
    for name in package.templates.list_templates():
        package.templates.check_file(name)


def _cases(folder: Path) -> Sequence[Mapping[str, Any]]:
    path = folder / "test.json"
    content = read_json(path)
    if not isinstance(content, dict) or set(content) != {"cases"}:
        raise LoopliftError(f"{path}: must hold one key, cases")
    if not isinstance(content["cases"], list):
        raise LoopliftError(f"{path}: cases must be a list")
    for case in content["cases"]:
        if not isinstance(case, dict):
            raise LoopliftError(f"{path}: a case must be an object, not {case!r:.80}")
        unknown = sorted(set(case) - _CASE_KEYS)
        if unknown or not {"name", "inputs", "outputs"} <= set(case):
            raise LoopliftError(f"{path}: case {case.get('name')!r}: unknown or missing key {unknown}")
        if not all(isinstance(case.get(key, {}), dict) for key in ("inputs", "outputs", "attributes")):
            raise LoopliftError(f"{path}: case {case['name']!r}: inputs, outputs and attributes must be objects")
    cases: list[Mapping[str, Any]] = content["cases"]
    return cases


def _run_case(package: Package, device: Device, case: Mapping[str, Any]) -> None:
    inputs = {port: DeviceTensor.upload(device, read_tensor(tensor)) for port, tensor in case["inputs"].items()}
    expected = {port: read_tensor(tensor) for port, tensor in case["outputs"].items()}
    shapes = {port: value.shape for port, value in expected.items()}
    attributes = case.get("attributes", {})
    if not all(isinstance(value, int) for value in attributes.values()):
        raise LoopliftError(f"{package.name}: case {case['name']!r}: attributes are whole numbers")
    results = run_package(package, device, inputs, shapes, attributes)
    for port, value in expected.items():
        if not _equal(results[port].numpy(), value, _tolerance(case["outputs"][port])):
            raise LoopliftError(f"{package.name}: case {case['name']!r}: output {port!r} is wrong on {device.name}")


def _tolerance(tensor: Mapping[str, Any]) -> float:
    given = tensor.get("tolerance", 0)
    if not isinstance(given, int | float):
        raise LoopliftError(f"test data: tolerance {given!r:.80} is not a number")
    return float(given)


def read_tensor(tensor: Any) -> Array:
    """The array of ``{dtype, shape, data: {kind: "values", values}}``; special floats are written as strings.

    Raises:
        LoopliftError: it is not such an object, or the values don't fit the dtype or the shape.
    """
    try:
        kind, given, name = tensor["data"].get("kind"), tensor["data"].get("values"), tensor["dtype"]
        if kind != "values":
            raise LoopliftError(f"test data of kind {kind!r} is not supported; write values")
        if name not in _DTYPES:
            raise LoopliftError(f"test data of dtype {name!r} is not supported")
        values = [_SPECIAL_VALUES.get(value, value) if isinstance(value, str) else value for value in given]
        dtype = numpy_dtype(name)
        array: Array = np.array(values, object if dtype.kind in "iu" else np.float64)
        return array.astype(dtype).reshape(tuple(tensor["shape"]))
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise LoopliftError(f"test data: not a tensor: {error}") from error


def _equal(result: Array, expected: Array, tolerance: float) -> bool:
    """Bit for bit, NaN as NaN; with a tolerance, within it."""
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return False
    if tolerance:
        return bool(np.allclose(result.astype(np.float64), expected.astype(np.float64), 0, tolerance, equal_nan=True))
    same = result.view(f"u{result.itemsize}") == expected.view(f"u{result.itemsize}")
    return bool(np.all(same | ((result != result) & (expected != expected))))

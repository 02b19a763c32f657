"""What the pipeline makes of a model, as a few digits: one digest for each target, exact or not."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from looplift.passes.pipeline import TARGETS, run_pipeline

FILE = Path(__file__).with_name("golden.json")
EXPORTS = Path(__file__).parents[1] / "data" / "exports"
SETTINGS = tuple((target, exact) for target in TARGETS for exact in (True, False))
LIBRARIES = ("onnx", "onnx-ir", "onnxscript")
"""What the bytes of a result depend on besides looplift."""


def versions() -> dict[str, str]:
    """The installed versions of the libraries that the bytes depend on."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def digests(proto: onnx.ModelProto) -> str:
    """The digests of the result and of the findings for each of `SETTINGS`, separated by blanks."""
    return " ".join(_digest(proto, target, exact) for target, exact in SETTINGS)


def _digest(proto: onnx.ModelProto, target: str, exact: bool) -> str:
    try:
        model, findings = run_pipeline(ir.from_proto(proto), target=target, exact=exact)
        result = ir.to_proto(model).SerializeToString(deterministic=True)
        told = json.dumps([dataclasses.asdict(finding) for finding in findings]).encode()
    except Exception as error:  # what the pipeline raises is part of what it does
        result, told = type(error).__name__.encode(), str(error).encode()
    return f"{hashlib.sha256(result).hexdigest()[:8]}/{hashlib.sha256(told).hexdigest()[:4]}"


def shipped() -> Iterator[tuple[str, onnx.ModelProto]]:
    """The models that stand in the tests as files, by name."""
    for file in sorted(EXPORTS.glob("*.onnx")):
        yield file.stem, onnx.load(file)


def recorded() -> dict[str, str]:
    """The golden file's digests by model."""
    return dict(json.loads(FILE.read_text())["models"])


def write(models: dict[str, str]) -> None:
    """Makes these digests the golden file."""
    FILE.write_text(json.dumps({"versions": versions(), "models": dict(sorted(models.items()))}, indent=0) + "\n")


def recorded_with() -> dict[str, str]:
    """The versions of the libraries that the golden file was made with."""
    return dict(json.loads(FILE.read_text())["versions"])

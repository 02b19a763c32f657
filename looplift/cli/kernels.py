"""``looplift kernels``."""

from __future__ import annotations

import argparse
import importlib.resources
from pathlib import Path

from looplift import console, ort
from looplift.cli.codes import DIFFERENT, EQUAL
from looplift.cli.paths import require_outputs
from looplift.runtime.ops import all_ops
from looplift.runtime.webgpu import check_package


def run(options: argparse.Namespace) -> int:
    """Checks kernel packages, or builds the kernels for ONNX Runtime."""
    if options.build:
        require_outputs({"--output": options.output}, ())
        console.say(f"wrote {ort.build_library(Path(options.output) if options.output else None)}")
        return EQUAL
    rows = [check_package(Path(folder)) for folder in options.folder or _own_packages()]
    console.show(console.rows_table("kernel packages", rows))
    return DIFFERENT if any(row.problem for row in rows) else EQUAL


def _own_packages() -> list[str]:
    modules = [op.package for op in all_ops().values() if op.package is not None]
    return [str(importlib.resources.files(module) / "build" / "webgpu") for module in modules]

"""``looplift devices``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from looplift import console, ort
from looplift.cli.codes import EQUAL
from looplift.runtime.ops import compiled
from looplift.runtime.webgpu import describe_devices


def run(_: argparse.Namespace) -> int:
    """Lists the devices that can run kernels."""
    rows: Sequence[Any] = describe_devices()
    if rows:
        console.show(console.rows_table("WebGPU adapters", rows))
    else:
        console.say("no WebGPU adapter (or the package wgpu is not installed): device 'auto' is numpy")
    note = "numba makes" if compiled.numba_is_installed() else "with the extra 'compiled', numba would make"
    console.say(f"numpy is always there; {note} machine code of its loops over rows")
    there = f"in {ort.library_path()}" if ort.has_library() else "not built ('looplift kernels build' builds them)"
    console.say(f"kernels for ONNX Runtime: {there}")
    return EQUAL

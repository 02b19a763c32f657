"""Lifts ONNX loops into kernels, and proves it."""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Check": "checking.check",
    "Counterexample": "checking.check",
    "Finding": "passes.report",
    "LoopliftError": "runtime.errors",
    "Report": "report",
    "Session": "session",
    "explain": "optimizer",
    "optimize": "optimizer",
    "verify": "checking.check",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"looplift.{_HOME[name]}"), name)

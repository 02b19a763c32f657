"""Lifts ONNX loops into kernels, and proves it.

>>> import looplift
>>> model = looplift.optimize("in.onnx")
>>> print(looplift.explain("in.onnx"))
>>> assert looplift.verify("in.onnx", model)
>>> outputs = looplift.Session(model).run(None, {"x": x})
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxscript.rewriter import RewriteRuleSet

    from looplift import ort
    from looplift.optimizer import explain, optimize
    from looplift.passes.report import Finding
    from looplift.report import Report
    from looplift.runtime.errors import LoopliftError
    from looplift.session import Session
    from looplift.verification.check import verify
    from looplift.verification.outcome import Check, Counterexample

_ROOT = Path(__file__).parents[1]
if not (_ROOT / "looplift" / "runtime").exists() and (_ROOT / "pyproject.toml").exists():
    # In a clone the other rooms lie beside this one. A tool that runs at its root finds this folder before what is
    # installed, and would look for them inside it.
    __path__.append(str(_ROOT))

__all__ = [
    "Check",
    "Counterexample",
    "Finding",
    "LoopliftError",
    "Report",
    "Session",
    "explain",
    "optimize",
    "ort",
    "rules",
    "verify",
]

_HOMES = {
    "Check": "looplift.verification.outcome",
    "Counterexample": "looplift.verification.outcome",
    "Finding": "looplift.passes.report",
    "LoopliftError": "looplift.runtime.errors",
    "Report": "looplift.report",
    "Session": "looplift.session",
    "explain": "looplift.optimizer",
    "optimize": "looplift.optimizer",
    "verify": "looplift.verification.check",
}


def __getattr__(name: str) -> Any:
    """Imports a name where it is first used: onnx takes long to import, and the command line has to answer before."""
    if name == "ort":
        return importlib.import_module("looplift.ort")
    if name not in _HOMES:
        raise AttributeError(f"module 'looplift' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def rules(exact: bool = True) -> RewriteRuleSet:
    """The lift as rules for onnxscript's rewriter, to stand among rules of your own.

    A loop is lifted as it stands: what `optimize` does before, such as counting while loops and stacking lists, is no
    part of it. The definitions of the new nodes are added to the model.

    Example: ``RewriteRuleSet([*mine, *looplift.rules()]).apply_to_model(model)``.

    Args:
        exact: as for `optimize`.
    """
    from looplift.passes.lift.lift_rule import rules as make  # onnxscript is slow to import

    return make(exact)

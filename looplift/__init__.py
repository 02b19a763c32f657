"""Lifts ONNX loops into kernels, and proves it.

>>> import looplift
>>> model = looplift.optimize("in.onnx")
>>> print(looplift.explain("in.onnx"))
>>> assert looplift.verify("in.onnx", model)
>>> outputs = looplift.Session(model).run(None, {"x": x})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from looplift.checking.check import verify
from looplift.checking.outcome import Check, Counterexample
from looplift.optimizer import explain, optimize
from looplift.passes.report import Finding
from looplift.report import Report
from looplift.runtime.errors import LoopliftError
from looplift.session import Session

if TYPE_CHECKING:
    from onnxscript.rewriter import RewriteRuleSet

__all__ = [
    "Check",
    "Counterexample",
    "Finding",
    "LoopliftError",
    "Report",
    "Session",
    "explain",
    "optimize",
    "rules",
    "verify",
]


def rules(exact: bool = True) -> RewriteRuleSet:
    """The lift as rules for onnxscript's rewriter, to stand among rules of your own.

    A loop is lifted as it stands: what `optimize` does before, such as counting while loops and stacking lists, is no
    part of it. The definitions of the new nodes are added to the model.

    Example: ``RewriteRuleSet([*mine, *looplift.rules()]).apply_to_model(model)``.

    Args:
        exact: as for `optimize`.
    """
    from looplift.passes.lift_rule import rules as make  # onnxscript is slow to import

    return make(exact)

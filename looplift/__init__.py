"""Lifts ONNX loops into kernels, and proves it.

>>> import looplift
>>> model = looplift.optimize("in.onnx")
>>> print(looplift.explain("in.onnx"))
>>> assert looplift.verify("in.onnx", model)
>>> outputs = looplift.Session(model).run(None, {"x": x})
"""

from looplift.checking.check import Check, Counterexample, verify
from looplift.optimizer import explain, optimize
from looplift.passes.report import Finding
from looplift.report import Report
from looplift.runtime.errors import LoopliftError
from looplift.session import Session

__all__ = [
    "Check",
    "Counterexample",
    "Finding",
    "LoopliftError",
    "Report",
    "Session",
    "explain",
    "optimize",
    "verify",
]

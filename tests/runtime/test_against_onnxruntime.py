"""Random programs with nested Loop, Scan and If give what ONNX Runtime gives, bit for bit."""

import warnings

import numpy as np
import pytest
from programs.check import BARE, SESSION, engines, everywhere
from programs.generate import Program, program

from looplift.verification.compare import Tolerance, compare

LEFT_OUT = frozenset(
    "Exp MatMul Pow ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Sigmoid Sqrt Tanh CumSum".split()
)
"""What engines round, or add, each in its own way, and what ONNX Runtime takes NaN for less than."""
LEFT_OUT |= {"type float16", "Shape"}
"""ONNX Runtime computes float16 in float32 here and there; and it has other shapes of empty rows, see below."""

ZEROS = frozenset({"Clip", "Max", "Min", "Relu", "Where"})
"""What ONNX Runtime's Where makes of a -0 (it adds both operands, one of them masked with +0), and which zero is larger."""

LIKE_OURS = Tolerance(shape_of_empty=False, zero_is_unknown=True)
"""ONNX Runtime's empty rows have 0 where we know a dimension (test_disagreements says why it is wrong there)."""


def alike(got: np.ndarray, want: np.ndarray | None, zeros_lost: bool) -> bool:
    """The same bits, or no row; a zero may have lost its sign."""
    if want is None:  # what ONNX Runtime gives of a Scan of no batch
        return not got.size
    if got.shape[:1] == want.shape[:1] == (0,):  # rows that the body declares and those of its first iteration differ
        return got.dtype == want.dtype
    if zeros_lost and want.dtype.kind == "f":
        got, want = got + 0, want + 0
    return compare(want, got, LIKE_OURS).equal or compare(got, want, LIKE_OURS).equal


def disagreements(subject: Program) -> list[str]:
    """Where both give a result and these differ."""
    loads = {name: load for name, load in engines(subject.model).items() if name in (SESSION, BARE)}
    results = everywhere(loads, subject.feeds)
    zeros_lost = not ZEROS.isdisjoint(subject.used)
    found = []
    for case in subject.feeds:
        got, want = (results[name].get(case) for name in (SESSION, BARE))
        if got is not None and want is not None:
            found += [f"{case}: {w} and {g}" for g, w in zip(got, want, strict=True) if not alike(g, w, zeros_lost)]
    return found


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(100, 3000, 100))])
def test_programs(first):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        subjects = {seed: program(seed) for seed in range(first, first + 100)}
        found = {k: disagreements(v) for k, v in subjects.items() if not LEFT_OUT & v.used.keys()}
    assert len(found) > 20
    assert not {seed: differing for seed, differing in found.items() if differing}

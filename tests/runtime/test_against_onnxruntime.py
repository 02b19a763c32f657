"""Random programs with nested Loop, Scan and If give what ONNX Runtime gives, bit for bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from loop_programs import programs
from sessions import assert_same, in_onnxruntime

from looplift.runtime import Session

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


def compare(program) -> None:
    proto, feeds = program
    for got, want in zip(Session(proto, "numpy").run(None, feeds), in_onnxruntime(proto, feeds), strict=True):
        assert_same(got, like_ours(want, got))


def like_ours(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """ONNX Runtime's empty rows with our dimensions where it has 0 (test_disagreements says why it is wrong there)."""
    empty = want.ndim and got.ndim == want.ndim and want.shape[0] == got.shape[0] == 0
    if not empty or any(a not in (0, b) for a, b in zip(want.shape, got.shape, strict=True)):
        return want
    return np.empty(got.shape, want.dtype)


@settings(max_examples=120, **SETTINGS)
@given(programs())
def test_programs(program):
    compare(program)


@pytest.mark.slow
@settings(max_examples=2000, **SETTINGS)
@given(programs())
def test_many_programs(program):
    compare(program)

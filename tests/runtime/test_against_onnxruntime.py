"""Random programs with nested Loop, Scan and If give what ONNX Runtime gives, bit for bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from loop_programs import programs
from sessions import assert_same, in_onnxruntime

from looplift.runtime import Session

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


def compare(program) -> None:
    proto, feeds = program
    assert_same(Session(proto, "numpy").run(None, feeds), in_onnxruntime(proto, feeds))


@settings(max_examples=120, **SETTINGS)
@given(programs())
def test_programs(program):
    compare(program)


@pytest.mark.slow
@settings(max_examples=5000, **SETTINGS)
@given(programs())
def test_many_programs(program):
    compare(program)

"""Random loops: whatever the pipeline makes of them gives the same bits, by kernels, definitions and standard ops."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lifting import same_bits
from random_loops import Program, programs

from looplift.passes import run_pipeline
from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError

CASES = ((-1, True), (0, True), (1, True), (2, True), (7, True), (5, False))


def check(program: Program, seed: int) -> None:
    model = ir.from_onnx_text(program.text)
    lifted, _ = run_pipeline(model)
    lowered, _ = run_pipeline(model, target="standard")
    before = Session(model, device="numpy")
    after = [Session(lifted, "numpy"), Session(lifted, "numpy", definitions=True), Session(lowered, "numpy")]
    for trip, condition in CASES:
        feed = program.feeds(trip, condition, seed)
        try:
            wanted = before.run(None, feed)
        except LoopliftError:  # such as a scan output whose shape changes: nothing to compare
            continue
        for session in after:
            for want, got in zip(wanted, session.run(None, feed), strict=True):
                assert same_bits(np.asarray(want), np.asarray(got)), f"trip {trip}, {condition}: {want} and {got}"


@pytest.mark.filterwarnings("ignore:overflow")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 2**31))
def test_random_loops(program, seed):
    check(program, seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow")
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 2**31))
def test_many_random_loops(program, seed):
    check(program, seed)

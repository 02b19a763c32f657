"""What the pipeline makes of the shipped models and of programs of fixed seeds is what the golden file says."""

from __future__ import annotations

import pytest

from golden import hashes


@pytest.mark.slow
def test_results_are_the_recorded_ones():
    if hashes.versions() != hashes.recorded_with():
        pytest.skip(f"recorded with {hashes.recorded_with()}: other versions write other bytes")
    old = hashes.recorded()
    different = [name for name, proto in hashes.shipped() if old[name] != hashes.digests(proto)]
    assert different == [], "if that is meant: python tests/golden/record.py --write"

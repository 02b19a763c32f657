"""What tests in several folders need."""

from __future__ import annotations

from pathlib import Path

import pytest

from looplift import ort
from tests.runtime.kernel_cases import need_compiler


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of kernels for ONNX Runtime, built anew. Skips where there is no C compiler."""
    need_compiler()
    return ort.build_library(tmp_path_factory.mktemp("kernels") / "library")

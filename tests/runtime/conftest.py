"""Fixtures for tests that need a WebGPU device."""

from __future__ import annotations

import os
import tempfile

import pytest

from looplift.runtime.webgpu import Device, DeviceUnavailableError, open_device


@pytest.fixture(scope="session")
def device() -> Device:
    """Any WebGPU device. Skips where there is none, unless LOOPLIFT_REQUIRE_WEBGPU=1 makes that a failure."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp())  # quiets Mesa
    try:
        return open_device("webgpu")
    except DeviceUnavailableError as error:
        if os.environ.get("LOOPLIFT_REQUIRE_WEBGPU") == "1":
            pytest.fail(f"LOOPLIFT_REQUIRE_WEBGPU=1, but {error}")
        pytest.skip(str(error))

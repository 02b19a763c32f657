"""The kernels in older versions of ONNX Runtime, each installed for the test."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from looplift.runtime.ops import all_ops
from tests.runtime.kernel_cases import BFLOAT16, random_case

REPLAY = Path(__file__).with_name("replay_kernels.py")
CASES = 250


def installed(version: str, folder: Path) -> Path:
    """A Python with this version. Skips where it can't be had, unless LOOPLIFT_REQUIRE_KERNELS=1 makes that a failure."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", f"onnxruntime=={version}"], capture_output=True, check=False
    )
    if done.returncode != 0:
        words = f"pip has no onnxruntime {version} here"
        if os.environ.get("LOOPLIFT_REQUIRE_KERNELS") == "1":
            pytest.fail(f"LOOPLIFT_REQUIRE_KERNELS=1, but {words}: {done.stderr[-300:]!r}")
        pytest.skip(words)
    return python


def cases() -> list[tuple[bytes, dict[str, np.ndarray], list[np.ndarray]]]:
    """Nodes without definitions, and every other time with one, which must not run."""
    rng, found = np.random.default_rng(11), []
    while len(found) < CASES:
        case = random_case(rng)
        model = case.model()
        if len(found) % 2 and case.inputs["v_initial"].dtype != BFLOAT16:
            model.functions.append(all_ops()[case.op].definition(17))
        feeds = {name: _wide(array) for name, array in case.inputs.items() if array is not None}
        found.append((model.SerializeToString(), feeds, [_wide(array) for array in case.expected()]))
    return found


def _wide(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype("f4") if array.dtype == BFLOAT16 else array


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.20.1", "1.24.1"])
def test_random_nodes(version, library, tmp_path) -> None:
    python = installed(version, tmp_path / "venv")
    (tmp_path / "cases").write_bytes(pickle.dumps(cases()))
    done = subprocess.run([python, REPLAY, library, tmp_path / "cases"], capture_output=True, text=True, check=False)
    assert done.stdout == f"{version} {CASES}\n", done.stderr


def test_replaying_tells_bits_apart(library, tmp_path) -> None:
    """In the version that is installed: what must come out does, and something else is said."""
    some = cases()[:20]
    (tmp_path / "cases").write_bytes(pickle.dumps(some))
    right = subprocess.run(
        [sys.executable, REPLAY, library, tmp_path / "cases"], capture_output=True, text=True, check=False
    )
    assert right.stdout.split()[1:] == ["20"], right.stderr
    place = next(k for k, (_, _, expected) in enumerate(some) if expected[0].size)
    expected = some[place][2]
    changed = expected[0].copy()
    changed.reshape(-1).view(np.uint8)[0] ^= 1
    some[place] = (*some[place][:2], [changed, *expected[1:]])
    (tmp_path / "cases").write_bytes(pickle.dumps(some))
    wrong = subprocess.run(
        [sys.executable, REPLAY, library, tmp_path / "cases"], capture_output=True, text=True, check=False
    )
    assert f"case {place} differs" in wrong.stderr

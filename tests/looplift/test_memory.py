"""What a check does when a model asks for more memory than there is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from looplift import cli
from looplift.runtime.errors import LoopliftError, ran_out_of_memory
from looplift.runtime.ops.memory import allocate
from looplift.verification import memory
from looplift.verification.check import verify

MB = 1 << 20


def doubling(times: int) -> onnx.ModelProto:
    """Joins a constant with itself so many times, for the first value of a running sum."""
    nodes = "".join(f"c{k + 1} = Concat <axis = 0> (c{k}, c{k})\n" for k in range(times))
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (int64 n, float x) => (float y)
        <float[4096] c0 = {{{", ".join(["1"] * 4096)}}}, int64 first = {{0}}> {{
            {nodes} step = Gather (c{times}, first)
            y = Loop (n, , x) <body = b (int64 i, bool c, float v) => (bool d, float w) {{
                d = Identity (c) w = Add (v, step) }}>
        }}"""
    )


def test_no_more_than_so_many_bytes_can_be_taken() -> None:
    with memory.at_most(64 * MB):
        assert len(bytearray(16 * MB)) == 16 * MB
        with pytest.raises(MemoryError):
            bytearray(512 * MB)
    assert len(bytearray(512 * MB)) == 512 * MB


def test_the_allowance_grows_with_the_weights() -> None:
    assert memory.allowance(0) == 1 << 30
    assert memory.allowance(3 << 30) == 25 << 30


def test_errors_of_memory_are_known() -> None:
    with pytest.raises(LoopliftError) as found:
        allocate((1 << 50,), np.dtype(np.float32), "it")
    assert ran_out_of_memory(found.value)
    assert not ran_out_of_memory(LoopliftError("another"))


def test_a_check_ends_soon_if_the_original_always_runs_out_of_memory() -> None:
    with memory.at_most(256 * MB):
        check = verify(doubling(25), doubling(25), seconds=10, cases=10_000, onnxruntime=False)
    assert check.cases == 0
    assert "the original ran out of memory in all of the first" in str(check)
    assert 0 < check.started < 10_000


def test_more_memory_than_the_original_is_no_difference() -> None:
    """A rewritten model may hold all rows at once; where that does not fit, nothing is known of its results."""
    small, large = doubling(1), doubling(16)
    with memory.at_most(256 * MB):
        check = verify(small, large, seconds=20, cases=2, onnxruntime=False)
    assert check.counterexample is None
    assert "not enough memory, where the original has" in str(check)


def test_the_command_bounds_what_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "LEAST", 256 * MB)
    file = tmp_path / "m.onnx"
    file.write_bytes(doubling(25).SerializeToString())
    assert cli.main(["verify", str(file), str(file), "--cases", "2", "--seconds", "20"]) == 3
    out, err = capsys.readouterr()
    assert "Unable to allocate" in out
    assert len(err.splitlines()) == 1


def test_onnxruntime_ends_with_who_started_it(tmp_path: Path) -> None:
    """Also if that is killed: a model may run for ever."""
    file = tmp_path / "m.onnx"
    file.write_bytes(doubling(1).SerializeToString())
    script = (
        "import sys, time; from pathlib import Path; from looplift.verification.engines import OnnxRuntime\n"
        f"engine = OnnxRuntime(Path({str(file)!r}), seconds=60); engine.wait_until_loaded()\n"
        "print(engine._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        worker = int(starter.stdout.readline())
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < deadline and not _is_zombie(worker):
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{worker}") or _is_zombie(worker)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True

"""`looplift.ort`: lifted models in ONNX Runtime with our kernels; builds that are not exact are refused."""

from __future__ import annotations

import importlib
import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import looplift
from looplift import cli
from looplift.runtime.onnxruntime import compile as compiling
from looplift.runtime.onnxruntime.compile import SOURCES, compile_library
from tests.runtime.kernel_cases import library, need_compiler
from tests.runtime.op_cases import assert_same_bits

__all__ = ["library"]

AVERAGE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
g (float[D] v, float[T,D] a, float[T,D] x, int64 M, float[D] s) => (float[D] y, float[T,D] z, float[n,D] grid) {
    y, z = Scan <num_scan_inputs = 2, body = b (float[D] p, float[D] a_now, float[D] x_now) => (float[D] q, float[D] r) {
        m = Mul (a_now, p)
        q = Add (m, x_now)
        r = Identity (q)
    }> (v, a, x)
    last, grid = Loop (M, , v) <body = b2 (int64 i, bool c, float[D] p2) => (bool c2, float[D] q2, float[D] r2) {
        c2 = Identity (c)
        q2 = Add (p2, s)
        r2 = Identity (q2)
    }>
}""")


def feeds(columns: int = 7, time: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    a, x = rng.normal(size=(2, time, columns)).astype("f4")
    v, s = rng.normal(size=(2, columns)).astype("f4")
    return {"v": v, "a": a, "x": x, "M": np.array(time), "s": s}


@pytest.fixture
def built(library, monkeypatch):
    """`looplift.ort` with the library that the tests built."""
    monkeypatch.setattr(looplift.ort, "_here", lambda: library)


def test_a_lifted_model_runs_by_kernels(built, tmp_path) -> None:
    lifted = looplift.optimize(AVERAGE)
    options = looplift.ort.session_options()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = onnxruntime.InferenceSession(lifted.SerializeToString(), options)
    nodes = onnx.load(tmp_path / "optimized.onnx").graph.node
    assert {node.op_type for node in nodes} >= {"LinearRecurrence", "AddStep"}
    assert not {"Loop", "Scan"} & {node.op_type for node in nodes}
    plain = onnxruntime.InferenceSession(AVERAGE.SerializeToString())
    for got, expected in zip(session.run(None, feeds()), plain.run(None, feeds()), strict=True):
        assert_same_bits(got, expected)


def test_options_of_ones_own_are_added_to(built) -> None:
    base = onnxruntime.SessionOptions()
    base.intra_op_num_threads = 1
    assert looplift.ort.session_options(base) is base
    assert onnxruntime.InferenceSession(looplift.optimize(AVERAGE).SerializeToString(), base).run(None, feeds())


def test_a_library_that_is_not_built_is_said(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(looplift.ort, "_here", lambda: tmp_path / "none.so")
    for ask in (looplift.ort.library_path, looplift.ort.session_options):
        with pytest.raises(looplift.LoopliftError, match="not built: 'looplift kernels build' builds them"):
            ask()
    assert cli.main(["devices"]) == 0
    assert "ONNX Runtime: not built" in capsys.readouterr().out


def test_a_library_that_is_none_is_said(monkeypatch, tmp_path) -> None:
    path = tmp_path / "text.so"
    path.write_text("no library")
    monkeypatch.setattr(looplift.ort, "_here", lambda: path)
    with pytest.raises(looplift.LoopliftError, match="does not take the kernels in"):
        looplift.ort.session_options()


WRONG = {
    "contracted": (None, "products are not rounded before they are added to"),
    "ties go up": (("0xfffu + ((magnitude >> 13) & 1u)", "0x1000u"), "halfway cases are not rounded to even"),
    "flushed": (("magnitude < 0x400u ? subnormal : normal", "magnitude < 0x400u ? 0 : normal"), "subnormal numbers"),
    "saturated": (("#define ADD_(a, b) ((T)((a) + (b)))", "#define ADD_(a, b) ((T)((a) + (b) > 255 ? 255 : (a) + (b)))"), "integers do not wrap"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_build_that_is_not_exact_is_refused(fault, monkeypatch, tmp_path) -> None:
    need_compiler()
    change, words = WRONG[fault]
    sources, path = tmp_path / "sources", tmp_path / "wrong.so"
    shutil.copytree(SOURCES, sources)
    flags = ["-fPIC", "-O0"]
    if change is None:
        if platform.machine() != "x86_64" or "fma" not in Path("/proc/cpuinfo").read_text():
            pytest.skip("this processor does not fuse products and sums")
        flags += ["-O2", "-mfma", "-ffp-contract=fast"]
    else:
        files = [file for file in sources.iterdir() if file.suffix in (".h", ".inc") and change[0] in file.read_text()]
        assert len(files) == 1
        files[0].write_text(files[0].read_text().replace(*change))
    compile_library(path, flags=flags, sources=sources)
    monkeypatch.setattr(looplift.ort, "_here", lambda: path)
    with pytest.raises(looplift.LoopliftError, match=f"this build of them is not exact: {words}"):
        looplift.ort.session_options()


def test_the_command_builds(tmp_path, capsys) -> None:
    need_compiler()
    path = tmp_path / "kernels.so"
    assert cli.main(["kernels", "build", "-o", str(path)]) == 0
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    assert path.stat().st_size < 150_000
    onnxruntime.SessionOptions().register_custom_ops_library(str(path))


def test_no_compiler_is_said(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["kernels", "build", "-o", str(tmp_path / "k.so")]) == 2
    assert "there is no C compiler: install one (cc, gcc or clang), or the package ziglang" in capsys.readouterr().err


def test_a_compiler_that_fails_is_said_and_nothing_is_written(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -c 'raise SystemExit(\"no such flag\")'")
    assert cli.main(["kernels", "build", "-o", str(tmp_path / "k.so")]) == 2
    assert "no such flag" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_onnxruntime_it_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(looplift.LoopliftError, match=r"install looplift\[ort\]"):
        looplift.ort.session_options()

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
from looplift.bench import bench
from looplift.runtime.onnxruntime import compile as compiling
from looplift.runtime.onnxruntime.compile import SOURCES, compile_library
from looplift.verification import pairs
from looplift.verification.engines import OnnxRuntime
from tests.runtime.kernel_cases import need_compiler
from tests.runtime.op_cases import assert_same_bits

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


def test_a_session_runs_the_whole_model_in_onnxruntime(built) -> None:
    lifted = looplift.optimize(AVERAGE)
    session = looplift.Session(lifted, "onnxruntime")
    assert session.device == "onnxruntime (kernels in C)"
    assert [value.name for value in session.get_inputs()] == ["v", "a", "x", "M", "s"]
    expected = looplift.Session(lifted, "numpy").run(None, feeds())
    for got, want in zip(session.run(None, feeds()), expected, strict=True):
        assert_same_bits(got, want)
        assert got.flags.writeable
    (only,) = session.run(["grid"], feeds())
    assert_same_bits(only, expected[2])
    by_definitions = looplift.Session(lifted, "onnxruntime", definitions=True)
    assert by_definitions.device == "onnxruntime (definitions)"
    assert_same_bits(by_definitions.run(["z"], feeds())[0], expected[1])
    assert "ONNX Runtime" in session.source


def test_a_session_in_onnxruntime_says_what_is_wrong(built) -> None:
    session = looplift.Session(looplift.optimize(AVERAGE), "onnxruntime")
    with pytest.raises(looplift.LoopliftError, match="the input 'v' has dtype float64"):
        session.run(None, {**feeds(), "v": np.zeros(7)})
    with pytest.raises(looplift.LoopliftError, match="an element of a has shape"):
        session.run(None, {**feeds(), "a": np.zeros((50, 6), "f4")})
    with pytest.raises(looplift.LoopliftError, match="can't bound loops"):
        looplift.Session(AVERAGE, "onnxruntime", max_iterations=3)
    unknown = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "x": 1]> g (float y) => (float z) { z = x.F (y) }'
    )
    with pytest.raises(looplift.LoopliftError, match="ONNX Runtime does not load the model"):
        looplift.Session(unknown, "onnxruntime")


def test_bfloat16_at_the_door_is_refused(built) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (bfloat16[n] y) { y = Cast <to = 16> (x) }'
    with pytest.raises(looplift.LoopliftError, match="'y' is bfloat16"):
        looplift.Session(onnx.parser.parse_model(text), "onnxruntime")


def test_results_of_a_session_share_no_memory(built) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n] x) => (float[n] x, float[2] c, float[2] c, float[n] y) <float[2] c = {1.0, 2.0}> { y = Identity (x) }"""
    x = np.ones(4, "f4")
    results = looplift.Session(onnx.parser.parse_model(text), "onnxruntime").run(None, {"x": x})
    for k, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in (x, *results[:k]))


def test_verify_runs_the_kernels(built, library, monkeypatch) -> None:
    lifted = looplift.optimize(AVERAGE)
    assert looplift.verify(AVERAGE, lifted, cases=6)
    starts = []
    monkeypatch.setattr(pairs, "OnnxRuntime", lambda *a, **kw: starts.append(kw) or OnnxRuntime(*a, **kw))
    looplift.verify(AVERAGE, lifted, cases=1)
    assert [start["kernels"] for start in starts] == [None, None, library]
    starts.clear()
    looplift.verify(AVERAGE, AVERAGE, cases=1)  # has none of our ops
    assert [start["kernels"] for start in starts] == [None, None]


def test_verify_finds_kernels_that_are_wrong(monkeypatch, tmp_path) -> None:
    """The planted mistake is one that the self-test doesn't see: the second of two outputs is a row late."""
    need_compiler()
    path = tmp_path / "late.so"
    sources = changed_sources(tmp_path, ("memcpy(final, last, row_bytes);", "memcpy(final, first, row_bytes);"))
    compile_library(path, flags=["-fPIC", "-O0"], sources=sources)
    monkeypatch.setattr(looplift.ort, "_here", lambda: path)
    check = looplift.verify(AVERAGE, looplift.optimize(AVERAGE), cases=8)
    assert not check
    assert check.counterexample.engine == "ONNX Runtime with kernels"


def test_bench_measures_the_kernels(built) -> None:
    rows = bench({"as written": AVERAGE, "lifted": looplift.optimize(AVERAGE)}, feeds(), repeat=2, device="numpy")
    assert [row.engine for row in rows[2:4]] == ["ONNX Runtime with kernels"] * 2
    assert rows[3].same_bits


def test_the_command_runs_in_onnxruntime(built, tmp_path, capsys) -> None:
    onnx.save(looplift.optimize(AVERAGE), tmp_path / "m.onnx")
    assert cli.main(["run", str(tmp_path / "m.onnx"), "--device", "onnxruntime"]) == 0
    assert "onnxruntime (kernels in C)" in capsys.readouterr().out


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


def changed_sources(folder: Path, change: tuple[str, str]) -> Path:
    """A copy of the C files with one text replaced."""
    sources = folder / "sources"
    shutil.copytree(SOURCES, sources)
    (file,) = (file for file in sources.glob("*.[chi]*") if change[0] in file.read_text())
    file.write_text(file.read_text().replace(*change))
    return sources


@pytest.mark.parametrize("fault", WRONG)
def test_a_build_that_is_not_exact_is_refused(fault, monkeypatch, tmp_path) -> None:
    need_compiler()
    change, words = WRONG[fault]
    path, sources, flags = tmp_path / "wrong.so", SOURCES, ["-fPIC", "-O0"]
    if change is not None:
        sources = changed_sources(tmp_path, change)
    elif platform.machine() == "x86_64" and "fma" in Path("/proc/cpuinfo").read_text():
        flags += ["-O2", "-mfma", "-ffp-contract=fast"]
    else:
        pytest.skip("this processor does not fuse products and sums")
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

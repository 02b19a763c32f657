"""`looplift bench`: which inputs it makes, what it measures and compares."""

import itertools
import json
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import looplift
from looplift import cli, ort
from looplift.bench import bench
from looplift.verification import engines
from looplift.verification.cases.made_up import make_one
from looplift.verification.ort_worker import measure

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, float[D] x, float[D] s) => (float[D] y) {
  y = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w) { co = Identity(c) w = Add(v, s) }> (n, , x)
}"""
ADD = onnx.parser.parse_model(TEXT)
OTHER = onnx.parser.parse_model(TEXT.replace("Add(v, s)", "Sub(v, s)"))
FEEDS = {"n": np.array(5), "x": np.ones(3, np.float32), "s": np.full(3, 0.1, np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(ADD, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_dims_and_trips_of_inputs_that_are_made_up() -> None:
    model = ir.from_proto(ADD)
    feeds = make_one(model, dims={"D": 7}, size=3, count=11)
    assert (int(feeds["n"]), feeds["x"].shape, feeds["s"].shape) == (11, (7,), (7,))
    assert make_one(model, dims={}, size=3, count=11)["x"].shape == (3,)
    assert make_one(model, dims={"D": 300_000}, size=3, count=1)["x"].shape == (300_000,)
    with pytest.raises(looplift.LoopliftError, match=r"no input has a dim 'E'; there are: D"):
        make_one(model, dims={"E": 7}, size=3, count=11)


def test_rows_say_how_fast_and_whether_the_bits_are_the_same(monkeypatch) -> None:
    monkeypatch.setattr(ort, "has_library", lambda: False)
    rows = bench({"a": ADD, "b": looplift.optimize(ADD), "c": OTHER}, FEEDS, repeat=3, device="numpy")
    assert [row.engine for row in rows] == ["ONNX Runtime"] * 3 + ["looplift on numpy"] * 3
    assert [row.same_bits for row in rows] == [None, True, False] * 2
    for original, *others in (rows[:3], rows[3:]):
        assert original.times_faster is None
        for row in others:
            assert row.runs == 3
            assert row.times_faster == pytest.approx(original.milliseconds / row.milliseconds)


def test_a_model_that_fails_has_its_problem_in_the_row() -> None:
    feeds = {**FEEDS, "s": np.ones(4, np.float32)}
    rows = bench({"a": ADD, "b": looplift.optimize(ADD)}, feeds, repeat=1, device="numpy")
    assert all(row.problem and row.milliseconds is None and row.same_bits is None for row in rows)


def test_without_onnxruntime_the_session_is_measured(monkeypatch) -> None:
    monkeypatch.setattr("looplift.bench.has_onnxruntime", lambda: False)
    assert len(bench({"a": ADD}, FEEDS, repeat=1, device="numpy")) == 1


@pytest.mark.parametrize(("repeat", "seconds", "runs"), [(4, 100.0, 4), (9, 2.6, 4), (3, 0.0, 0), (0, 9.0, 0)])
def test_measure_warms_up_and_keeps_to_its_limits(monkeypatch, repeat, seconds, runs) -> None:
    clock = itertools.count(step=0.5)
    monkeypatch.setattr("looplift.verification.ort_worker.time.perf_counter", lambda: next(clock))
    calls = itertools.count()
    first, taken = measure(lambda: next(calls), repeat, seconds)
    assert first == 0
    assert next(calls) == runs + 1
    assert taken == [0.5] * max(runs, 1)


def test_onnxruntime_is_timed_in_its_own_process(path) -> None:
    engine = engines.OnnxRuntime(Path(path), seconds=20)
    try:
        engine.wait_until_loaded()
        outcome, taken = engine.measure(FEEDS, repeat=4, seconds=20)
    finally:
        engine.close()
    assert outcome.outputs[0].shape == (3,)
    assert len(taken) == 4
    assert all(0 < each < 20 for each in taken)


def test_bench_measures_what_optimize_makes(path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(ort, "has_library", lambda: False)
    arguments = ["bench", path, "--trips", "40", "--dim", "D=6", "--repeat", "2", "--device", "numpy"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert "inputs: n = 40, x = float32[6], s = float32[6]" in text
    assert "optimized, target standard" in text
    assert cli.main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 6
    assert [row["same_bits"] for row in told["rows"]] == [None, True, True] * 2


def test_bench_of_two_files_that_differ_ends_with_one(path, tmp_path, capsys) -> None:
    onnx.save(OTHER, tmp_path / "other.onnx")
    other, feeds = str(tmp_path / "other.onnx"), str(tmp_path / "x.npz")
    np.savez(feeds, **FEEDS)
    assert cli.main(["bench", path, other, "--inputs", feeds, "--repeat", "1", "--device", "numpy"]) == 1
    assert "NO" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--dim", "D"], ["--dim", "=3"], ["--dim", "D=x"], ["--dim", "E=3"]])
def test_wrong_dims_end_in_one_line(path, capsys, wrong) -> None:
    assert cli.main(["bench", path, *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_bench_of_a_model_without_loops_ends_in_one_line(tmp_path, capsys) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Neg(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert cli.main(["bench", str(tmp_path / "m.onnx")]) == 2
    assert "nothing to measure" in capsys.readouterr().err


ENDLESS = onnx.parser.parse_model(
    TEXT.replace("int64 n, ", "").replace("{\n", "{\n  n = Constant<value_int = 9000000000000>()\n", 1)
)


def test_a_model_without_an_answer_in_its_time_is_given_up() -> None:
    started = time.monotonic()
    feeds = {name: FEEDS[name] for name in ("x", "s")}
    rows = bench({"a": ENDLESS}, feeds, repeat=3, seconds=0.5, device="numpy")
    assert [row.problem for row in rows] == ["no answer in 0.5 s (--seconds gives more)"] * len(rows)
    assert time.monotonic() - started < 20

"""The command line: what it prints, what it writes, how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import looplift
from looplift import cli, interop, storage
from looplift.cli import optimize
from looplift.runtime.ops import compiled

HEAD = '<ir_version: 10, opset_import: ["" : 21]> '

ADD = """g (int64 n, float[2] x) => (float[2] y, float[N, 2] ys) <float[2] s = {0.1, 0.3}> {
  [clock] y, ys = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
    co = Identity(c) w = Add(v, s) e = Identity(%s)
  }> (n, , x) }"""


def write(path: Path, text: str) -> str:
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write(tmp_path / "in.onnx", ADD % "w")


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_optimize_writes_the_lifted_model_and_says_what_was_done(model, tmp_path, capsys) -> None:
    out = tmp_path / "out.onnx"
    report = tmp_path / "report.json"
    assert cli.main(["optimize", model, "-o", str(out), "--verify", "--cases", "20", "--json", str(report)]) == 0
    text = capsys.readouterr().out
    assert "1 of 1 loop lifted" in text
    assert "Loop clock" in text
    assert "ai.looplift::AddStep" in text
    assert "equal, bit for bit" in text
    assert "\x1b" not in text
    assert not any(line.endswith(" ") for line in text.splitlines())
    assert looplift.verify(model, str(out), cases=5)
    assert [node.op_type for node in onnx.load(out).graph.node] == ["AddStep"]
    told = json.loads(report.read_text())
    assert (told["findings"][0]["outcome"], told["outcomes"], told["target"]) == ("lifted", {"lifted": 1}, "kernel")
    assert (told["nodes"]["before"]["Loop"], told["nodes"]["after"]["ai.looplift::AddStep"]) == (1, 1)
    assert told["bytes"] == {"before": Path(model).stat().st_size, "after": out.stat().st_size}
    assert names(tmp_path) == ["in.onnx", "out.onnx", "report.json"]


def test_optimize_may_write_over_its_input(model) -> None:
    assert cli.main(["optimize", model, "-o", model]) == 0
    assert [node.op_type for node in onnx.load(model).graph.node] == ["AddStep"]


def test_a_model_without_loops_comes_out_byte_for_byte(tmp_path, capsys) -> None:
    path = write(tmp_path / "in.onnx", "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    assert cli.main(["optimize", path, "-o", str(tmp_path / "out.onnx"), "--verify"]) == 0
    assert "no Loop or Scan" in capsys.readouterr().out
    assert (tmp_path / "out.onnx").read_bytes() == Path(path).read_bytes()


def test_optimize_keeps_weights_beside_the_model(tmp_path) -> None:
    proto = onnx.parser.parse_model(HEAD + (ADD % "w").replace("float[2] s = {0.1, 0.3}", "float[2] z = {1, 2}"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(2, dtype=np.float32), "s"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32), "big"))
    proto.graph.node.add(op_type="Identity", input=["big"], output=["b"])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("b", 1, [1000]))
    source = tmp_path / "source"
    source.mkdir()
    onnx.save(proto, source / "in.onnx", save_as_external_data=True, location="w.bin")
    assert cli.main(["optimize", str(source / "in.onnx"), "-o", str(tmp_path / "out.onnx"), "--verify"]) == 0
    assert names(tmp_path) == ["out.onnx", "out.onnx.data", "source"]
    assert looplift.verify(str(source / "in.onnx"), str(tmp_path / "out.onnx"), cases=5)
    with pytest.raises(looplift.LoopliftError, match=r"w.bin: No such file"):
        looplift.Session(onnx.load(source / "in.onnx", load_external_data=False))


def test_optimize_puts_weights_beside_the_model_if_they_do_not_fit(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "LARGEST_PROTO", 1)
    monkeypatch.setattr(storage, "DATA_THRESHOLD", 1)
    assert cli.main(["optimize", model, "-o", str(tmp_path / "out.onnx"), "--verify", "--cases", "3"]) == 0
    assert names(tmp_path) == ["in.onnx", "out.onnx", "out.onnx.data"]
    assert looplift.verify(model, str(tmp_path / "out.onnx"), cases=5)


def test_optimize_writes_nothing_if_the_result_differs(model, tmp_path, capsys, monkeypatch) -> None:
    wrong = onnx.parser.parse_model(HEAD + ADD % "v")
    monkeypatch.chdir(tmp_path)

    def mislift(source, **_options):
        return interop.to_ir(interop.read(wrong)), looplift.Report(())

    monkeypatch.setattr(optimize, "lift", mislift)
    assert cli.main(["optimize", model, "-o", "out.onnx", "--verify", "--cases", "20"]) == 1
    assert names(tmp_path) == ["counterexample.npz", "in.onnx"]
    assert capsys.readouterr().err == "looplift: error: out.onnx is not written\n"


def test_explain_as_text_and_as_json(model, capsys) -> None:
    assert cli.main(["explain", model]) == 0
    assert "Loop clock: lifted" in capsys.readouterr().out
    assert cli.main(["explain", model, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["loops"], report["lifted"], report["findings"][0]["node"]) == (1, 1, "clock")


def test_the_standard_target_has_no_node_of_ours(model, tmp_path, capsys) -> None:
    out = tmp_path / "out.onnx"
    assert cli.main(["optimize", model, "-o", str(out), "--target", "standard", "--verify", "--cases", "12"]) == 0
    assert "equal, bit for bit" in capsys.readouterr().out
    written = onnx.load(out)
    assert {entry.domain for entry in written.opset_import} == {""}
    assert "CumSum" in {node.op_type for node in written.graph.node}
    assert cli.main(["explain", model, "--target", "standard"]) == 0
    assert "AddStep became CumSum" in capsys.readouterr().out


def test_sizes_count_the_weights_beside_a_model(model, tmp_path) -> None:
    proto = onnx.load(model)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32), "big"))
    file = tmp_path / "with.onnx"
    onnx.save(proto, file, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert storage.bytes_on_disk(file) == file.stat().st_size + (tmp_path / "w.bin").stat().st_size > 4000


def test_explain_writes_a_page(model, tmp_path, capsys) -> None:
    page = tmp_path / "out.html"
    assert cli.main(["explain", model, "--html", str(page)]) == 0
    assert f"1 of 1 loop lifted; wrote {page}" in capsys.readouterr().out
    assert "<svg" in page.read_text()
    assert cli.main(["explain", model, "--html", str(tmp_path / "no" / "out.html")]) == 2
    assert_one_line(capsys.readouterr().err, "no folder")


def test_explain_says_something_of_a_model_that_is_refused(tmp_path, capsys) -> None:
    path = write(tmp_path / "bad.onnx", (ADD % "w").replace("Add(v, s)", "Add(v, nothing)"))
    assert cli.main(["explain", path]) == 0
    text = capsys.readouterr().out
    assert "Loop clock: left" in text
    assert "'nothing', which nothing makes" in text
    assert cli.main(["optimize", path, "-o", str(tmp_path / "out.onnx")]) == 2
    assert names(tmp_path) == ["bad.onnx"]


def test_verify_exit_codes(model, tmp_path, capsys) -> None:
    other = write(tmp_path / "other.onnx", ADD % "v")
    saved = tmp_path / "c.npz"
    assert cli.main(["verify", model, model, "--cases", "5"]) == 0
    assert cli.main(["verify", model, other, "--cases", "20", "--counterexample", str(saved)]) == 1
    text = capsys.readouterr().out
    assert "output 'ys'" in text
    assert saved.exists()
    assert (
        cli.main(
            [
                "verify",
                model,
                other,
                "--inputs",
                str(saved),
                "--cases",
                "0",
                "--counterexample",
                str(tmp_path / "d.npz"),
            ]
        )
        == 1
    )
    strange = write(tmp_path / "strange.onnx", "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    assert cli.main(["verify", model, strange]) == 2


REFUSING = "g (float[2] x) => (float y) { k = Constant <value_int = 9> () y = Gather(x, k) }"
CHOOSY = """g (float[4] x, int64 k) => (float y) {
  v = Loop (k, "", k) <body = b (int64 i, bool c, int64 p) => (bool d, int64 q) {
    t = Constant <value_int = 50> () d = Identity(c) q = Add(p, t) }>
  y = Gather(x, v) }"""


def test_verify_that_compares_nothing_has_an_exit_code_of_its_own(tmp_path, capsys) -> None:
    path = write(tmp_path / "m.onnx", REFUSING)
    for more in ([], ["--allow-few"]):
        assert cli.main(["verify", path, path, "--cases", "4", *more]) == 3
        told = capsys.readouterr()
        assert told.err == (
            "looplift: error: hardly tested: nothing compared in 4 of 4 cases; give --inputs that the original accepts\n"
        )
        assert "the original failed in 4 cases; 4 times: Gather" in told.out


def test_few_cases_have_to_be_allowed(tmp_path, capsys) -> None:
    """k decides how often the loop runs, and only 0 and negative ones give an index in bounds."""
    path, out = write(tmp_path / "m.onnx", CHOOSY), tmp_path / "out.onnx"
    for command in (["verify", path, path], ["optimize", path, "-o", str(out), "--verify"]):
        assert cli.main(command) == 3
        told = capsys.readouterr()
        assert "hardly tested: equal, bit for bit, in" in told.out
        assert len(told.err.splitlines()) == 1
        assert "give --inputs that the original accepts, or --allow-few" in told.err
        assert not out.exists()
        assert cli.main([*command, "--allow-few"]) == 0
        assert "hardly" not in capsys.readouterr().out
    assert out.exists()


def test_run_with_inputs_and_without(model, tmp_path, capsys) -> None:
    feeds, out = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(feeds, n=np.array(3), x=np.array([1, 2], np.float32))
    assert cli.main(["run", model, "--inputs", str(feeds), "--output", str(out), "--device", "numpy"]) == 0
    assert "float32[3, 2]" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(out)["y"], [1.3, 2.9], rtol=1e-6)
    assert cli.main(["run", model, "--device", "numpy"]) == 0
    assert "made up (seed 0)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"n": np.array(3), "z": np.zeros(2, np.float32)}, "'z'"),
        ({"n": np.array(3)}, "'x'"),
        ({"n": np.array(3), "x": np.zeros(2)}, "float64"),
        ({"n": np.array(3), "x": np.zeros(3, np.float32)}, "[3]"),
    ],
)
def test_run_refuses_wrong_inputs(model, tmp_path, capsys, feeds, words) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **feeds)
    out = tmp_path / "y.npz"
    assert cli.main(["run", model, "--inputs", str(path), "--output", str(out), "--device", "numpy"]) == 2
    assert_one_line(capsys.readouterr().err, words)
    assert not out.exists()


def assert_one_line(text: str, words: str = "") -> None:
    assert text.startswith("looplift: error: ")
    assert text.count("\n") == 1
    assert words in text


@pytest.mark.parametrize("bad", ["text", "truncated", "empty", "folder", "missing"])
@pytest.mark.parametrize(
    "command",
    [["optimize", "-o", "OUT"], ["explain"], ["run", "--output", "OUT"], ["verify", "IN"]],
    ids=lambda c: c[0],
)
def test_bad_models_end_in_one_line(model, tmp_path, capsys, bad, command) -> None:
    path = tmp_path / "bad.onnx"
    if bad == "folder":
        path.mkdir()
    elif bad != "missing":
        content = {"text": b"not a model\n", "truncated": Path(model).read_bytes()[:-25], "empty": b""}[bad]
        path.write_bytes(content)
    before = names(tmp_path)
    words = {"OUT": str(tmp_path / "out"), "IN": model}
    assert cli.main([command[0], str(path), *(words.get(word, word) for word in command[1:])]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_one_line(captured.err, "bad.onnx")
    assert names(tmp_path) == before


@pytest.mark.parametrize("output", ["no/such/folder/out", ".", "/proc/out"])
def test_unwritable_output_ends_in_one_line(model, tmp_path, capsys, monkeypatch, output) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["optimize", model, "-o", output], ["run", model, "--device", "numpy", "--output", output]):
        assert cli.main(command) == 2
        assert_one_line(capsys.readouterr().err)
    assert names(tmp_path) == ["in.onnx"]


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["optimize", "x.onnx"], ["run", "x.onnx", "--device", "abacus"]]
)
def test_wrong_usage_exits_with_two(arguments, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2


def test_version(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("looplift 0.")


@pytest.mark.parametrize(
    ("installed", "words"), [(True, "numba makes"), (False, "with the extra 'compiled', numba would")]
)
def test_devices(installed, words, capsys, monkeypatch) -> None:
    monkeypatch.setattr(compiled, "numba_is_installed", lambda: installed)
    assert cli.main(["devices"]) == 0
    assert f"numpy is always there; {words}" in " ".join(capsys.readouterr().out.split())


def require_adapter() -> None:
    from looplift.runtime.webgpu import describe_devices

    if not describe_devices():
        assert os.environ.get("LOOPLIFT_REQUIRE_WEBGPU") != "1", "CI must have a WebGPU adapter"
        pytest.skip("no WebGPU adapter on this machine")


@pytest.mark.webgpu
def test_verify_and_run_on_webgpu(model, tmp_path, capsys) -> None:
    require_adapter()
    out = str(tmp_path / "out.onnx")
    assert cli.main(["optimize", model, "-o", out, "--verify", "--cases", "12", "--device", "webgpu"]) == 0
    assert cli.main(["run", out, "--device", "webgpu"]) == 0
    assert "webgpu" in capsys.readouterr().out.lower()


@pytest.mark.webgpu
def test_kernels_check(tmp_path, capsys) -> None:
    require_adapter()
    assert cli.main(["kernels", "check"]) == 0
    assert "ai.looplift.AddStep" in capsys.readouterr().out
    assert cli.main(["kernels", "check", str(tmp_path)]) == 1
    assert "No such file" in capsys.readouterr().out


def test_progress_is_told_on_a_terminal_only_after_a_while(monkeypatch, capsys) -> None:
    from looplift import console

    monkeypatch.setattr(console, "_PATIENCE", 0.05)
    with console.working("counting"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with console.working("counting") as say:
        time.sleep(0.2)
        say("still counting")
    assert "counting" in capsys.readouterr().err


def python_m(*arguments: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "looplift", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def test_python_m_and_a_closed_pipe(model) -> None:
    process = python_m("explain", model)
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


def test_a_closed_pipe_does_not_lose_the_model(model, tmp_path) -> None:
    process = python_m("optimize", model, "-o", str(tmp_path / "out.onnx"), "--verify", "--cases", "3")
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == ""
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["AddStep"]


def test_control_c_exits_with_130(tmp_path, monkeypatch, capsys) -> None:
    path = write(
        tmp_path / "endless.onnx",
        """g (float t) => (float y) { y = Loop <body = b (int64 i, bool c, float v) => (bool co, float w) {
        one = Constant <value_float = 1.0> () w = Add(v, one)
        m = Constant <value_int = 1000000000> () co = Less(i, m) }> (, , t) }""",
    )
    running = threading.Event()
    run = looplift.Session.run

    def told(self, names, feeds):
        running.set()
        return run(self, names, feeds)

    def interrupt() -> None:
        running.wait(60)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(looplift.Session, "run", told)
    threading.Thread(target=interrupt, daemon=True).start()
    assert cli.main(["run", path, "--device", "numpy"]) == 130
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""

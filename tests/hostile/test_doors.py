"""What comes in and goes out by file: prepared tensors, external data, inputs, outputs and names."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import looplift
from hostile.files import every_command, raw, refused, step, write
from looplift import cli
from looplift.runtime.text import visible

TENSORS: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "bytes": (lambda m: raw(m, b"\0" * 9), "9 bytes of data, not 8"),
    "none": (lambda m: raw(m, b""), "0 bytes of data, not 8"),
    "elements": (lambda m: step(m).float_data.append(1), "3 elements of data, not 2"),
    "other field": (lambda m: step(m).int64_data.append(1), "int64_data"),
    "undefined dtype": (lambda m: setattr(step(m), "data_type", 0), "dtype 0"),
    "unknown dtype": (lambda m: setattr(step(m), "data_type", 100), "dtype 100"),
    "negative dim": (lambda m: step(m).dims.append(-1), "negative dim"),
    "huge dim": (lambda m: step(m).dims.append(2**62), "asks for more than"),
    "no name": (lambda m: m.graph.initializer.add(data_type=1, float_data=[1]), "no name"),
    "input dtype": (lambda m: setattr(m.graph.input[1].type.tensor_type, "elem_type", 100), "dtype 100"),
    "input without dtype": (lambda m: setattr(m.graph.input[1].type.tensor_type, "elem_type", 0), "no dtype"),
    "no body": (lambda m: m.graph.node[0].attribute[0].ClearField("g"), "no value of its type|other graphs"),
    "two bodies": (lambda m: m.graph.node[0].attribute.add(name="more", type=5, g=onnx.GraphProto()), "other graphs"),
    "body twice": (lambda m: m.graph.node[0].attribute.append(m.graph.node[0].attribute[0]), "two attributes"),
    "attribute type": (lambda m: setattr(m.graph.node[0].attribute[0], "type", 1), "other|another type"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_lie_are_refused(kind, tmp_path, capsys):
    import re

    change, words = TENSORS[kind]
    path = write(tmp_path, change)
    for command in every_command(tmp_path, path):
        assert re.search(words, refused(capsys, *command))
    assert not (tmp_path / "out").exists()
    assert cli.main(["explain", path]) == 0


def test_small_types_share_their_entries(tmp_path):
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g () => (int4[3] y) { y = Identity(w) }')
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.INT4, [3], [1, -2, 3]))
    assert looplift.Session(model).run(None, {})[0].astype(int).tolist() == [1, -2, 3]


def external(**entries: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensor = step(model)
        tensor.ClearField("float_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)

    return change


EXTERNAL = {
    "good": ({"location": "w.bin", "offset": "4", "length": "8"}, ""),
    "offset": ({"location": "w.bin", "offset": "one"}, "not a number"),
    "negative offset": ({"location": "w.bin", "offset": "-4"}, "not a number"),
    "negative length": ({"location": "w.bin", "length": "-8"}, "not a number"),
    "huge offset": ({"location": "w.bin", "offset": "9" * 30}, "not a number"),
    "end": ({"location": "w.bin", "offset": "8", "length": "8"}, "reaches past its end"),
    "end without length": ({"location": "w.bin", "offset": "8"}, "reaches past its end"),
    "length": ({"location": "w.bin", "length": "4"}, "4 bytes, its shape and dtype 8"),
    "NUL": ({"location": "w\0.bin"}, "no location"),
    "no location": ({"offset": "0"}, "no location"),
    "missing": ({"location": "nothing.bin"}, "is missing"),
    "pipe": ({"location": "pipe"}, "it is a pipe"),
    "folder": ({"location": "."}, "it is a folder"),
    "device": ({"location": "zero"}, "it is a device"),
    "outside": ({"location": "../outside.bin"}, "outside of the model's folder"),
    "absolute": ({"location": "/etc/hostname"}, "outside of the model's folder|is missing"),
    "link": ({"location": "link.bin"}, "outside of the model's folder"),
}


@pytest.mark.parametrize("kind", EXTERNAL)
def test_external_data_is_checked_before_it_is_opened(kind, tmp_path, capsys):
    import re

    entries, words = EXTERNAL[kind]
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    path = write(folder, external(**entries))
    if not words:
        assert looplift.Session(path).run(None, {"n": 1, "x": np.zeros(2, np.float32)})[0].tolist() == [1, 2]
        return
    for command in [["explain", path], *every_command(tmp_path, path)]:
        assert re.search(words, refused(capsys, *command))


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda p: os.symlink("/dev/zero", p), os.mkdir], ids=["pipe", "device", "folder"]
)
def test_a_model_is_a_regular_file(make, tmp_path, capsys):
    path = str(tmp_path / "m.onnx")
    make(path)
    for command in [["explain", path], *every_command(tmp_path, path)]:
        assert "can't read" in refused(capsys, *command)


def header(shape: str, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


INPUTS = {
    "3.6 TiB": header("(1000000000000,)") + bytes(8),
    "negative": header("(-2,)"),
    "objects": header("(2,)", "|O") + bytes(16),
    "structure": header("(2,)", "V3000000000000") + bytes(16),
    "no header": b"nothing",
    "header cut": header("(2,)")[:20],
    "header is code": b"\x93NUMPY\x01\x00" + struct.pack("<H", 20) + b"__import__('os') + 1",
    "deep header": b"\x93NUMPY\x01\x00" + struct.pack("<H", 5000) + b"(" * 5000,
    "too short": header("(2,)") + bytes(4),
    "too long": header("(2,)") + bytes(400),
    "version": b"\x93NUMPY\x09\x00" + bytes(30),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_are_checked_by_their_headers(kind, tmp_path, capsys):
    path, inputs = write(tmp_path), str(tmp_path / "x.npz")
    with zipfile.ZipFile(inputs, "w") as archive:
        archive.writestr("x.npy", INPUTS[kind])
    for command in (["run", path, "--device", "numpy"], ["bench", path], ["verify", path, path]):
        assert "is not an .npz file, or broken" in refused(capsys, *command, "--inputs", inputs)


def test_a_bomb_of_inputs_is_not_unpacked(tmp_path, capsys, monkeypatch):
    from looplift.verification import feeds

    path, inputs = write(tmp_path), str(tmp_path / "x.npz")
    np.savez_compressed(inputs, n=np.array(1), x=np.zeros(1 << 22, np.float32))
    monkeypatch.setattr(feeds, "largest_inputs", lambda: 1 << 20)
    monkeypatch.setattr(feeds, "_array", None)
    assert "unpacks to 16,777,224 bytes" in refused(capsys, "run", path, "--inputs", inputs)


@pytest.mark.parametrize("cut", [0, 1, 30, 60, 100, 150, 200])
def test_broken_archives_are_one_line(cut, tmp_path, capsys):
    path, inputs = write(tmp_path), tmp_path / "x.npz"
    np.savez_compressed(inputs, n=np.array(1), x=np.zeros(2, np.float32))
    content = bytearray(inputs.read_bytes())
    for place in range(cut, min(cut + 30, len(content))):
        content[place] ^= 0x55
    inputs.write_bytes(bytes(content))
    code = cli.main(["run", path, "--device", "numpy", "--inputs", str(inputs)])
    assert code in (0, 2)
    assert capsys.readouterr().err.count("\n") == (1 if code else 0)


class TestOutputs:
    def test_a_link_is_written_through(self, tmp_path):
        path = write(tmp_path)
        (tmp_path / "far").mkdir()
        target, link = tmp_path / "far" / "out.onnx", tmp_path / "link.onnx"
        link.symlink_to(target)
        for _ in range(2):  # dangling, then not
            assert cli.main(["optimize", path, "-o", str(link)]) == 0
            assert link.is_symlink()
            assert onnx.load(target).graph.node[0].op_type == "AddStep"
        assert sorted(file.name for file in (tmp_path / "far").iterdir()) == ["out.onnx"]

    def test_a_file_keeps_its_mode(self, tmp_path):
        path, out = write(tmp_path), tmp_path / "out.onnx"
        out.touch()
        out.chmod(0o600)
        assert cli.main(["optimize", path, "-o", str(out)]) == 0
        assert out.stat().st_mode & 0o777 == 0o600

    def test_pipes_and_devices_are_refused(self, tmp_path, capsys):
        path, pipe = write(tmp_path), str(tmp_path / "pipe")
        os.mkfifo(pipe)
        for out, words in ((pipe, "it is a pipe"), ("/dev/null", "it is a device"), (str(tmp_path), "it is a folder")):
            assert words in refused(capsys, "optimize", path, "-o", out)
            assert words in refused(capsys, "optimize", path, "-o", str(tmp_path / "o"), "--json", out)
            assert words in refused(capsys, "explain", path, "--html", out)
            assert words in refused(capsys, "run", path, "--output", out)
            assert words in refused(capsys, "verify", path, path, "--counterexample", out)
        assert not (tmp_path / "o").exists()

    def test_no_output_is_another_or_an_input(self, tmp_path, capsys):
        path, out, npz = write(tmp_path), str(tmp_path / "out"), str(tmp_path / "x.npz")
        np.savez(npz, n=np.array(3), x=np.zeros(2, np.float32))
        os.link(path, tmp_path / "hard.onnx")
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        for command in (
            ["optimize", path, "-o", out, "--json", out],
            ["optimize", path, "-o", out, "--json", path],
            ["optimize", path, "-o", out, "--json", str(tmp_path / "hard.onnx")],
            ["optimize", path, "-o", npz, "--verify", "--inputs", npz],
            ["optimize", path, "-o", out, "--verify", "--counterexample", out],
            ["explain", path, "--html", path],
            ["run", path, "--output", path],
            ["run", path, "--inputs", npz, "--output", npz],
            ["verify", path, path, "--counterexample", path],
            ["verify", path, path, "--inputs", npz, "--counterexample", npz],
        ):
            assert "can't write" in (text := refused(capsys, *command)) or "are the same file" in text
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before

    def test_weights_are_not_overwritten(self, tmp_path, capsys):
        (tmp_path / "w.bin").write_bytes(np.arange(2, dtype=np.float32).tobytes())
        path = write(tmp_path, external(location="w.bin"))
        out = str(tmp_path / "out.onnx")
        assert "the command reads" in refused(capsys, "optimize", path, "-o", str(tmp_path / "w.bin"))
        assert "the command reads" in refused(capsys, "optimize", path, "-o", out, "--json", str(tmp_path / "w.bin"))
        assert "the same file" in refused(capsys, "optimize", path, "-o", out, "--json", f"{out}.data")
        assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "w.bin"]

    def test_the_example_that_is_replayed_is_kept(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        np.savez("counterexample.npz", n=np.array(3), x=np.zeros(2, np.float32))
        first = write(tmp_path)
        (tmp_path / "b").mkdir()
        other = write(tmp_path / "b", lambda m: step(m).float_data.__setitem__(0, 0.2))
        assert cli.main(["verify", first, other, "--inputs", "counterexample.npz", "--cases", "0"]) == 1
        assert sorted(file.name for file in tmp_path.glob("*.npz")) == ["counterexample-2.npz", "counterexample.npz"]


STRANGE = "a\x1b[31mb\u202ec\nd\x9be"


class TestNames:
    def model(self, folder: Path) -> str:
        def change(model: onnx.ModelProto) -> None:
            node = model.graph.node[0]
            node.name = STRANGE
            for names in (node.output, [model.graph.output[0]]):
                if isinstance(names, list):
                    names[0].name = STRANGE
                else:
                    names[0] = STRANGE

        return write(folder, change)

    def test_control_characters_are_shown(self, tmp_path, capsys):
        path, page, told = self.model(tmp_path), tmp_path / "p.html", tmp_path / "r.json"
        out = str(tmp_path / "o.onnx")
        for command in (
            ["explain", path],
            ["explain", path, "--json"],
            ["explain", path, "--html", str(page)],
            ["optimize", path, "-o", out, "--json", str(told)],
            ["run", path, "--device", "numpy"],
            ["verify", path, out, "--cases", "3"],
        ):
            assert cli.main(command) == 0
        for text in (capsys.readouterr().out, page.read_text(), told.read_text()):
            assert visible(text.replace("\n", "")) == text.replace("\n", "")
            assert "1b[31mb" in text
        assert json.loads(told.read_text())["findings"][0]["node"] == STRANGE

    def test_errors_show_them_too(self, tmp_path):
        path = write(tmp_path, lambda m: m.graph.node[0].input.__setitem__(2, STRANGE))
        with pytest.raises(looplift.LoopliftError) as caught:
            looplift.optimize(path)
        assert visible(str(caught.value)) == str(caught.value)

    def test_what_is_readable_stays(self):
        for text in ("plain", "Größe ÷ 2", "輸入", "a…b → c"):
            assert visible(text) == text


class TestStandardError:
    def test_other_libraries_are_not_heard(self, tmp_path):
        code = (
            "import os, sys, warnings, logging, looplift.cli.devices as d\n"
            "from looplift import cli, messages\n"
            "def run(options):\n"
            "    os.write(2, b'from C\\n'); print('python', file=sys.stderr); warnings.warn('w'); logging.error('l')\n"
            "    messages.complain('ours'); return 2\n"
            "d.run = run\n"
            "sys.exit(cli.main(['devices', *sys.argv[1:]]))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, "looplift: error: ours\n")
        done = subprocess.run([sys.executable, "-c", code, "--debug"], capture_output=True, text=True, check=False)
        assert done.stderr.count("\n") > 4

    @pytest.mark.parametrize("debug", [False, True])
    def test_what_nobody_foresaw_is_one_line_and_exit_code_4(self, debug, tmp_path, capsys, monkeypatch):
        from looplift.cli import explain

        def broken(*_arguments, **_others):
            raise ZeroDivisionError("of a pass")

        monkeypatch.setattr(explain, "explain", broken)
        assert cli.main(["explain", write(tmp_path), *(["--debug"] if debug else [])]) == 4
        text = capsys.readouterr().err
        assert "ZeroDivisionError: of a pass; please report it" in text
        assert ("Traceback" in text) == debug
        assert debug or text.count("\n") == 1


def test_an_interrupt_while_importing_is_no_traceback():
    code = (
        "import sys, looplift.cli\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'onnx': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.exit(looplift.cli.main(['explain', 'nothing.onnx']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "a", "b", "--cases", "-5"],
        ["verify", "a", "b", "--seconds", "-1"],
        ["verify", "a", "b", "--seconds", "nan"],
        ["verify", "a", "b", "--seed", "-1"],
        ["verify", "a", "b", "--ulp", "-1"],
        ["run", "a", "--seed", "-3"],
        ["bench", "a", "--repeat", "0"],
        ["bench", "a", "--size", "-5"],
        ["bench", "a", "--trips", "9" * 30],
    ],
)
def test_ranges_are_checked_when_options_are_read(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "is not a " in capsys.readouterr().err

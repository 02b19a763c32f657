"""A small model in a file, with something changed in it, and how commands end on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

from looplift import cli

LOOP = """<ir_version: 10, opset_import: ["" : 21]> g (int64 n, float[2] x) => (float[2] y, float[N, 2] ys)
<float[2] s = {0.1, 0.3}> { [clock] y, ys = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
  co = Identity(c) w = Add(v, s) e = Identity(w) }> (n, , x) }"""


def write(folder: Path, change: Callable[[onnx.ModelProto], object] = lambda _: None) -> str:
    model = onnx.parser.parse_model(LOOP)
    change(model)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def step(model: onnx.ModelProto) -> onnx.TensorProto:
    return model.graph.initializer[0]


def raw(model: onnx.ModelProto, content: bytes) -> None:
    step(model).ClearField("float_data")
    step(model).raw_data = content


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one line with which a command ends."""
    capsys.readouterr()
    assert cli.main(list(arguments)) == code
    text = capsys.readouterr().err
    assert text.startswith("looplift: error: ")
    assert text.count("\n") == 1
    assert "should not happen" not in text
    return text


def every_command(folder: Path, path: str) -> list[list[str]]:
    out = str(folder / "out")
    return [
        ["optimize", path, "-o", out],
        ["optimize", path, "-o", out, "--target", "standard", "--verify"],
        ["verify", path, path],
        ["run", path, "--device", "numpy"],
        ["bench", path, "--trips", "3"],
    ]

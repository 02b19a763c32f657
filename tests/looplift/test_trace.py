"""`optimize --trace`: a file of ONNX text for each pass that changed the model."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
from helpers import model

from looplift.cli import main

GROWING = """agraph (int64 n, float[2] x, float[2] s) => (float[2] y, float[k, 2] rows) {
  t = Constant <value = bool {1}> ()
  y, rows = Loop <body = body (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] u) {
    d = Identity (c)
    u = Identity (v)
    w = Add (v, s)
  }> (n, t, x)
}"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "m.onnx"
    onnx.save(onnx.ModelProto.FromString(_serialized(GROWING)), file)
    return file


def _serialized(text: str) -> bytes:
    import onnx_ir as ir

    return ir.to_proto(model(text)).SerializeToString()


def test_writes_the_model_after_each_pass_that_changed_it(path, tmp_path, capsys):
    folder = tmp_path / "trace"
    assert main(["optimize", str(path), "-o", str(tmp_path / "o.onnx"), "--trace", str(folder)]) == 0
    names = sorted(file.name for file in folder.iterdir())
    assert [name.partition("-")[0] for name in names] == [f"{k + 1:03}" for k in range(len(names))]
    assert any("LiftRecurrences" in name for name in names)
    assert names[-1].endswith("-finish.txt")
    steps = [onnx.parser.parse_model((folder / name).read_text()) for name in names]
    kinds = [[node.op_type for node in step.graph.node] for step in steps]
    assert "Loop" in kinds[0]
    assert "Loop" not in kinds[-1]
    assert kinds[-1] == [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]


def test_a_folder_that_cannot_be_made_is_one_line(path, tmp_path, capsys):
    assert main(["optimize", str(path), "-o", str(tmp_path / "o.onnx"), "--trace", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "o.onnx").exists()

"""Text of models that is not UTF-8: it is read as bytes, which nothing expects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from hostile.files import every_command, refused, step, write
from looplift import cli

TEXTS: dict[str, Callable[[onnx.ModelProto], object]] = {
    "graph": lambda m: setattr(m.graph, "name", "marker"),
    "model": lambda m: setattr(m, "producer_name", "marker"),
    "node": lambda m: setattr(m.graph.node[0], "name", "marker"),
    "value": lambda m: m.graph.node[0].attribute[0].g.node[0].output.append("marker"),
    "op": lambda m: setattr(m.graph.node[0].attribute[0].g.node[0], "op_type", "marker"),
    "dim": lambda m: setattr(m.graph.output[1].type.tensor_type.shape.dim[0], "dim_param", "marker"),
    "tensor": lambda m: setattr(step(m), "doc_string", "marker"),
    "metadata": lambda m: m.metadata_props.add(key="marker", value="x"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_text_that_is_not_utf8_is_refused(kind, tmp_path, capsys):
    path = Path(write(tmp_path, TEXTS[kind]))
    path.write_bytes(path.read_bytes().replace(b"marker", b"mar\xffer"))
    for command in every_command(tmp_path, str(path)):
        assert "not UTF-8" in refused(capsys, *command)
    assert cli.main(["explain", str(path)]) == 0
    assert "not UTF-8" in capsys.readouterr().out

"""Traps by hand: text that is not UTF-8, which is read as bytes, very long names, many axes, references to nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
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


AXES = ",".join("1" * 70)


def many_axes(model: onnx.ModelProto) -> None:
    del step(model).dims[:]
    step(model).dims.extend([1] * 70 + [2])


TRAPS: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "reference": (
        lambda m: setattr(m.graph.node[0].attribute[0], "ref_attr_name", "x"),
        "of a function, but is in none",
    ),
    "inner reference": (
        lambda m: m.graph.node[0].attribute[0].g.node[1].attribute.add(name="a", type=1, ref_attr_name="x"),
        "of a function, but is in none",
    ),
    "long name": (lambda m: setattr(m.graph.node[0], "name", "x" * 70_000), "name of more than 65,536 characters"),
    "long dim": (
        lambda m: setattr(m.graph.output[1].type.tensor_type.shape.dim[0], "dim_param", "x" * 70_000),
        "more than 65,536 characters",
    ),
    "many axes": (many_axes, "has 71 axes; at most"),
}


@pytest.mark.parametrize("kind", TRAPS)
def test_traps_are_refused(kind, tmp_path, capsys):
    change, words = TRAPS[kind]
    path = write(tmp_path, change)
    for command in every_command(tmp_path, path):
        assert words in refused(capsys, *command)
    assert cli.main(["explain", path]) == 0


def test_long_documentation_is_none(tmp_path):
    path = write(tmp_path, lambda m: setattr(m.graph, "doc_string", "x" * 70_000))
    assert cli.main(["optimize", path, "-o", str(tmp_path / "out")]) == 0


def test_an_input_of_more_axes_than_numpy_has_is_not_made_up(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (int64 n, float[{AXES}] x) => (float[{AXES}] y) {{
            y = Loop <body = b (int64 i, bool c, v) => (bool d, w) {{ d = Identity (c) w = Add (v, x) }}> (n, , x) }}"""
    )
    path.write_bytes(model.SerializeToString())
    assert cli.main(["optimize", str(path), "-o", str(tmp_path / "out")]) == 0
    for command in (["verify", str(path), str(path)], ["run", str(path)], ["bench", str(path)]):
        assert "can't make up input 'x' of 70 axes" in refused(capsys, *command)


def test_a_circle_of_links_is_no_output(tmp_path, capsys):
    path, one, other = write(tmp_path), tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    assert "a link that leads back to itself" in refused(capsys, "optimize", path, "-o", str(one))
    assert one.is_symlink()

"""Files: what is not ONNX is refused in one line; weights beside the model; whole files or none."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from looplift import interop, storage
from looplift.runtime.errors import LoopliftError

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[2000] x) => (float[2000] y) { y = Add(x, w) }"""


def with_weight() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(2000, dtype=np.float32), "w"))
    return model


def save_external(folder: Path) -> Path:
    path = folder / "in.onnx"
    onnx.save(with_weight(), path, save_as_external_data=True, location="weights.bin")
    return path


def weight_of(model: onnx.ModelProto) -> np.ndarray:
    return onnx.numpy_helper.to_array(model.graph.initializer[0])


@pytest.mark.parametrize(
    "content", [b"", b"hello, this is text\n", b"\x08\x08", with_weight().SerializeToString()[:-40]]
)
@pytest.mark.parametrize("name", ["a.onnx", "a.txt", "a.json", "a.textproto", "a.onnxtxt"])
def test_refuses_what_is_not_onnx(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoopliftError, match=rf"^[^\n]*{name}[^\n]*$"):
        interop.read(tmp_path / name)


def test_refuses_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.onnx"):
        with pytest.raises(LoopliftError, match=r"^can't read [^\n]*$"):
            interop.read(str(path))


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_refuses_damaged_external_data(tmp_path: Path, damage: str) -> None:
    path = save_external(tmp_path)
    data = tmp_path / "weights.bin"
    if damage == "missing":
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(
        LoopliftError, match=rf"^[^\n]*weights.bin[^\n]*{damage if damage == 'missing' else 'cut short'}|missing"
    ):
        interop.read(path)


def test_a_path_gives_a_proto_with_its_data_inside(tmp_path: Path) -> None:
    source = interop.read(save_external(tmp_path))
    model = interop.to_ir(source)
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)
    for proto in (interop.from_ir(model, source), interop.unchanged(source)):
        assert not list(storage.external_tensors(proto))
        np.testing.assert_array_equal(weight_of(proto), np.arange(2000, dtype=np.float32))


def test_writes_data_beside_the_model_even_over_its_own_input(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    (tmp_path / "in.onnx.data").write_bytes((tmp_path / "weights.bin").read_bytes())
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "in.onnx.data"
    path.write_bytes(proto.SerializeToString())

    model = interop.to_ir(interop.read(path))
    data = storage.write_with_data(model, path)

    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.onnx", "in.onnx.data", "weights.bin"]
    assert data.name == "in.onnx.data"
    np.testing.assert_array_equal(weight_of(onnx.load(path)), np.arange(2000, dtype=np.float32))


def test_what_does_not_fit_into_one_file_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_external(tmp_path)
    monkeypatch.setattr(storage, "LARGEST_PROTO", 1000)
    source = interop.read(path)
    for proto in (interop.from_ir(interop.to_ir(source), source), interop.unchanged(source)):
        assert [tensor.name for tensor in storage.external_tensors(proto)] == ["w"]


def test_writes_nothing_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.onnx"
    path.write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        storage.write_bytes(b"after", path)
    monkeypatch.undo()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_external_tensors_of_attributes_move_into_the_model(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) {
        w = Constant <value = float[3] {1, 2, 3}> () y = Add(x, w) }"""
    )
    tensor = model.graph.node[0].attribute[0].t
    tensor.raw_data = np.array([1, 2, 3], np.float32).tobytes()
    tensor.ClearField("float_data")
    path = tmp_path / "in.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0, convert_attribute=True)
    assert list(storage.external_tensors(onnx.load(path, load_external_data=False)))

    out = tmp_path / "elsewhere" / "out.onnx"
    out.parent.mkdir()
    storage.write_with_data(interop.to_ir(interop.read(path)), out)
    loaded = onnx.load(out)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(loaded.graph.node[0].attribute[0].t), [1, 2, 3])

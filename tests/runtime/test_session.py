"""Session: the model kinds it takes, its inputs and outputs, and what it checks."""

import os
import threading

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from sessions import assert_same, f32, i64, model

from looplift.runtime import LoopliftError, Session, ValueInfo

TEXT = "g (float[N, 2] x, string[K] s) => (float[N, 2] y, string[K] t) { y = Neg(x) t = Identity(s) }"
X = f32([[1, 2], [3, 4]])
WORDS = np.array(["a", "b"])


def test_every_kind_of_model(tmp_path):
    proto = model(TEXT)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    for given in (proto, ir.from_proto(proto), path, str(path)):
        assert_same(Session(given, "numpy").run(["y"], {"x": X, "s": WORDS}), [-X])


def test_inputs_and_outputs_are_described():
    session = Session(model(TEXT), "numpy")
    assert session.get_inputs() == [
        ValueInfo("x", "tensor(float)", ("N", 2)),
        ValueInfo("s", "tensor(string)", ("K",)),
    ]
    assert [info.name for info in session.get_outputs()] == ["y", "t"]
    assert session.device == "numpy (asked for)"


def test_outputs_are_chosen_by_name():
    session = Session(model(TEXT), "numpy")
    t, y = session.run(["t", "y"], {"x": X, "s": WORDS})
    assert t.dtype == object
    assert t.tolist() == ["a", "b"]
    assert_same(y, -X)
    with pytest.raises(LoopliftError, match="no output 'z'; it has y, t"):
        session.run(["z"], {"x": X, "s": WORDS})


@pytest.mark.parametrize(
    ("feeds", "why"),
    [
        ({"x": X}, r"the input 's' \(tensor\(string\)\) is missing"),
        ({"x": X, "s": WORDS, "w": X}, "no input 'w'; it has s, x"),
        ({"x": X.astype(np.float64), "s": WORDS}, r"'x' has dtype float64; the model wants tensor\(float\)"),
        ({"x": X[0], "s": WORDS}, r"'x' has shape \[2\]; the model wants \[N, 2\]"),
        ({"x": X.reshape(1, 4), "s": WORDS}, r"'x' has shape \[1, 4\]; the model wants \[N, 2\]"),
        ({"x": [X], "s": WORDS}, "'x' is a list; the model wants an array"),
        ({"x": None, "s": WORDS}, "'x' is a NoneType"),
        ({"x": X.astype("datetime64[s]"), "s": WORDS}, r"'x' has dtype datetime64\[s\]"),
    ],
)
def test_feeds_that_do_not_fit(feeds, why):
    with pytest.raises(LoopliftError, match=why) as error:
        Session(model(TEXT), "numpy").run(None, feeds)
    assert "\n" not in str(error.value)


def test_a_sequence_is_a_list_of_arrays():
    session = Session(model("g (seq(float) s) => (int64 n) { n = SequenceLength(s) }"), "numpy")
    assert_same(session.run(None, {"s": [f32(1), f32(2)]}), [i64(2)])
    with pytest.raises(LoopliftError, match=r"wants seq\(tensor\(float\)\), a list"):
        session.run(None, {"s": f32([1, 2])})
    with pytest.raises(LoopliftError, match=r"'s\[\]' has dtype int64"):
        session.run(None, {"s": [i64(1)]})


def test_what_is_not_a_model_is_refused(tmp_path):
    text = tmp_path / "notes.onnx"
    text.write_text("not a model")
    empty = tmp_path / "empty.onnx"
    empty.touch()
    for path in (text, tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(LoopliftError, match="is not a readable ONNX model"):
            Session(path, "numpy")
    with pytest.raises(LoopliftError, match="there is no device 'gpu'"):
        Session(model(TEXT), "gpu")


def test_outputs_share_no_memory_with_feeds_or_constants():
    text = """g (float[2] x) => (float[2] x2, float[2] c2, float[2] c3, float v) <float[2] c = {1, 2}> {
        x2 = Identity(x)
        c2 = Identity(c)
        c3 = Identity(c)
        first = Constant <value_int = 0> ()
        v = Gather(x, first)
    }"""
    proto = model(text)
    session = Session(proto, "numpy")
    feed = f32([5, 6])
    for _ in range(2):
        got = session.run(None, {"x": feed})
        assert_same(got, [f32([5, 6]), f32([1, 2]), f32([1, 2]), f32(5)])
        for array in got:
            array += 1
        assert_same(feed, f32([5, 6]))


def test_external_data_is_read_where_it_lies(tmp_path):
    proto = model("g (float[N] x) => (float[N] y) { y = Add(x, w) }")
    weights = np.arange(1000, dtype=np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    session = Session(path, "numpy")
    assert_same(session.run(None, {"x": np.ones(1000, np.float32)}), [weights + 1])
    (constant,) = [v for v in session._runner.program.source.globals.values() if isinstance(v, np.ndarray)]
    assert not constant.flags.owndata
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(LoopliftError):
        Session(path, "numpy")


def test_a_session_runs_in_several_threads():
    text = """g (int64 M, float v) => (float y) {
        on = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool c, float p) => (bool c, float q) { q = Add(p, v) }> (M, on, v)
    }"""
    session = Session(model(text), "numpy")
    results = {}

    def work(n: int) -> None:
        results[n] = session.run(None, {"M": i64(2000), "v": f32(n)})[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: float(value) for n, value in results.items()} == {n: 2001.0 * n for n in range(4)}


ADD_STEP = """<ir_version: 10, opset_import: ["": 17, "ai.looplift": 1]>
g (int64 M, float[N] v, float[N] s) => (float[N] y, float[R, N] z) { y, z = ai.looplift.AddStep(M, "", v, s) }"""


@pytest.mark.parametrize("definitions", [False, True])
def test_custom_ops_run_by_kernel_or_by_definition(definitions):
    session = Session(onnx.parser.parse_model(ADD_STEP), "numpy", definitions=definitions)
    assert ("loop_body" in session.source) == definitions
    y, z = session.run(None, {"M": i64(3), "v": f32([1, 2]), "s": f32([0.5, 1])})
    assert_same(y, f32([2.5, 5]))
    assert_same(z, f32([[1.5, 3], [2, 4], [2.5, 5]]))


def test_a_kernel_is_not_asked_for_outputs_that_nothing_reads():
    text = ADD_STEP.replace(", float[R, N] z) {", ") {").replace("y, z = ", "y, z = ")
    session = Session(onnx.parser.parse_model(text), "numpy")
    (y,) = session.run(None, {"M": i64(10**9), "v": f32([0]), "s": f32([1])})
    assert_same(y, f32([2**24]))


def test_auto_takes_numpy_where_nothing_needs_a_device():
    assert Session(model(TEXT)).device == "numpy (no node has a WebGPU kernel)"


CHAIN = """<ir_version: 10, opset_import: ["": 17, "ai.looplift": 1]>
g (int64 M, float[N] v, float[N] s, bool b) => (float[N] y, float[R, N] z, float[N] u, float[N] q, seq(float[N]) both) {
    t, z = ai.looplift.AddStep(M, "", v, s)
    y, w = ai.looplift.AddStep(M, "", t, s)
    on = Constant <value = bool {1}> ()
    same = Identity(y)
    u = Loop <body = l (int64 i, bool c, float[N] p) => (bool c, float[N] r) {
        e, f = ai.looplift.AddStep(M, "", p, y)
        r = Add(e, t)
    }> (M, on, same)
    q = If(b) <then_branch = th () => (float[N] o) { o, o2 = ai.looplift.AddStep(M, "", y, s) },
               else_branch = el () => (float[N] o3) { o3 = Identity(t) }>
    both = SequenceConstruct(y, t)
}"""


@pytest.mark.webgpu
@pytest.mark.parametrize("trips", [0, 3])
@pytest.mark.parametrize("branch", [False, True])
def test_webgpu_gives_what_numpy_gives(trips, branch):
    proto = onnx.parser.parse_model(CHAIN)
    try:
        session = Session(proto, "webgpu")
    except LoopliftError as error:
        if os.environ.get("LOOPLIFT_REQUIRE_WEBGPU") == "1":
            raise
        pytest.skip(str(error))
    assert session.device.startswith("webgpu: ")
    feeds = {"M": i64(trips), "v": f32([1, 2]), "s": f32([0.5, 1]), "b": np.array(branch)}
    assert_same(session.run(None, feeds), Session(proto, "numpy").run(None, feeds))
    assert "kernel" in session.source
    assert_same(session.run(["y"], feeds), Session(proto, "numpy").run(["y"], feeds))


@pytest.mark.parametrize("data", [b"", b"12", b"1234", bytes(16)])
def test_an_initializer_whose_data_does_not_fit_its_shape(data):
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (y) { y = Add(x, w) }')
    proto.graph.initializer.append(
        onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3], raw_data=data)
    )
    with pytest.raises(LoopliftError, match="the data of tensor 'w' does not fit its shape"):
        Session(proto, device="numpy").run(None, {"x": np.ones(3, np.float32)})

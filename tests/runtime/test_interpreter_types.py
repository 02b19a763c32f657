"""Every element type through Loop and Scan; sequences and optionals as carried values; SequenceMap."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from sessions import assert_same, f32, i64, in_onnxruntime, model, run

from looplift.runtime import LoopliftError, Session

VALUES = {
    "bool": np.array([True, False]),
    "string": np.array(["ab", ""], dtype=object),
    "complex64": np.array([1 + 2j, np.nan], np.complex64),
    "float16": np.array([1.5, np.inf], np.float16),
    "bfloat16": np.array([1.5, np.nan], ml_dtypes.bfloat16),
    "double": np.array([0.1, -0.0]),
    "int8": np.array([-128, 127], np.int8),
    "uint64": np.array([2**64 - 1, 0], np.uint64),
    "float8e4m3fn": np.array([1.5, np.nan], ml_dtypes.float8_e4m3fn),
    "float8e5m2": np.array([1.5, np.inf], ml_dtypes.float8_e5m2),
    "int4": np.array([-8, 7], ml_dtypes.int4),
    "uint4": np.array([15, 0], ml_dtypes.uint4),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_type_pass_through(kind, rank):
    value = VALUES[kind] if rank else VALUES[kind][:1].reshape(())
    shape = "[N]" if rank else ""
    text = f"""g (int64 M, {kind}{shape} v) => ({kind}{shape} y, {kind} z) {{
        on = Constant <value = bool {{1}}> ()
        y, z = Loop <body = b (int64 i, bool c, {kind}{shape} p) => (bool c, {kind}{shape} q, {kind}{shape} q) {{
            q = Identity(p)
        }}> (M, on, v)
    }}"""
    proto = model(text, 21, 10)
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    for trips in (0, 2):
        y, z = Session(proto, "numpy").run(None, {"M": i64(trips), "v": value})
        for got, want in ((y, value), (z, np.stack([value] * 2)[:trips])):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            assert got.tobytes() == want.tobytes() if kind != "string" else got.tolist() == want.tolist()


@pytest.mark.parametrize("kind", VALUES)
def test_scan_reads_and_stacks_every_type(kind):
    text = f"""g ({kind}[T] x) => ({kind}[T] z) {{
        z = Scan <num_scan_inputs = 1, scan_input_directions = [1], body = b ({kind} e) => ({kind} e) {{ }}> (x)
    }}"""
    (z,) = Session(model(text, 21, 10), "numpy").run(None, {"x": VALUES[kind]})
    want = VALUES[kind][::-1]
    assert z.dtype == want.dtype
    assert z.tolist() == want.tolist() if kind == "string" else z.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "double", "int8", "uint16", "uint64"])
def test_arithmetic_keeps_its_type_and_rounds_at_every_step(kind):
    dtype = model(f"g ({kind} x) => ({kind} x) {{ }}").graph.input[0].type.tensor_type.elem_type
    numpy_type = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    text = f"""g (int64 M, {kind} v, {kind} s) => ({kind} y, {kind}[R] z) {{
        on = Constant <value = bool {{1}}> ()
        y, z = Loop <body = b (int64 i, bool c, {kind} p) => (bool c, {kind} q, {kind} q) {{
            q = Add(p, s)
        }}> (M, on, v)
    }}"""
    v, s = np.array(3, numpy_type), np.array(0.1 if np.array(0.5, numpy_type) else 77, numpy_type)
    want = [v]
    for _ in range(100):
        want.append(np.asarray(want[-1] + s, numpy_type))
    y, z = run(model(text), M=i64(100), v=v, s=s)
    assert_same([y, z], [want[-1], np.stack(want[1:])])


APPEND = """g (int64 M, float v) => (seq(float) y, int64 n) {
    on = Constant <value = bool {1}> ()
    empty = SequenceEmpty <dtype = 1> ()
    y = Loop <body = b (int64 i, bool c, seq(float) p) => (bool c, seq(float) q) {
        f = Cast <to = 1> (i)
        x = Add(f, v)
        q = SequenceInsert(p, x)
    }> (M, on, empty)
    n = SequenceLength(y)
}"""


def test_a_sequence_grows():
    assert_same(run(APPEND, M=i64(3), v=f32(0.5)), [[f32(0.5), f32(1.5), f32(2.5)], i64(3)])
    assert_same(run(APPEND, M=i64(0), v=f32(0.5)), [[], i64(0)])


def test_a_sequence_grows_in_linear_time():
    session = Session(model(APPEND), "numpy")
    assert "append(" in session.source
    assert len(session.run(["y"], {"M": i64(50_000), "v": f32(0)})[0]) == 50_000


def test_a_sequence_that_something_else_holds_is_not_grown_in_place():
    text = """g (int64 M, float v, seq(float) start) => (seq(float) start2, seq(float) y, seq(float) z) {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, seq(float) p, seq(float) o) => (bool c, seq(float) q, seq(float) p) {
            q = SequenceInsert(p, v)
        }> (M, on, start, start)
        start2 = Identity(start)
    }"""
    start = [f32(9)]
    got = run(text, M=i64(2), v=f32(1), start=start)
    assert_same(got, [[f32(9)], [f32(9), f32(1), f32(1)], [f32(9), f32(1)]])
    assert len(start) == 1
    alone = text.replace(", seq(float) o)", ")").replace(", seq(float) p) {", ") {").replace("start, start)", "start)")
    alone = alone.replace("y, z = Loop", "y = Loop").replace(", seq(float) z)", ")")
    assert_same(run(alone, M=i64(2), v=f32(1), start=start), [[f32(9)], [f32(9), f32(1), f32(1)]])
    assert len(start) == 1


def test_an_optional_state_that_is_empty_at_first():
    text = """g (int64 M, float v) => (float y) {
        on = Constant <value = bool {1}> ()
        none = Optional <type = float> ()
        o = Loop <body = b (int64 i, bool c, optional(float) p) => (bool c, optional(float) q) {
            has = OptionalHasElement(p)
            x = If(has) <then_branch = t () => (float e) { e = OptionalGetElement(p) },
                         else_branch = f () => (float z) { z = Identity(v) }>
            d = Add(x, x)
            q = Optional(d)
        }> (M, on, none)
        y = OptionalGetElement(o)
    }"""
    proto = model(text.replace("<type = float>", ""))
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("type", kind))
    assert_same(run(proto, M=i64(3), v=f32(1)), [f32(8)])
    with pytest.raises(LoopliftError, match="the optional has no element"):
        run(proto, M=i64(0), v=f32(1))


def test_optional_inputs_and_outputs_of_a_model():
    proto = model(
        "g (optional(float) x) => (bool has, optional(float) y) { has = OptionalHasElement(x) y = Identity(x) }"
    )
    assert_same(run(proto, x=None), [np.array(False), None])
    assert_same(run(proto, x=f32(1)), [np.array(True), f32(1)])


def test_sequence_ops():
    text = """g (float[N] x, int64 at) => (float[A] z, float[B] e, float[C] rest, int64 n, float[D] joined, float st) {
        two = Constant <value = int64 {2}> ()
        parts = SplitToSequence(x, two)
        e = SequenceAt(parts, at)
        left = SequenceErase(parts, at)
        n = SequenceLength(left)
        rest = ConcatFromSequence <axis = 0> (left)
        more = SequenceInsert(parts, e, at)
        joined = ConcatFromSequence <axis = 0> (more)
        pair = SequenceConstruct(e, e)
        st = ConcatFromSequence <axis = 0, new_axis = 1> (pair)
        z = SequenceAt(pair, at)
    }"""
    x = np.arange(5, dtype=np.float32)
    proto = model(text)
    proto.graph.output[5].type.tensor_type.ClearField("shape")
    got = run(proto, x=x, at=i64(-1))
    want = [f32([4]), f32([4]), x[:4], i64(2), f32([0, 1, 2, 3, 4, 4]), f32([[4], [4]])]
    assert_same(got, want)


@pytest.mark.parametrize("at", [3, -4])
def test_a_position_outside_a_sequence(at):
    text = "g (seq(float) s, int64 at) => (float e) { e = SequenceAt(s, at) }"
    with pytest.raises(LoopliftError, match=f"position {at} is out of range for a sequence of 3"):
        run(text, s=[f32(1)] * 3, at=i64(at))


def test_sequence_map_takes_sequences_and_tensors():
    text = """g (seq(float[N]) a, seq(float[N]) b, float s) => (seq(float[N]) y, seq(float[N]) z) {
        y, z = SequenceMap <body = f (float[N] p, float[N] q, float k) => (float[N] r, float[N] p) {
            t = Add(p, q)
            r = Mul(t, k)
        }> (a, b, s)
    }"""
    a, b = [f32([1]), f32([2, 3])], [f32([10]), f32([20, 30])]
    assert_same(run(text, a=a, b=b, s=f32(2)), [[f32([22]), f32([44, 66])], a])
    assert_same(run(text, a=[], b=[], s=f32(2)), [[], []])
    with pytest.raises(LoopliftError, match=r"different lengths: \[2, 1\]"):
        run(text, a=a, b=b[:1], s=f32(2))


def test_mean_takes_operands_that_broadcast_past_the_first():
    (got,) = run("g (float x, float[2] y) => (float[2] z) { z = Mean(x, y) }", 8, x=np.float32(1), y=f32(2, 4))
    assert_same(got, f32(1.5, 2.5))


@pytest.mark.parametrize("op", ["Bernoulli", "RandomNormalLike", "RandomUniformLike", "ReduceLogSumExp", "Softsign"])
def test_ops_of_one_tensor_take_a_scalar(op):
    (got,) = run(f"g (float x) => (float y) {{ y = {op}(x) }}", 18, x=np.float32(0.5))
    assert got.shape == ()
    assert got.dtype == np.float32
    if "Random" not in op and op != "Bernoulli":
        assert_same(got, np.float32({"Softsign": 1 / 3, "ReduceLogSumExp": 0.5}[op]))


@pytest.mark.parametrize(
    ("data", "indices", "batch"), [((0, 3), (0, 1), 1), ((2, 3, 4), (2, 5, 2), 1), ((3, 4), (2, 0), 0)]
)
@pytest.mark.parametrize("kind", ["float", "string"])
def test_gather_nd_of_any_extents(data, indices, batch, kind):
    text = f"""g ({kind}[{",".join("abc"[: len(data)])}] x, int64[{",".join("def"[: len(indices)])}] i) => ({kind}[] y) {{
        y = GatherND<batch_dims = {batch}>(x, i)
    }}""".replace("[] y", f"[{','.join('pqrs'[: len(indices) - 1 + len(data) - batch - indices[-1]])}] y")
    x = (
        np.arange(np.prod(data))
        .reshape(data)
        .astype(np.float32 if kind == "float" else str)
        .astype(np.float32 if kind == "float" else object)
    )
    feeds = {"x": x, "i": np.random.default_rng(0).integers(-3, 3, indices)}
    proto = model(text)
    assert_same(run(proto, **feeds), in_onnxruntime(proto, feeds))

"""Where ONNX Runtime or onnx.reference differ from us: who is wrong, and the rule that decides.

Each test holds our result to the rule, and shows the other engine's, so that a new release of it is noticed.
"""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from sessions import assert_same, f32, i64, in_onnxruntime, model, run

from looplift.runtime import LoopliftError

STACK = """g (int64 M, float[A, B] v) => (float[R, A, B] z) {
    on = Constant <value = bool {1}> ()
    y, z = Loop <body = b (int64 i, bool c, float[A, B] p) => (bool c2, float[A, B] q, float[A, B] r) {
        c2 = Identity(c)
        q = Add(p, p)
        r = Identity(q)
    }> (M, on, v)
}"""


def in_reference(proto: onnx.ModelProto, **feeds):
    return ReferenceEvaluator(proto).run(None, feeds)


def test_reference_stacks_rows_along_an_existing_axis():
    """Loop: the scan outputs are concatenated along a *new* first axis. onnx.reference is wrong."""
    feeds = {"M": i64(2), "v": np.ones((2, 3), np.float32)}
    assert run(STACK, **feeds)[0].shape == (2, 2, 3)
    assert in_reference(model(STACK), **feeds)[0].shape == (4, 3)


def test_reference_fails_on_zero_iterations():
    """Loop: M = 0 runs nothing; scan outputs have no rows. onnx.reference is wrong."""
    feeds = {"M": i64(0), "v": np.ones((2, 3), np.float32)}
    assert run(STACK, **feeds)[0].shape == (0, 2, 3)
    with pytest.raises(Exception):  # noqa: B017, PT011
        in_reference(model(STACK), **feeds)


def test_reference_runs_nothing_where_the_condition_is_absent():
    """Loop: an absent cond is true for the first iteration. onnx.reference is wrong."""
    text = STACK.replace("(M, on, v)", '(M, "", v)').replace("on = Constant <value = bool {1}> ()", "")
    feeds = {"M": i64(2), "v": np.ones((1, 1), np.float32)}
    assert run(text, **feeds)[0].shape == (2, 1, 1)
    try:
        rows = len(in_reference(model(text), **feeds)[0])
    except Exception:
        rows = 0
    assert rows == 0


def test_the_table_of_loop_ignores_a_condition_that_engines_obey():
    """Loop's table: with cond absent the body's value is ignored (5 iterations).

    ONNX Runtime obeys it (1 iteration), and exporters compile ``break`` to it; we do as ONNX Runtime does.
    """
    text = """g (int64 M, float v) => (float y) {
        y = Loop <body = b (int64 i, bool c, float p) => (bool c2, float q) {
            c2 = Constant <value = bool {0}> ()
            q = Add(p, p)
        }> (M, "", v)
    }"""
    feeds = {"M": i64(5), "v": f32(1)}
    assert_same(run(text, **feeds), [f32(2)])
    assert_same(in_onnxruntime(model(text), feeds), [f32(2)])


def test_onnxruntime_stacks_strings_wrongly():
    """Loop: row k of a scan output is the body's value in iteration k. ONNX Runtime is wrong from row 1 on."""
    text = """g (int64 M, string v, string w) => (string[R] z) {
        on = Constant <value = bool {1}> ()
        a, b, z = Loop <body = l (int64 i, bool c, string p, string q) => (bool c2, string q2, string p2, string r) {
            c2 = Identity(c)
            q2 = Identity(q)
            p2 = Identity(p)
            r = Identity(p)
        }> (M, on, v, w)
    }"""
    feeds = {"M": i64(3), "v": np.array("a", dtype=object), "w": np.array("b", dtype=object)}
    assert run(text, **feeds)[0].tolist() == ["a", "b", "a"]
    assert in_onnxruntime(model(text), feeds)[0].tolist() != ["a", "b", "a"]


def test_onnxruntime_fails_on_a_scan_of_length_zero():
    """Scan: no element runs nothing. ONNX Runtime raises."""
    text = """g (float v, float[T] x) => (float y, float[T] z) {
        y, z = Scan <num_scan_inputs = 1, body = b (float p, float e) => (float q, float r) {
            q = Add(p, e)
            r = Identity(q)
        }> (v, x)
    }"""
    feeds = {"v": f32(3), "x": np.empty(0, np.float32)}
    assert_same(run(text, **feeds), [f32(3), np.empty(0, np.float32)])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        in_onnxruntime(model(text), feeds)


def test_onnxruntime_makes_unknown_dimensions_of_empty_rows_zero():
    """Loop of no iteration: the remaining dimensions follow from the values at hand. ONNX Runtime gives 0."""
    text = STACK.replace("(float[R, A, B] z)", "(float[R, A, C] z)").replace("float[A, B] r", "float[A, C] r")
    text = text.replace("r = Identity(q)", "r = Concat <axis = 1> (q, q)")
    feeds = {"M": i64(0), "v": np.ones((2, 3), np.float32)}
    assert run(text, **feeds)[0].shape == (0, 2, 6)
    assert in_onnxruntime(model(text), feeds)[0].shape == (0, 0, 0)


def test_reference_takes_the_shorter_of_two_scan_inputs():
    """Scan: all scan inputs have the same length. onnx.reference truncates."""
    text = """g (float v, float[A] x, float[B] y) => (float w) {
        w = Scan <num_scan_inputs = 2, body = b (float p, float e, float f) => (float q) {
            t = Add(e, f)
            q = Add(p, t)
        }> (v, x, y)
    }"""
    feeds = {"v": f32(0), "x": f32([1, 2]), "y": f32([1, 2, 3])}
    with pytest.raises(LoopliftError, match="different lengths"):
        run(text, **feeds)
    assert_same(in_reference(model(text), **feeds), [f32(6)])


def test_reference_adds_up_no_range_in_half_precision():
    """Range-11's function body adds delta once an element, in the values' own type. onnx.reference multiplies.

    (ONNX Runtime's Range adds up too; it has no float16.)
    """
    text = "g (double a, double b, double d) => (double[N] y) { y = Range(a, b, d) }"
    feeds = {"a": np.array(0.0), "b": np.array(1.0), "d": np.array(0.1)}
    summed = [0.0]
    for _ in range(9):
        summed.append(summed[-1] + 0.1)
    assert_same(run(text, **feeds), [np.array(summed)])
    assert_same(in_onnxruntime(model(text), feeds), [np.array(summed)])
    assert in_reference(model(text), **feeds)[0].tolist() != summed


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_range_27_sums_halves_in_single_precision(dtype):
    """Range-27: float16 and bfloat16 are summed in `stash_type`, by default float32, and rounded once."""
    kind = "bfloat16" if dtype is ml_dtypes.bfloat16 else "float16"
    text = f"g ({kind} a, {kind} b, {kind} d) => ({kind}[N] y) {{{{ y = Range {{}} (a, b, d) }}}}"
    feeds = {"a": np.array(0, dtype), "b": np.array(512, dtype), "d": np.array(1, dtype)}
    (stashed,) = run(model(text.format(""), 27, 13), **feeds)
    assert_same(stashed, np.arange(512).astype(dtype))
    (own,) = run(model(text.format("<stash_type = 0>"), 27, 13), **feeds)
    assert own.shape == (512,)
    if kind == "bfloat16":
        assert float(own[-1]) == 256.0  # 256 + 1 rounds to 256


def test_reference_ignores_overloads():
    """FunctionProto: (domain, name, overload) identify a function. onnx.reference knows one of them."""
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]>
    g (float v) => (float y) { a = f.step(v) b = f.step(v) y = Add(a, b) }
    <domain: "f", opset_import: ["": 17]> step (x) => (y) { y = Add(x, x) }
    <domain: "f", opset_import: ["": 17]> step (x) => (y) { y = Neg(x) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.node[1].overload = proto.functions[1].overload = "minus"
    assert_same(run(proto, v=f32(5)), [f32(5)])
    assert float(in_reference(proto, v=f32(5))[0]) != 5


@pytest.mark.parametrize("kind", ["int8", "int32", "int64"])
def test_integer_division_rounds_toward_zero(kind):
    """Div: integers are truncated, as ONNX Runtime does and the specification says from opset 14 on."""
    dtype = np.dtype(kind)
    text = f"g ({kind}[N] a, {kind}[N] b) => ({kind}[N] y) {{ y = Div(a, b) }}"
    a, b = np.array([7, -7, 7, -7, -6], dtype), np.array([2, 2, -2, -2, 2], dtype)
    assert_same(run(text, a=a, b=b), [np.array([3, -3, -3, 3, -3], dtype)])
    if kind != "int8":
        assert_same(in_onnxruntime(model(text), {"a": a, "b": b}), [np.array([3, -3, -3, 3, -3], dtype)])


def test_reference_cannot_pad_by_a_negative_number():
    """Pad: negative pads take away. onnx.reference raises."""
    text = "g (float[N] x, int64[2] pads) => (float[K] y) { y = Pad(x, pads) }"
    feeds = {"x": f32([1, 2, 3]), "pads": i64(-1, 2)}
    assert_same(run(text, **feeds), [f32([2, 3, 0, 0])])
    assert_same(in_onnxruntime(model(text), feeds), [f32([2, 3, 0, 0])])
    with pytest.raises(ValueError, match="negative"):
        in_reference(model(text), **feeds)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_reference_knows_no_softmax_before_opset_13(op):
    """Softmax-11: over all axes from `axis` (default 1) on together. onnx.reference does as Softmax-13."""
    text = f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = {op}(x) }}"
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    (got,) = run(text, 12, **feeds)
    np.testing.assert_allclose(got, in_onnxruntime(model(text, 12), feeds)[0], rtol=1e-5)
    assert not np.allclose(got, in_reference(model(text, 12), **feeds)[0])


def test_reference_takes_the_logarithm_of_a_softmax_that_is_zero():
    """LogSoftmax: finite for finite values. onnx.reference gives -inf."""
    text = "g (float[N] x) => (float[N] y) { y = LogSoftmax(x) }"
    feeds = {"x": f32([0, 200])}
    assert_same(run(text, **feeds), [f32([-200, 0])])
    assert in_reference(model(text), **feeds)[0].tolist() != [-200, 0]


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 0)), (1, (0, 3)), (2, (0, 3)), (-1, (0, 3)), (3, (0, 1))])
def test_reference_does_not_flatten_what_is_empty(axis, shape):
    """Flatten: extents in front of and behind the axis, multiplied. onnx.reference leaves one to numpy to find out."""
    text = f"g (float[A, B, C] x) => (float[R, S] y) {{ y = Flatten<axis = {axis}>(x) }}"
    feeds = {"x": np.empty((0, 1, 3), np.float32)}
    (got,) = run(text, **feeds)
    assert got.shape == shape == in_onnxruntime(model(text), feeds)[0].shape
    if axis == 1:
        with pytest.raises(ValueError, match="reshape"):
            in_reference(model(text), **feeds)


@pytest.mark.parametrize("constant", [False, True])
def test_reference_gives_nothing_for_a_backward_slice_that_starts_before_the_first_element(constant):
    """Slice: for negative steps starts are clamped to [0, dim - 1]. onnx.reference slices as numpy does."""
    text = "g (float[N] x, int64[1] a, int64[1] b, int64[1] s) => (float[K] y) { y = Slice(x, a, b, axes, s) }"
    proto = model(text.replace("{ y", "<int64[1] axes = {0}> { y"))
    feeds = {"x": f32([1, 2, 3]), "a": i64([-5]), "b": i64([-9]), "s": i64([-1])}
    if constant:
        for name in "abs":
            proto.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop(name), name))
        del proto.graph.input[1:]
    assert_same(run(proto, **feeds), [f32([1])])
    assert_same(in_onnxruntime(proto, feeds), [f32([1])])
    assert in_reference(proto, **feeds)[0].size == 0


def test_slices_are_numpys_where_bounds_are_in_range():
    x = np.arange(7, dtype=np.float32)
    inputs = "float[N] x, int64[1] a, int64[1] b, int64[1] s"
    text = f"g ({inputs}) => (float[K] y) <int64[1] axes = {{0}}> {{ y = Slice(x, a, b, axes, s) }}"
    proto = model(text)
    for start, end, step in [(0, 7, 2), (-3, 9, 1), (5, 0, -2), (6, -9, -1), (9, 2, 1), (9, 2, -1), (-2, 2**40, 1)]:
        feeds = {"x": x, "a": i64([start]), "b": i64([end]), "s": i64([step])}
        assert_same(run(proto, **feeds), in_onnxruntime(proto, feeds))


def test_a_given_length_of_one_lets_the_axis_be_dropped():
    """SplitToSequence: `keepdims` is ignored where `split` is given. PyTorch's ``unbind`` counts on ONNX Runtime's not."""
    text = """g (float[2, 3] x) => (float[N] y) {
        one = Constant <value_int = 1>()
        zero = Constant <value_int = 0>()
        s = SplitToSequence <axis = 1, keepdims = 0> (x, one)
        y = SequenceAt(s, zero)
    }"""
    feeds = {"x": f32([[1, 2, 3], [4, 5, 6]])}
    (ours,) = run(text, **feeds)
    assert_same(ours, f32([1, 4]))
    assert_same(in_onnxruntime(model(text), feeds)[0], ours)
    assert in_reference(model(text), **feeds)[0].shape == (2, 1)

"""Names: lexical scopes, shadowing, If branches, functions with attributes and overloads."""

import numpy as np
import onnx
import pytest
from sessions import assert_same, f32, i64, model, run

from looplift.runtime import LoopliftError, Session


def test_body_inputs_and_initializers_shadow_outer_names():
    text = """g (int64 M, float v, float s, float k) => (float y) {
        on = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 M, bool on, float s) => (bool on, float q) <float k = {100}> {
            q = Add(s, k)
        }> (M, on, v)
    }"""
    assert_same(run(text, M=i64(3), v=f32(1), s=f32(50), k=f32(7)), [f32(301)])


def test_a_body_node_may_name_its_output_like_an_outer_value():
    text = """g (int64 M, float v) => (float y) {
        on = Constant <value = bool {1}> ()
        t = Add(v, v)
        y = Loop <body = b (int64 i, bool c, float p) => (bool c, float q) {
            t = Add(p, p)
            q = Add(t, v)
        }> (M, on, t)
    }"""
    assert_same(run(text, M=i64(2), v=f32(1)), [f32(11)])


def test_a_nested_body_shadows_one_level_and_sees_the_others():
    text = """g (int64 M, float v, float a, float b) => (float y) {
        on = Constant <value = bool {1}> ()
        y = Loop <body = outer (int64 i, bool c, float p) => (bool c, float q) {
            a = Mul(p, p)
            q = Loop <body = inner (int64 i, bool c, float p) => (bool c, float r) {
                t = Add(p, a)
                r = Add(t, b)
            }> (M, on, p)
        }> (M, on, v)
    }"""
    # outer: a' = p * p; inner twice: p + a' + b
    assert_same(run(text, M=i64(2), v=f32(2), a=f32(1000), b=f32(1)), [f32(12 + 2 * (144 + 1))])


IF = """g (bool c, float[N] x) => (float[K] y) {
    y = If(c) <then_branch = t () => (float[A] a) { a = Add(x, x) }, else_branch = e () => (float[B] x) { }>
}"""


def test_if_runs_only_the_branch_it_chooses():
    text = """g (bool c, float[N] x, int64 at) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = Gather(x, at) },
                   else_branch = e () => (float b) { b = ReduceSum <keepdims = 0> (x) }>
    }"""
    assert_same(run(text, c=np.array(True), x=f32([1, 2]), at=i64(1)), [f32(2)])
    assert_same(run(text, c=np.array(False), x=f32([1, 2]), at=i64(9)), [f32(3)])
    with pytest.raises(LoopliftError, match=r"Gather 'a' at /y:then_branch"):
        run(text, c=np.array(True), x=f32([1, 2]), at=i64(9))


def test_if_takes_a_condition_of_one_element_in_any_shape():
    text = """g (bool[A, B] c, float x) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = Add(x, x) }, else_branch = e () => (float b) { b = Neg(x) }>
    }"""
    assert_same(run(text, c=np.array([[True]]), x=f32(1)), [f32(2)])
    with pytest.raises(LoopliftError, match="must have one element"):
        run(text, c=np.array([[True, True]]), x=f32(1))


def test_a_body_output_that_is_an_outer_value_is_refused():
    text = """g (int64 M, float v, float s) => (float y) {
        on = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool c, float p) => (bool c, float s) { q = Add(p, s) }> (M, on, v)
    }"""
    with pytest.raises(LoopliftError, match="'s', an output of the graph"):
        run(text, M=i64(1), v=f32(1), s=f32(2))


FUNCTIONS = """<ir_version: 10, opset_import: ["": 17, "f": 1]>
g (int64 M, float v) => (float y, float z) {
    y = f.repeat(M, v)
    z = f.shift <by: float = 2.5> (v)
}
<domain: "f", opset_import: ["": 17, "f": 1]>
repeat (n, start) => (out) {
    on = Constant <value = bool {1}> ()
    out = Loop <body = b (int64 i, bool c, float p) => (bool c, float q) { q = f.shift(p) }> (n, on, start)
}
<domain: "f", opset_import: ["": 17]>
shift <by: float = 1.0> (x) => (y) {
    s = Constant <value_float: float = @by> ()
    y = Add(x, s)
}"""


def test_functions_with_attributes_and_defaults():
    proto = onnx.parser.parse_model(FUNCTIONS)
    assert_same(Session(proto, "numpy").run(None, {"M": i64(3), "v": f32(1)}), [f32(4), f32(3.5)])


def test_overloads_are_told_apart():
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]>
    g (float v) => (float y) { a = f.step(v) b = f.step(v) y = Add(a, b) }
    <domain: "f", opset_import: ["": 17]> step (x) => (y) { y = Add(x, x) }
    <domain: "f", opset_import: ["": 17]> step (x) => (y) { y = Neg(x) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.node[1].overload = proto.functions[1].overload = "minus"
    assert_same(Session(proto, "numpy").run(None, {"v": f32(5)}), [f32(5)])


def test_an_absent_input_of_a_function_is_absent_inside():
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]>
    g (float v, float low) => (float y, float z) { y = f.bound(v, low) z = f.bound(v) }
    <domain: "f", opset_import: ["": 17]> bound (x, low) => (y) { y = Clip(x, low) }"""
    got = Session(onnx.parser.parse_model(text), "numpy").run(None, {"v": f32(-5), "low": f32(0)})
    assert_same(got, [f32(0), f32(-5)])


def test_a_function_that_calls_itself_is_refused():
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]>
    g (float v) => (float y) { y = f.again(v) }
    <domain: "f", opset_import: ["": 17, "f": 1]> again (x) => (y) { y = f.again(x) }"""
    with pytest.raises(LoopliftError, match="again calls itself"):
        Session(onnx.parser.parse_model(text), "numpy")


def test_a_reference_to_an_attribute_reaches_a_nested_body():
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]>
    g (int64 M, float v) => (float y, float[R, K] z) { y, z = f.steps <by: float = 2.0> (M, v) }
    <domain: "f", opset_import: ["": 17]>
    steps <by: float> (n, start) => (out, rows) {
        on = Constant <value = bool {1}> ()
        out, rows = Loop <body = b (int64 i, bool c, float p) => (bool c, float q, float[K] r) {
            s = Constant <value_float: float = @by> ()
            q = Add(p, s)
            r = Constant <value_floats: floats = [1.0, 2.0, 3.0]> ()
        }> (n, on, start)
    }"""
    proto = onnx.parser.parse_model(text)
    assert_same(Session(proto, "numpy").run(["y"], {"M": i64(3), "v": f32(1)}), [f32(7)])
    assert Session(proto, "numpy").run(["z"], {"M": i64(0), "v": f32(1)})[0].shape == (0, 3)


def test_an_initializer_that_is_an_input_is_a_default():
    proto = model("g (float x, float s) => (float y) { y = Add(x, s) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(f32(10), "s"))
    session = Session(proto, "numpy")
    assert_same(session.run(None, {"x": f32(1)}), [f32(11)])
    assert_same(session.run(None, {"x": f32(1), "s": f32(2)}), [f32(3)])


def test_broadcasting_before_opset_7_is_aligned_by_an_attribute():
    text = "g (float[2, 3] x, float[2] s) => (float[2, 3] y) { y = Add <axis = 0, broadcast = 1> (x, s) }"
    x = np.zeros((2, 3), np.float32)
    assert_same(run(text, 6, x=x, s=f32([1, 2])), [f32([[1, 1, 1], [2, 2, 2]])])

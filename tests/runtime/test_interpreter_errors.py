"""What is wrong in a model or a feed is one LoopliftError that names the node, the iteration and the shapes."""

import numpy as np
import onnx
import pytest
from sessions import f32, i64, model, run

from looplift.runtime import LoopliftError, Session

LOOP = """g (int64 M, float[N] v, float[K] s) => (float[A] y) {{
    on = Constant <value = bool {{1}}> ()
    y = Loop <body = b ({inputs}) => ({outputs}) {{ {body} }}> ({given})
}}"""
PLAIN = {
    "inputs": "int64 i, bool c, float[N] p",
    "outputs": "bool c, float[A] q",
    "body": "q = Add(p, s)",
    "given": "M, on, v",
}
V = f32([1, 2])


def loop(**changes: str) -> str:
    return LOOP.format(**{**PLAIN, **changes})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"inputs": "int64 i, bool c, float[N] p, float x"}, "1 carried values need a body of 3 inputs"),
        ({"inputs": "int64 i, bool c"}, "1 carried values need a body of 3 inputs"),
        ({"outputs": "bool c"}, "at least 2 outputs"),
        ({"given": "v, on, v"}, r"input 0 \('M'\) is tensor\(float\), which Loop-16 does not accept"),
        ({"given": "M, M, v"}, r"input 1 \('cond'\) is tensor\(int64\)"),
        ({"inputs": "int64 i, bool c, int64[N] p"}, r"declares its input 'p' as tensor\(int64\)"),
        ({"inputs": "float i, bool c, float[N] p"}, "declares its input 'i'"),
        ({"outputs": "int64 i, float[A] q"}, r"condition 'i' is tensor\(int64\)"),
        ({"body": "q = Greater(p, s)", "outputs": "bool c, bool[A] q"}, r"'q' from tensor\(float\) to tensor\(bool\)"),
        ({"body": "q = Add(p, nothing)"}, "'nothing', an input, is computed by nothing before it"),
        ({"body": "q = Unheard(p)"}, "there is no op ai.onnx::Unheard in opset 17"),
        ({"body": "q = other.Op(p)"}, "does not import the domain 'other'"),
        ({"body": "q = Add(p)"}, "Add-14 takes 2 to 2 inputs, 1 are given"),
        ({"body": "q = And(p, p)"}, r"is tensor\(float\), which And-7 does not accept"),
        ({"body": "q = Softmax <axis = 9> (p)"}, r"Softmax 'q' at /y:body, iteration 0 of 'y'"),
    ],
)
def test_wrong_loops(changes, why):
    with pytest.raises(LoopliftError, match=why) as error:
        run(loop(**changes), M=i64(2), v=V, s=V)
    assert "\n" not in str(error.value)


def test_an_error_names_node_iteration_and_shapes():
    body = "q = Concat <axis = 0> (p, p)\nr = Add(q, s)"
    with pytest.raises(LoopliftError) as error:
        run(loop(body=body, outputs="bool c, float[A] r"), M=i64(3), v=f32([1]), s=V)
    message = str(error.value)
    assert message.startswith("Add 'r' at /y:body, iteration 1 of 'y': ")
    assert message.endswith("(inputs: float32[4], float32[2])")
    assert isinstance(error.value.__cause__, ValueError)


def test_an_error_in_a_nested_loop_names_both_iterations():
    text = """g (int64 M, float[N] xs) => (float y) <float zero = {0}> {
        on = Constant <value = bool {1}> ()
        y = Loop <body = a (int64 i, bool c, float p) => (bool c, float q) {
            q = Loop <body = b (int64 j, bool d, float u) => (bool d, float w) {
                at = Add(i, j)
                w = Gather(xs, at)
            }> (M, on, p)
        }> (M, on, zero)
    }"""
    with pytest.raises(LoopliftError, match="Gather 'w' at /y:body/q:body, iteration 1 of 'y', iteration 2 of 'q'"):
        run(text, M=i64(3), xs=f32([1, 2, 3]))


@pytest.mark.parametrize(("trips", "why"), [([1, 2], r"M has shape \[2\]"), ([], r"M has shape \[0\]")])
def test_a_trip_count_of_several_elements(trips, why):
    with pytest.raises(LoopliftError, match=f"Loop 'y' at /: the trip count {why}"):
        run(loop().replace("int64 M", "int64[L] M"), M=np.array(trips, np.int64), v=V, s=V)


def test_a_scan_output_may_not_change_its_shape_even_where_the_size_agrees():
    text = """g (int64 M, float[A, B] v) => (float z) {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, float p) => (bool c, float q, float q) { q = Transpose(p) }> (M, on, v)
    }"""
    proto = model(text)
    for info in (proto.graph.output[0], *proto.graph.node[1].attribute[0].g.input[2:]):
        info.type.tensor_type.ClearField("shape")
    with pytest.raises(LoopliftError, match=r"'q' changes its shape from \[3, 2\] to \[2, 3\] in iteration 1"):
        run(proto, M=i64(2), v=np.ones((2, 3), np.float32))


def test_only_tensors_can_be_stacked():
    text = """g (int64 M, seq(float) v) => (float z) {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, seq(float) p) => (bool c, seq(float) p, seq(float) p) { }> (M, on, v)
    }"""
    with pytest.raises(LoopliftError, match=r"scan output 'p' is seq\(tensor\(float\)\)"):
        run(text, M=i64(1), v=[])


def test_rows_that_do_not_fit_in_memory_are_refused_before_they_are_made():
    text = """g (int64 M, float[N] v) => (float[R, N] z) {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, float[N] p) => (bool c, float[N] q, float[N] q) {
            q = Add(p, p)
        }> (M, on, v)
    }"""
    with pytest.raises(LoopliftError, match=r"Loop 'y' at /.*bytes"):
        run(text, M=i64(2**40), v=V)


@pytest.mark.parametrize(
    ("op", "kind", "since"),
    [("Add", "int8", 14), ("Sub", "uint16", 14), ("Max", "int64", 12), ("Neg", "int32", None)],
)
def test_a_type_is_accepted_from_its_opset_on_also_inside_a_body(op, kind, since):
    inputs = "p" if op == "Neg" else "p, p"
    text = f"""g (int64 M, {kind} v) => ({kind} y) {{
        on = Constant <value = bool {{1}}> ()
        y = Loop <body = b (int64 i, bool c, {kind} p) => (bool c, {kind} q) {{ q = {op}({inputs}) }}> (M, on, v)
    }}"""
    Session(model(text, since or 7), "numpy")
    if since:
        with pytest.raises(LoopliftError, match=rf"{op} 'q' at /y:body: .*tensor\({kind}\)"):
            Session(model(text, since - 1), "numpy")


def test_sequences_are_carried_from_opset_13_on():
    text = """g (int64 M, seq(float) v) => (seq(float) y) {
        on = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool c, seq(float) p) => (bool c, seq(float) p) { }> (M, on, v)
    }"""
    Session(model(text, 13), "numpy")
    with pytest.raises(LoopliftError, match=r"is seq\(tensor\(float\)\), which Loop-11 does not accept"):
        Session(model(text, 11), "numpy")


def test_loop_1_wants_a_carried_value():
    text = """g (int64 M) => (int64[R] z) {
        on = Constant <value = bool {1}> ()
        z = Loop <body = b (int64 i, bool c) => (bool c, int64 i) { }> (M, on)
    }"""
    Session(model(text, 11), "numpy")
    with pytest.raises(LoopliftError, match="Loop-1 takes 3"):
        Session(model(text, 10), "numpy")


def test_branches_must_agree():
    text = """g (bool c, float x, int64 n) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = Neg(x) }, else_branch = e () => (int64 b) { b = Neg(n) }>
    }"""
    with pytest.raises(LoopliftError, match=r"the branches give tensor\(float\) and tensor\(int64\)"):
        Session(model(text), "numpy")


def test_a_value_may_not_be_used_before_it_is_computed():
    text = "g (float x) => (float y) { y = Add(t, x) t = Neg(x) }"
    with pytest.raises(LoopliftError, match="'t', an input, is computed by nothing before it"):
        Session(model(text), "numpy")


def test_an_attribute_that_is_missing():
    with pytest.raises(LoopliftError, match=r"Concat 'y' at /: .*axis"):
        run("g (float[N] x) => (float[M] y) { y = Concat(x, x) }", x=V)


def test_a_loop_without_a_body():
    proto = model("g (int64 M, float v) => (float y) { y = Neg(v) }")
    proto.graph.node[0].CopyFrom(onnx.helper.make_node("Loop", ["M", "", "v"], ["y"]))
    with pytest.raises(LoopliftError, match="Loop 'y' at /: the attribute 'body' is missing"):
        Session(proto, "numpy")

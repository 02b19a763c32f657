"""Definitions in the form that is right for the nodes at hand."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from lifting import assert_equal, lift, nodes, parse

import looplift
from looplift.runtime import Session

ADD = """agraph ({t}[B] x, {t}[B] step, int64 n) => ({t}[B] y, {t}[k,B] ys) {{
    y, ys = Loop(n, , x) <body = b (int64 i, bool c, {t}[B] v) => (bool d, {t}[B] w, {t}[B] e) {{
        d = Identity(c) w = Add(v, step) e = Identity(w)
    }}>
}}"""
SCAN = """agraph ({t}[B] x, {t}[T,B] s) => ({t}[B] y, {t}[T,B] ys) {{
    y, ys = Scan<num_scan_inputs = 1{more}, body = b ({t}[B] v, {t}[B] e) => ({t}[B] w, {t}[B] r) {{
        {body} r = Identity({emitted})
    }}>(x, s)
}}"""
BACK = ", scan_input_directions = [1], scan_output_directions = [1]"
TEXTS = {
    "add-step": ADD,
    "sum": SCAN.replace("{body}", "w = Add(v, e)").replace("{emitted}", "w").replace("{more}", ""),
    "states before": SCAN.replace("{body}", "w = Add(v, e)").replace("{emitted}", "v").replace("{more}", ""),
    "sum from the end": SCAN.replace("{body}", "w = Add(v, e)").replace("{emitted}", "w").replace("{more}", BACK),
    "linear": SCAN.replace("{body}", "p = Mul(v, e) w = Add(p, e)").replace("{emitted}", "w").replace("{more}", ""),
    "product": SCAN.replace("{body}", "w = Mul(v, e)").replace("{emitted}", "v").replace("{more}", BACK),
}
NUMPY = {"float": "f4", "double": "f8", "float16": "f2", "int8": "i1", "uint32": "u4", "int64": "i8"}


def loops_in_definitions(model: ir.Model) -> int:
    every = (node for f in model.functions.values() for node in ir.traversal.RecursiveGraphIterator(f))
    return sum(node.op_type == "Loop" for node in every)


def feeds(kind: str, rows: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(rows)
    numbers = {name: draw.normal(size=shape) * 9 for name, shape in (("x", 3), ("step", 3), ("s", (rows, 3)))}
    made = {name: np.abs(each).astype(NUMPY[kind]) for name, each in numbers.items()} | {"n": np.array(rows)}
    if kind.startswith(("f", "d")):
        made["x"][0], made["step"][0] = -0.0, -0.0
        made["s"][1:2] = np.nan, -0.0, np.inf
    return made


def in_onnxruntime(model: ir.Model, given: dict[str, np.ndarray], level: str) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options).run(None, given)


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("name", TEXTS)
def test_no_loop_is_left_in_the_definition(name, kind):
    text = TEXTS[name].format(t=kind)
    lifted, _ = lift(text)
    assert len(nodes(lifted)) == 1
    assert loops_in_definitions(lifted) == 0
    names = [value.name for value in parse(text).graph.inputs]
    kernels = Session(lifted, device="numpy")
    for rows in (0, 1, 2, 9):
        given = {key: array for key, array in feeds(kind, rows).items() if key in names}
        assert_equal(text, lifted, given)
        if kind == "int8" and name in ("linear", "product"):
            continue  # ONNX Runtime has no Mul of int8
        for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
            for want, got in zip(kernels.run(None, given), in_onnxruntime(lifted, given, level), strict=True):
                assert (want.dtype, want.shape) == (got.dtype, got.shape)
                if kind != "float16" or name != "linear":  # ONNX Runtime rounds a chain in float16 once, at its end
                    np.testing.assert_array_equal(got, want)
                    assert not kind.startswith("f") or np.array_equal(np.signbit(got), np.signbit(want))


def test_nodes_of_one_kind_share_the_form_and_others_keep_the_loop():
    two = """agraph ({a}[B] x, {a}[T,B] s, {b}[B] u, {b}[T,B] t) => (y, z) {{
        y = Scan<num_scan_inputs = 1, body = b1 ({a}[B] v, {a}[B] e) => ({a}[B] w) {{ w = Add(v, e) }}>(x, s)
        z = Scan<num_scan_inputs = 1, body = b2 ({b}[B] v, {b}[B] e) => ({b}[B] w) {{ w = Add(v, e) }}>(u, t)
    }}"""
    alike, _ = lift(two.format(a="float", b="float"))
    assert len(nodes(alike)) == 2
    assert loops_in_definitions(alike) == 0
    other, _ = lift(two.format(a="float", b="float16"))
    assert len(nodes(other)) == 2
    assert loops_in_definitions(other) == 1
    draw = np.random.default_rng(0).normal(size=(5, 3))
    given = {"x": draw[0], "s": draw, "u": draw[1], "t": draw}
    for model, kind in ((alike, "f4"), (other, "f2")):
        typed = {key: array.astype("f4" if key in "xs" else kind) for key, array in given.items()}
        wanted = Session(model, device="numpy").run(None, typed)
        for want, got in zip(wanted, in_onnxruntime(model, typed, "ORT_ENABLE_ALL"), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_loop_on_demand():
    text = ADD.format(t="float")
    fast = looplift.optimize(ir.to_proto(parse(text)))
    slow = looplift.optimize(ir.to_proto(parse(text)), definitions="loop")
    assert [loops_in_definitions(ir.from_proto(model)) for model in (fast, slow)] == [0, 1]
    assert list(fast.graph.node) == list(slow.graph.node)
    for trips in (0, 1, 5):
        given = {key: array for key, array in feeds("float", trips).items() if key != "s"}
        assert_equal(text, ir.from_proto(slow), given)
    with pytest.raises(looplift.LoopliftError, match="use one of 'fast', 'loop'"):
        looplift.optimize(ir.to_proto(parse(text)), definitions="scan")

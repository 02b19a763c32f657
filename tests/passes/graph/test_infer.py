"""ONNX's shape inference is given nothing that it takes for ever on."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from looplift.passes import run_pipeline
from looplift.passes.graph import infer as inference
from looplift.patterns.graph.values import graphs_within, nodes_within
from looplift.patterns.graph.walk import nodes_inlined

HEADER = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n'

VECTORS = {
    "declared": ("s2 = Sub (one, huge)", [False]),
    "filled": ("big = ConstantOfShape (n)\n s2 = Sub (one, big)", [False]),
    "expanded": ("big = Expand (one, n)\n s2 = Sub (one, big)", [False]),
    "short": ("s2 = Sub (one, one)", [False, True]),
}


@pytest.mark.parametrize(("line", "wanted"), VECTORS.values(), ids=VECTORS)
def test_no_data_are_propagated_through_huge_vectors(
    line: str, wanted: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    infer = onnx.shape_inference.infer_shapes

    def watched(proto: onnx.ModelProto, *, strict_mode: bool, data_prop: bool) -> onnx.ModelProto:
        asked.append(data_prop)
        return infer(proto, strict_mode=strict_mode, data_prop=False)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", watched)
    huge = ", float[4611686018427387904] huge" if "huge" in line else ""
    model = ir.from_onnx_text(
        HEADER
        + f"""g (int64 m, float x, float[1] one{huge}) => (float y) <int64[1] n = {{4611686018427387904}}> {{
  {line}
  y = Loop (m, , x) <body = b (int64 i, bool c, float p) => (bool d, float q) {{
    d = Identity (c)
    q = Add (p, x)
  }}>
}}"""
    )
    inference.infer_shapes(model)
    assert asked == wanted


def calling(depth: int, last: str) -> ir.Model:
    """Functions that each call the next one twice; the last one calls `last`."""
    text = """g (int64 n, float x, float s) => (float y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float p) => (bool d, float q) {
    d = Identity (c)
    q = my.f0 (p, s)
  }>
}
"""
    for k in range(depth):
        text += f"""<domain: "my", opset_import: ["" : 17, "my" : 1]>
f{k} (a, b) => (c) {{
  d = my.f{k + 1} (a, b)
  c = my.f{k + 1} (d, b)
}}
"""
    text += f"""<domain: "my", opset_import: ["" : 17, "my" : 1]>
f{depth} (a, b) => (c) {{ c = {last} (a, b) }}
"""
    return ir.from_onnx_text(HEADER + text)


def test_functions_that_double_calls_are_not_followed() -> None:
    model = calling(60, "Add")
    assert nodes_inlined(model) > 2**60
    _, (finding,) = run_pipeline(model)
    assert not finding.lifted


def test_functions_that_double_calls_a_few_times_are() -> None:
    assert nodes_inlined(calling(3, "Add")) == 3 + 2 * (1 + 2 + 4) + 8


def test_a_function_that_calls_itself_is_not_followed() -> None:
    model = calling(2, "my.f0")
    assert nodes_inlined(model) == float("inf")
    _, (finding,) = run_pipeline(model)
    assert not finding.lifted


def test_a_long_chain_of_calls_is_counted_without_recursion() -> None:
    model = calling(0, "Add")
    text = "".join(
        f'<domain: "my", opset_import: ["" : 17, "my" : 1]>\nh{k} (a, b) => (c) {{ c = my.h{k + 1} (a, b) }}\n'
        for k in range(3000)
    )
    chain = ir.from_onnx_text(HEADER + "g (float x) => (float y) { y = Identity (x) }\n" + text)
    model.functions.update(chain.functions)
    assert nodes_inlined(model) == 4


TYPELESS = """<ir_version: 8, opset_import: ["": 17]> g (int64 n, float[N, 2] x, bool c) => (y, z) {
    sum = Add (x, x)
    y = Loop (n, , sum) <body = b (int64 i, bool go, float[A, B] v) => (bool still, w) {
        still = Identity (go) w = Neg (v)
    }>
    z = If (c) <then_branch = t () => (a) { a = Abs (sum) }, else_branch = e () => (b) { b = Exp (sum) }>
}"""


def test_values_have_what_is_inferred_and_then_again_what_they_had() -> None:
    model = ir.from_onnx_text(TYPELESS)
    values = [value for node in nodes_within(model.graph) for value in node.outputs]
    values += [value for graph in graphs_within(model.graph) for value in graph.outputs]
    before = [(value.type, value.shape) for value in values]
    with inference.with_inferred(model):
        assert all(value.type is not None for value in values)
        assert next(iter(model.graph)).outputs[0].shape == ir.Shape(["N", 2])
    assert [(value.type, value.shape) for value in values] == before
    assert any(kind is None for kind, _ in before)

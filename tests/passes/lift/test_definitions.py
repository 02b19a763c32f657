"""Definitions of our ops where nodes of one type stand in a graph and in a graph inside it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from lifting import lift, nodes, parse, same_bits

from looplift.passes.lift.definitions import add_definitions, called_further_in
from looplift.runtime import Session

# What the body reads from outside, `asked`, is what the definition of the outer op computes, too. The optimizers of
# ONNX Runtime make one value of both, under a name that the inner op's definition gives to another value.
NEST = """
agraph (float[T,2] x, float[A] v, float[T,3] z, float[B] w, int64 n) => (outer, inner, more) {{
  {asked}
  {nodes}
  inner, more = Loop (n, "", w) <body = b (int64 i, bool go, q) => (bool still, r, e) {{
    still = Identity(go)
    {inside}
    sized = Mul(asked, i) total = Cast<to = 1>(sized) moved = Add(now, total) r = Mul(moved, moved) e = {more}
  }}>
}}"""
ASKED = (
    "asked = Shape(v)",
    "asked = Constant<value = int64 {0}>()",
    "s = Shape(x) o = Constant<value = int64 {0}>() asked = Gather(s, o)",
)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
    """In ONNX Runtime with its optimizers and without."""
    found = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.log_severity_level = 4
        found.append(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds))
    return found


def feed(t: int = 4, n: int = 3) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(t).standard_normal
    arrays = {"x": draw((t, 2)), "v": draw(2), "z": draw((t, 3)), "w": draw(3)}
    return {k: a.astype(np.float32) for k, a in arrays.items()} | {"n": np.array(n)}


@pytest.mark.parametrize("asked", ASKED, ids=["shape", "zero", "length"])
def test_what_a_body_reads_is_not_taken_for_a_value_of_the_definition(asked):
    text = NEST.format(
        asked=asked,
        nodes="""outer = Scan<num_scan_inputs = 1, body = s (float[A] p, float[2] e) => (float[A] p1) {
          p1 = Add(p, e) }>(v, x)""",
        inside="""now = Scan<num_scan_inputs = 1, scan_input_directions = [1], body = t (float[3] h, float[3] f) =>
          (float[3] h1) { h1 = Add(h, f) }>(q, z)""",
        more="Identity(now)",
    ).replace("(outer, inner, more)", "(float[A] outer, float[B] inner, float[N,3] more)")
    model, _ = lift(text)
    assert nodes(model) == ["PrefixSum", "PrefixSum"]
    wanted = run(ir.to_proto(parse(text)), feed())[0]
    for got in (*run(ir.to_proto(model), feed()), Session(model, definitions=True).run(None, feed())):
        assert all(same_bits(one, other) for one, other in zip(wanted, got, strict=True))


OPS = {
    "AddStep": ("AddStep{}(n, , v, v)", "AddStep{}(n, , q, z1)"),
    "PrefixSum": ("PrefixSum{}(v, x)", "PrefixSum{}(q, z)"),
    "reversed": ("PrefixSum<reverse = 1>(v, x)", "PrefixSum{}(q, z)"),
    "LinearRecurrence": ("LinearRecurrence{}(v, x, x)", "LinearRecurrence{}(q, z, z)"),
    "invariant": ("LinearRecurrence<a_invariant = 1>(v, v, x)", "LinearRecurrence<b_invariant = 1>(q, z, q)"),
}


@pytest.mark.parametrize("opset", [9, 11, 13, 24])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_definitions_in_a_loop_of_one_iteration(op, stacked, opset):
    """They give what the kernels give, whatever the opset, and whether the states are stacked or not."""
    for t, n in ((4, 3), (1, 0)):
        outer, inner = (call.format("<emit_previous = 1>" if stacked else "") for call in OPS[op])
        text = NEST.format(
            asked="zero = Constant<value = int64 {0}>() asked = Shape(v)",
            nodes=f"outer{', rows' if stacked else ''} = ai.looplift.{outer}",
            inside=f"z1 = Gather(z, zero) now{', seen' if stacked else ''} = ai.looplift.{inner}",
            more="Identity(seen)" if stacked else "Identity(now)",
        ).replace(
            "(outer, inner, more)",
            f"(float[A] outer, float[B] inner, {'float[N,T,3]' if stacked else 'float[N,3]'} more)",
        )
        model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": {opset}, "ai.looplift": 1]>{text}')
        wanted = Session(model).run(None, feed(t, n))
        add_definitions(model)
        assert (
            called_further_in(model) == {op if op in ("AddStep", "LinearRecurrence") else OPS[op][0][:9]}
            or op == "invariant"
        )
        proto = ir.to_proto(model)
        onnx.checker.check_model(proto)
        for got in (*run(proto, feed(t, n)), Session(model, definitions=True).run(None, feed(t, n))):
            assert [a.tobytes() for a in got] == [a.tobytes() for a in wanted]


@pytest.mark.parametrize(("second", "enclosed"), [("q", False), ("", True)], ids=["beside", "inside"])
def test_only_where_one_stands_further_in(second, enclosed):
    """Two in graphs of which neither holds the other share no name."""
    call = "ai.looplift.PrefixSum(v, x)"
    outer = "o = Identity(v)" if second else f"o = {call}"
    branches = (
        f"then_branch = t () => (float[A] c) {{ c = {call} }}, else_branch = u () => (float[A] d) {{ d = {call} }}"
    )
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["": 18, "ai.looplift": 1]>
        g (bool k, float[A] v, float[T,A] x) => (float[A] o, float[A] r) {{ {outer} r = If(k) <{branches}> }}"""
    )
    add_definitions(model)
    (definition,) = model.functions.values()
    assert (len(list(definition)) == 4) == enclosed

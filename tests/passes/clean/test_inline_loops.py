"""Loops in functions, and functions in loops: inlined, and lifted as in the graph itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from lifting import count, parse

from looplift.passes import run_pipeline
from looplift.passes.opsets import NEWEST, OLDEST
from tests.helpers import assert_same, run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17, "local": 1]>\n'
DOMAIN = '<domain: "local", opset_import: ["": 17]>\n'
SUM = """(M, v, s) => (y) {
  y = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q) { co = Identity(ci) q = Add(p, s) }>
}
"""
ONE = f"{DOMAIN} f {SUM}"
TWO = f"{ONE} {DOMAIN} f2 {SUM}"
INPUTS = "int64 M, float[2] v, float[2] s"


def feeds(trips):
    return {"M": np.array(trips), "v": np.array([1.5, -2], np.float32), "s": np.array([0.1, 1], np.float32)}


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize(
    ("calls", "functions", "loops"),
    [
        ("a = local.f(M, v, s) y = local.f(M, a, s) z = Neg(y)", ONE, 1),
        ("a = local.f(M, v, s) y = local.f2(M, a, s) c = local.f2(M, s, v) z = local.f(M, c, v)", TWO, 2),
        ("y = local.f(M, v, s) z = local.f(M, s, v)", ONE, 1),
    ],
)
def test_copies_of_one_loop(calls, functions, loops, target):
    """Which inlining makes, and which may continue one another."""
    before = parse(f"{HEAD} g ({INPUTS}) => (float[2] y, float[2] z) {{ {calls} }}\n{functions}")
    after, findings = run_pipeline(before, target=target)
    assert [finding.lifted for finding in findings] == [True] * loops
    assert {finding.path for finding in findings} <= {"function local::f", "function local::f2"}
    assert not {"Loop", "Scan", "f", "f2"} & set(count(after))
    for trips in (-1, 0, 1, 5):
        assert_same(before, after, feeds(trips))


SCALED = f"""{DOMAIN} f <alpha: float = 0.5> (M, v) => (y) {{
  s = Constant<value_float: float = @alpha>()
  y = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q) {{
    co = Identity(ci) t = Constant<value_float: float = @alpha>() u = Mul(s, t) q = Add(p, u) }}>
}}"""


@pytest.mark.parametrize("call", ["local.f(M, v)", "local.f<alpha = 2.0>(M, v)"])
def test_attributes_and_their_defaults(call):
    before = parse(f"{HEAD} g ({INPUTS}) => (float[2] y) {{ y = {call} }}\n{SCALED}")
    after, _ = run_pipeline(before)
    assert count(after)["AddStep"] == 1
    for trips in (0, 3):
        assert_same(before, after, feeds(trips))


STEP_BY_CALL = f"""{HEAD} g ({INPUTS}) => (float[2] y, float[k,2] t) {{
  y, t = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q, r) {{
    co = Identity(ci) e = Identity(p) q = local.f(e, s) r = Identity(q)
  }}>
}}
{DOMAIN} f (a, s) => (y) {{ y = %s(a, s) }}"""


@pytest.mark.parametrize(("op", "node"), [("Sub", "AddStep"), ("Pow", "Loop")])
def test_functions_that_a_body_calls(op, node):
    """The rank of a stack without rows is known again in ONNX Runtime, too."""
    before = parse(STEP_BY_CALL % op)
    after, _ = run_pipeline(before)
    assert node in count(after)
    for trips in (0, 3):
        assert_same(before, after, feeds(trips))


@pytest.mark.parametrize(
    ("outputs", "returned"),
    [("y, w", "y, v"), ("y, w", "y, y"), ("y, w", "y, missing")],
)
def test_functions_that_return_what_they_do_not_make_stay(outputs, returned):
    """ONNX Runtime refuses them, the checker does not."""
    text = f"""{HEAD} g ({INPUTS}, bool c) => (float[2] o) {{
      o = If(c) <
        then_branch = then () => (float[2] y) {{ {outputs} = local.f(M, v, s) }},
        else_branch = else () => (float[2] z) {{ z = Identity(v) }}
      >
    }}
    {DOMAIN} f {SUM.replace("(M, v, s) => (y)", f"(M, v, s, missing) => ({returned})")}"""
    after, (finding,) = run_pipeline(parse(text))
    assert finding.lifted
    assert [function.name for function in after.functions.values()] == ["f", "AddStep"]


OTHERS = f"""{HEAD} g ({INPUTS}, bool c) => (float[2] y) {{ y = local.f(M, v, s, c) }}
<domain: "local", opset_import: ["": 16]>
f (M, v, s, c) => (y) {{
  y = If(c) <
    then_branch = then () => (a) {{ a = Neg(v) }},
    else_branch = other () => (z) {{ z {SUM.split("{", 1)[1].strip().removeprefix("y").removesuffix("}")} }}
  >
}}"""


def test_a_function_that_stays_imports_what_is_lifted_in_its_branches():
    before = parse(OTHERS)
    after, (finding,) = run_pipeline(before)
    assert finding.lifted
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    for flag in (True, False):
        assert_same(before, after, {**feeds(3), "c": np.array(flag)})


CLASHING = f"""{HEAD} g ({INPUTS}) => (float[2] y) {{
  y = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q) {{
    co = Identity(ci) t = local.f(p, s) q = local.h(t, s)
  }}>
}}
<domain: "local", opset_import: ["": 17, "ai.onnx.ml": 3]>
f (a, b) => (c) {{ d = ai.onnx.ml.Binarizer<threshold = 0.5>(a) c = Add(d, b) }}
<domain: "local", opset_import: ["": 17, "ai.onnx.ml": 2]>
h (a, b) => (c) {{ d = ai.onnx.ml.Binarizer<threshold = 0.5>(a) c = Add(d, b) }}"""


def test_functions_that_import_other_versions_of_a_domain_stay():
    before = parse(CLASHING)
    after, _ = run_pipeline(before)
    assert "h" in [function.name for function in after.functions.values()]
    for trips in (0, 3):
        assert_same(before, after, feeds(trips), empty_shapes=False)


def test_the_other_name_of_the_default_domain():
    text = f"g ({INPUTS}) => (float[2] y) {{ {SUM.split('{', 1)[1].strip()}"
    before = parse(f'<ir_version: 8, opset_import: ["ai.onnx": 17]> {text}')
    after, _ = run_pipeline(before)
    assert count(after)["AddStep"] == 1
    assert_same(before, after, feeds(3))
    without = parse('<ir_version: 8, opset_import: ["ai.onnx": 17]> g (float[2] v) => (float[2] y) { y = Neg(v) }')
    assert ir.to_proto(run_pipeline(without)[0]) == ir.to_proto(without)


DEAD_CALL = f"""{HEAD} g ({INPUTS}) => (float[2] y) {{ y = local.inner(v, s) }}
<domain: "local", opset_import: ["": 13]> f (a) => (b) {{ b = Neg(a) }}
<domain: "local", opset_import: ["": 17, "local": 1]> inner (a, s) => (y) {{
  z = local.f(a) n = Constant<value_int = 2>()
  y, t = Loop (n, , a) <body = b (int64 i, bool ci, p) => (bool co, q, r) {{ co = Identity(ci) q = Add(p, s) r = Identity(q) }}>
}}"""
LISTS = """
g (int64 M, float[2] v, float[2] s, float[5,2] x, float[5,2] a) => (float[2] y) {
  two = Constant<value = int64 {2}>() zero = Constant<value = int64[1] {0}>() one = Constant<value = int64[1] {1}>()
  five = Constant<value = int64 {5}>() empty = SequenceEmpty<dtype = 1>()
  l, f1, y, f3 = Loop(M, , empty, x, v, v) <body = b (
    int64 i, bool ci, seq(float[2]) p1, float[5,2] p2, float[2] p3, float[2] p4
  ) => (bool co, seq(float[2]) q1, float[5,2] q2, float[2] q3, float[2] q4) {
    co = Identity(ci) row = Mod(i, five) xi = Gather(x, row) ai = Gather(a, row) q1 = SequenceInsert(p1, ai)
    t = Unsqueeze(ai, zero) u = Reshape(row, one) w = Unsqueeze(u, one) q2 = ScatterND(p2, w, t)
    e = Equal(i, two) d = Add(p3, ai) q3 = Where(e, s, d) q4 = Max(p4, xi)
  }>
  dead = SequenceInsert(l, s)
}"""
NESTED = """
g (int64 M, float[2] v, float[5,2] a) => (float[2] y, float[k,2] t) {
  two = Constant<value = int64 {2}>()
  y, t = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q, float[2] r) {
    co = Identity(ci) x = Gather(a, i)
    q = Loop (two, , p) <body = d (int64 j, bool cj, float[2] z) => (bool cn, float[2] u) {
      cn = Identity(cj) u = Add(z, x) }>
    r = Identity(p)
  }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize(
    "text", [LISTS, NESTED, DEAD_CALL], ids=["a dead reader", "an inner loop that is lowered", "a dead call"]
)
def test_a_second_run_finds_nothing_more(text, target):
    once, _ = run_pipeline(parse(text), target=target)
    twice, _ = run_pipeline(once, target=target)
    assert ir.to_proto(once) == ir.to_proto(twice)


def test_a_loop_that_nothing_reads_is_not_called_lifted():
    text = f"g ({INPUTS}) => (float[2] o) {{ o = Neg(v) y = Loop{SUM.split('y = Loop')[1]}"
    after, (finding,) = run_pipeline(parse(text))
    assert (finding.lifted, finding.reason) == (False, "nothing reads what it makes")
    assert count(after)["Loop"] == 1


BROADCAST = """<ir_version: 3, opset_import: ["": %d]>
g (int64 M, bool c, float[2,2] v, float[2] s) => (float[2,2] y) {
  y = Loop (M, c, v) <body = b (int64 i, bool ci, float[2,2] p) => (bool co, float[2,2] q) { co = Identity(ci) q = %s(p, s) }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize(
    ("opset", "add"),
    [
        (5, "Add<broadcast = 1, axis = 0>"),
        (6, "Add<broadcast = 1>"),
        (7, "Add"),
        (NEWEST + 1, "Add"),
        (99, "Add"),
        (2**62, "Add"),
    ],
)
def test_opsets_whose_operators_were_not_read_are_left_alone(opset, add, target):
    before = parse(BROADCAST % (opset, add))
    after, (finding,) = run_pipeline(before, target=target)
    assert not finding.lifted
    assert f"from opset {OLDEST} to {NEWEST}, and this is opset {opset}: convert the model first" in finding.reason
    assert ir.to_proto(after) == ir.to_proto(before)


def test_a_loop_in_a_function_of_a_newer_opset_is_left_alone():
    function = ONE.replace('["": 17]', f'["": {NEWEST + 1}]')
    before = parse(f"{HEAD} g ({INPUTS}) => (float[2] y) {{ y = local.f(M, v, s) }}\n{function}")
    after, (finding,) = run_pipeline(before)
    assert f"this is opset {NEWEST + 1}" in finding.reason
    assert ir.to_proto(after) == ir.to_proto(before)


def test_the_newest_opset_is_the_one_that_the_tests_go_up_to():
    assert onnx.defs.onnx_opset_version() == NEWEST, "compare its operators by the shape audit, then raise it"


@pytest.mark.parametrize("opset", [8, NEWEST])
def test_the_oldest_and_the_newest_opset_are_lifted(opset):
    after, _ = run_pipeline(parse(BROADCAST % (opset, "Add")))
    assert count(after)["AddStep"] == 1


def test_the_oldest_opset_that_is_lifted():
    before = parse(BROADCAST % (8, "Add"))
    after, _ = run_pipeline(before)
    assert count(after)["AddStep"] == 1
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    feed = {"M": np.array(2), "c": np.array(True), "v": np.eye(2, dtype=np.float32), "s": np.ones(2, np.float32)}
    assert run_ort(after, feed)[0].tobytes() == run_ort(before, feed)[0].tobytes()

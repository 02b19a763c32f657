"""What the analysis says of a carry, in words."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import view_of
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import Invariant, evolution_of

LOOP = """
<ir_version: 8, opset_import: ["" : {opset}]>
agraph (int64 n, {t}[4] x, {t}[4] s, {t}[9,4] r) => ({t}[4] v) {{
  v = Loop (n, "", x) <body = b (int64 i, bool ci, p) => (bool co, u) {{
    co = Identity(ci)
    {body}
  }}>
}}"""


def analysed(body: str, dtype: str = "float", opset: int = 17, exact: bool = True):
    model = ir.from_onnx_text(LOOP.format(body=body, t=dtype, opset=opset))
    (node,) = [node for node in model.graph if node.op_type == "Loop"]
    view = view_of(node, opset)
    types = Types().with_body(view)
    return evolution_of(view.carries[0], view, types, Dependence(view, types), exact=exact)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("u = Add(p, s)", "add-step by 's'"),
        ("u = Add(s, p)", "add-step by 's'"),
        ("u = Sub(p, s)", "add-step by -'s'"),
        ("u = Sub(s, p)", "linear recurrence -1*v + 's'"),
        ("u = Neg(p)", "linear recurrence -1*v"),
        ("a = Neg(p) u = Sub(s, a)", "add-step by 's'"),
        ("a = Neg(p) b = Neg(a) u = Mul(b, s)", "linear recurrence 's'*v"),
        ("t = Gather(r, i) u = Add(p, t)", "prefix sum of 't'"),
        ("t = Gather(r, i) u = Mul(p, t)", "linear recurrence 't'*v"),
        ("t = Gather(r, i) a = Mul(t, p) u = Sub(a, s)", "linear recurrence 't'*v + -'s'"),
        ("a = Neg(p) d = Mul(a, s) u = Add(d, s)", "linear recurrence -'s'*v + 's'"),
        ("u = Neg(s)", "overwritten by 'u'"),
    ],
)
def test_forms(body, words):
    assert str(analysed(body)) == words


NEVER_CHANGES = [
    "u = Identity(p)",
    "a = Identity(p) u = Identity(a)",
    "a = Neg(p) u = Neg(a)",
    "z = Shape(p) u = Reshape(p, z)",
]


@pytest.mark.parametrize("body", NEVER_CHANGES)
def test_a_carry_that_never_changes(body):
    assert isinstance(analysed(body), Invariant)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("m = Mul(p, s) a = Add(m, s) u = Add(a, s)", "two additions in a row"),
        ("a = Add(p, s) u = Mul(a, s)", "a sum is multiplied"),
        ("a = Mul(p, s) u = Mul(a, s)", "two products in a row"),
        ("a = Add(p, s) u = Sub(s, a)", "a negated sum"),
        ("u = Mul(p, p)", "multiplied with itself"),
        ("u = Add(p, p)", "both sides of the sum"),
        ("u = Div(p, s)", "goes through Div"),
        ("u = Add(p, s, s)", "more than two values"),
    ],
)
def test_unknown_forms_say_why(body, reason):
    if "s, s)" in body:
        body = body.replace("Add", "Sum")
    assert reason in str(analysed(body))


def test_integers_join_additions():
    assert str(analysed("a = Add(p, s) d = Sub(a, s) u = Add(d, s)", "int32")) == "add-step by 's' + -'s' + 's'"


def test_floats_join_additions_only_when_bits_are_not_asked_for():
    body = "a = Add(p, s) u = Add(a, s)"
    assert str(analysed(body)) == "prefix sum, in every iteration, of 's', then of 's'"
    assert str(analysed(body, exact=False)) == "add-step by 's' + 's'"


def test_the_type_of_a_carry_is_not_its_value():
    assert str(analysed("k = Constant<value_int = 2>() c = CastLike(k, p) u = Add(p, c)")) == "add-step by 'c'"


def test_the_shape_of_a_carry_that_keeps_it_is_not_its_value():
    body = "z = Shape(p) k = ConstantOfShape<value = float[1] {2}>(z) u = Add(p, k)"
    assert str(analysed(body)) == "add-step by 'k'"


def test_random_numbers_are_not_invariant():
    assert "prefix sum" in str(analysed("k = RandomNormalLike(s) u = Add(p, k)"))

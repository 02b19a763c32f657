"""What verify makes of sums that an engine adds in an order of its own, and that it still sees real differences."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import looplift
from looplift.passes.graph.last_bits import MARK
from looplift.verification.compare import SPREADS, Tolerance, compare
from looplift.verification.last_bits.excuses import Excuses
from looplift.verification.last_bits.rounding import Rounding

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[T,64] x, float[64,64] w) => (float[T,64] y) {
  y = Scan <num_scan_inputs = 1, body = b (float[64] r) => (float[64] o) { o = MatMul(r, w) }> (x)
}"""


def test_a_product_over_time_is_marked_and_reported():
    model = ir.from_onnx_text(TEXT)
    (finding,) = looplift.explain(model)
    assert finding.lifted
    assert any("another order" in action for action in finding.actions)


def test_verify_takes_other_last_bits_of_sums_as_equal():
    model = ir.from_onnx_text(TEXT)
    random = np.random.default_rng(0)
    feeds = {"x": random.standard_normal((300, 64)).astype("f"), "w": random.standard_normal((64, 64)).astype("f")}
    assert looplift.verify(model, looplift.optimize(model), feeds, cases=8)


def test_verify_still_sees_a_wrong_product():
    model = onnx.parser.parse_model(TEXT)
    wrong = looplift.optimize(model)
    (product,) = [node for node in wrong.graph.node if node.op_type == "MatMul"]
    product.input[0], product.input[1] = product.input[0], "w2"
    wrong.graph.node.insert(0, onnx.helper.make_node("Transpose", ["w"], ["w2"], perm=[1, 0]))
    assert not looplift.verify(model, wrong, cases=8)


def test_last_bits_are_measured_against_the_largest_element():
    one = np.array([1.0, 1e-9, np.inf], "f")
    other = np.array([1.0 + 2e-5, -1e-9, np.inf], "f")
    assert compare(one, other, Tolerance(last_bits=True)).equal
    assert not compare(one, other).equal
    assert not compare(one, one * np.float32(1.01), Tolerance(last_bits=True)).equal
    assert not compare(one, np.array([1.0, 1e-9, 5.0], "f"), Tolerance(last_bits=True)).equal


def feeds_of(rows: int, inner: int = 64) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"x": random.standard_normal((rows, inner)).astype("f"), "w": random.standard_normal((64, 64)).astype("f")}


def lifted_and_scaled(factor: float) -> onnx.ModelProto:
    """The lifted product, marked as it should be, and a little too large."""
    wrong = looplift.optimize(onnx.parser.parse_model(TEXT))
    (product,) = [node for node in wrong.graph.node if node.op_type == "MatMul"]
    assert any(entry.key == MARK for entry in product.metadata_props)
    product.output[0] = "right"
    scale = onnx.helper.make_node("Constant", [], ["scale"], value_float=factor)
    wrong.graph.node.extend([scale, onnx.helper.make_node("Mul", ["right", "scale"], ["y"])])
    return wrong


def test_a_mark_excuses_no_more_than_rounding_explains():
    """A factor of 1.0002 is less than 4096 units of the largest element, and far more than the sums may be off."""
    model = onnx.parser.parse_model(TEXT)
    check = looplift.verify(model, lifted_and_scaled(1 + 2**-12), feeds_of(300), cases=0)
    assert check.outcome == "different"
    assert "more than rounding MatMul" in str(check)
    assert looplift.verify(model, lifted_and_scaled(1.0), feeds_of(300), cases=0)


def test_what_is_excused_is_said_with_its_distance_and_its_reason():
    model = onnx.parser.parse_model(TEXT)
    check = looplift.verify(model, lifted_and_scaled(1 + 2**-23), feeds_of(300), cases=0)
    assert check.outcome == "tested"
    assert check.last_bits == ("y",)
    assert check.headline.startswith("equal, bit for bit but for last bits in 'y', in 1 of 1 cases")
    (note, *_) = check.notes
    assert "output 'y' in interpreter: last bits differ in 1 cases, by at most" in note
    assert "of the largest element" in note
    assert "the engine decides how it rounds MatMul" in note
    assert note.endswith("no more than rounding it in another way explains")


ADDED = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[T,4] x, float[4,4] w) => (float[T,4] y, float[T,4] z) {
  y, z = Scan <num_scan_inputs = 1, body = b (float[4] r) => (float[4] o, float[4] q) {
    a = Add(r, r)  o = Add(a, r)  q = %s }> (x)
}"""


def outside(first: str, second: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        agraph (float[T,4] x, float[4,4] w) => (float[T,4] y, float[T,4] z) {{ y = {first} z = {second} }}"""
    )


def marked(model: onnx.ModelProto, *op_types: str, value: str = "sums") -> onnx.ModelProto:
    for node in model.graph.node:
        if node.op_type in op_types:
            node.metadata_props.add(key=MARK, value=value)
    return model


@pytest.mark.parametrize(
    ("body", "first", "second", "op_types"),
    [
        pytest.param("MatMul(r, w)", "Mul(x, scale)", "MatMul(x, w)", ("Mul", "Add"), id="on what rounds in one way"),
        pytest.param("MatMul(r, w)", "Mul(x, scale)", "MatMul(x, w)", ("MatMul",), id="on what does not reach it"),
        pytest.param("Neg(r)", "MatMul(x, scales)", "Neg(x)", ("MatMul",), id="where there was none of its kind"),
    ],
)
def test_a_mark_is_not_believed(body: str, first: str, second: str, op_types: tuple[str, ...]):
    original, wrong = onnx.parser.parse_model(ADDED % body), marked(outside(first, second), *op_types)
    thrice = np.float32(3.0000002)
    for name, array in (("scale", np.full(1, thrice)), ("scales", thrice * np.eye(4, dtype="f"))):
        wrong.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    excuses = Excuses(ir.from_proto(original), ir.from_proto(wrong), seconds=1.0)
    assert excuses.claims(0, everywhere=False) == []
    check = looplift.verify(original, wrong, cases=4)
    assert check.outcome == "different"
    assert check.counterexample.output == "y"


def test_a_mark_is_believed_only_of_what_stood_in_a_loop():
    """A product beside the loop rounds as it did."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[T,4] x, float[4,4] w) => (float[T,4] y) {
      p = MatMul(x, w)
      y = Scan <num_scan_inputs = 1, body = b (float[4] r) => (float[4] o) { o = Mul(r, r) }> (p) }"""
    original, changed = onnx.parser.parse_model(text), onnx.parser.parse_model(text)
    excuses = Excuses(ir.from_proto(original), ir.from_proto(marked(changed, "MatMul")), seconds=1.0)
    assert excuses.claims(0, everywhere=False) == []
    inside = ir.from_onnx_text(TEXT)
    (claim,) = Excuses(inside, looplift.optimize(inside), seconds=1.0).claims(0, everywhere=True)
    assert claim.family == "sums"


def test_a_flipped_choice_is_no_last_bit():
    """Which element is the largest may hang on last bits, but a number of another kind is a difference all the same."""
    text = TEXT.replace("float[T,64] y)", "int64[T] k)").replace("y = Scan", "y = Scan").rstrip().rstrip("}")
    original = onnx.parser.parse_model(text + " k = ArgMax<axis = 1, keepdims = 0>(y) }")
    wrong = looplift.optimize(original)
    wrong.graph.node[-1].op_type = "ArgMin"
    check = looplift.verify(original, wrong, feeds_of(5), cases=0)
    assert check.outcome == "different"
    assert "more than rounding MatMul" in str(check)


PRODUCT = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N,K] a, float[K,M] b) => (float[N,M] y) { p = MatMul(a, b) y = %s }"""


def spread_of(text: str, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    rounding = Rounding(
        ir.from_onnx_text(text), lambda n: n.op_type == "MatMul", lambda n: n.op_type == "Tanh", seconds=10
    )
    found = rounding.spread(feeds)
    assert found is not None
    return found.base[0], found.of(0)


@given(st.integers(1, 300), st.integers(0, 2**32), st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_order_of_adding_stays_within_the_spread(terms: int, seed: int, cancelling: bool):
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal(shape).astype("f") for shape in ((3, terms), (terms, 2)))
    if cancelling:
        a = np.concatenate([a, -a], axis=1)
        b = np.concatenate([b, b + np.float32(1e-6) * b], axis=0)
    base, spread = spread_of(PRODUCT % "Identity(p)", {"a": a, "b": b})
    order = random.permutation(a.shape[1])
    other = np.zeros_like(base)
    for k in order:
        other = other + np.outer(a[:, k], b[k]).astype("f")
    assert np.all(np.abs(other - base) <= SPREADS * spread)
    exact = np.abs(a).astype(float) @ np.abs(b).astype(float)
    assert np.all(spread <= 1.01 * (a.shape[1] + 1) * 2**-23 * exact)


def test_the_spread_follows_what_is_done_with_the_sums():
    random = np.random.default_rng(1)
    feeds = {"a": random.standard_normal((3, 50)).astype("f"), "b": random.standard_normal((50, 2)).astype("f")}
    _, plain = spread_of(PRODUCT % "Identity(p)", feeds)
    _, thousandfold = spread_of(
        (PRODUCT % "Mul(p, c)").replace("y = ", "c = Constant<value_float = 1000.0>() y = "), feeds
    )
    assert np.all((thousandfold > 900 * plain) & (thousandfold < 1100 * plain))
    _, bounded = spread_of(PRODUCT % "Tanh(p)", feeds)
    assert np.all((bounded > 0) & (bounded < plain + 1e-6))
    assert bounded.min() < plain.min() / 2


def test_a_spread_is_held_for_each_element():
    one = np.array([1.0, 1.0], "f")
    other = one + np.array([1e-6, 0], "f")
    assert compare(one, other, Tolerance(last_bits=True, spread=np.array([1e-6, 0.0]))).equal
    assert not compare(one, other, Tolerance(last_bits=True, spread=np.array([0.0, 1e-6]))).equal
    assert compare([one], [other], Tolerance(last_bits=True, spread=[np.array([1e-6, 0.0])])).equal
    assert not compare([one, one], [one, other], Tolerance(last_bits=True, spread=[np.array([1e-6, 0.0])])).equal


HALVES = {
    "a Cast after a Sqrt from outside": "r = Sqrt(h) y = Scan <num_scan_inputs = 1, body = b (float e) => (double[3] o) "
    "{ o = Cast<to = 11>(r) }> (x)",
    "a product before a sum over time": "k = Mul(h, h) y = Scan <num_scan_inputs = 1, body = b (float16[3] e) => "
    "(float16[3] o) { t = Add(e, k) o = Sub(t, h) }> (z)",
}


@pytest.mark.parametrize("name", HALVES)
def test_float16_that_is_rounded_no_more_before_what_was_lifted_is_marked_and_measured(name):
    """ONNX Runtime computes it in float32, and rounds where a loop begins, but not between two nodes of one graph."""
    kind = "double" if "Cast" in name else "float16"
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[T] x, float16[T,3] z, float16[3] h) => ({kind}[T,3] y) {{ {HALVES[name]} }}""")
    after = looplift.optimize(model)
    assert {node.metadata_props.get(MARK) for node in after.graph} >= {"half"}
    random = np.random.default_rng(0)
    feeds = {
        "x": random.standard_normal(50).astype("f"),
        "z": random.standard_normal((50, 3)).astype(np.float16),
        "h": random.uniform(1, 2, 3).astype(np.float16),
    }
    check = looplift.verify(model, after, feeds, cases=4)
    assert check
    assert check.last_bits
    for node in after.graph:
        node.metadata_props.pop(MARK, None)
    assert not looplift.verify(model, after, feeds, cases=0)

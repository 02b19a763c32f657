"""Models that draw random numbers: what depends on them is compared by its type, the rest bit for bit."""

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from looplift.verification.check import verify
from looplift.verification.last_bits.draws import draws_of_outputs

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]> '

LOOP = """g (int64 n, float[4] x) => (float[4] y, float[K, 4] ys, float[4] z) {
  y, ys, z = Loop (n, "", x, x) <body = b (int64 i, bool ci, float[4] v, float[4] w) => (bool co, float[4] v2, float[4] w2, float[4] s) {
    co = Identity(ci)  [noise] r = RandomUniformLike(x)  v2 = Add(v, r)  s = Identity(r)  w2 = %s(w, x) }> }"""
LOOP = LOOP.replace("y, ys, z = Loop", "y, z, ys = Loop")


def model(text: str, functions: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text + functions)


def drawn(text: str, functions: str = "") -> list[tuple[bool, bool]]:
    found = draws_of_outputs(ir.from_proto(model(text, functions)))
    return [(bool(draws), draws.shape) for draws in found]


def test_a_model_that_draws_random_numbers_equals_itself() -> None:
    check = verify(model(LOOP % "Add"), model(LOOP % "Add"), cases=12)
    assert check
    assert check.outcome == "tested"
    assert check.random == ("y", "ys")
    assert "equal, bit for bit but for random numbers in 'y', 'ys', in 12 of 12 cases" in check.headline
    assert "output 'y' depends on random numbers, by RandomUniformLike 'noise' at /y:body: its dtype" in str(check)


def test_what_does_not_depend_on_the_random_numbers_is_compared_bit_for_bit() -> None:
    check = verify(model(LOOP % "Add"), model(LOOP % "Sub"), cases=12)
    assert check.outcome == "different"
    assert check.counterexample.output == "z"


@pytest.mark.parametrize(
    "wrong",
    [
        "g (float[4] x) => (double[4] y) { r = RandomUniformLike<dtype = 11>(x) y = Identity(r) }",
        "g (float[4] x) => (float[5] y) { r = RandomUniform<shape = [5]>() y = Identity(r) }",
    ],
)
def test_dtypes_and_shapes_of_random_numbers_are_compared(wrong: str) -> None:
    right = model("g (float[4] x) => (float y) { r = RandomUniformLike(x) y = Identity(r) }")
    del right.graph.output[0].type.tensor_type.shape.dim[:]
    right.graph.output[0].type.tensor_type.ClearField("shape")
    assert verify(right, right, cases=3).headline.startswith(
        "equal, in all but the random numbers they draw, in 3 of 3"
    )
    assert verify(right, model(wrong), cases=3).outcome == "different"


def test_a_rewritten_model_that_begins_to_draw_differs() -> None:
    fixed = model("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    random = model("g (float[4] x) => (float[4] y) { r = RandomUniformLike(x) y = Add(x, r) }")
    assert verify(fixed, random, cases=3).outcome == "different"


def test_a_failure_that_hangs_on_a_draw_is_no_difference() -> None:
    """Index 0 or 1 of one element: it fails every other time."""
    text = """g (float[1] x) => (float y) {
      half = Constant <value = float[1] {0.5}> () k = Bernoulli <dtype = 7> (half) one = Gather(x, k)
      axis = Constant <value = int64[1] {0}> () y = Squeeze(one, axis) }"""
    for seed in range(3):
        assert verify(model(text), model(text), cases=8, seed=seed, onnxruntime=False).outcome != "different"


FUNCTIONS = """
<domain: "local", opset_import: ["" : 21]>
noisy (a) => (b, c) { r = RandomNormalLike(a) b = Add(a, r) c = Neg(a) }
<domain: "local", opset_import: ["" : 21]>
twice (a) => (b) { b = Add(a, a) }
<domain: "local", opset_import: ["" : 21, "local" : 1]>
deep (a) => (b, c) { b, c = local.noisy(a) }"""

CASES = {
    "a shape is no number": ("r = RandomUniformLike(x) y = Shape(r) z = Identity(r)", [(False, False), (True, False)]),
    "numbers become shapes": ("r = Bernoulli(x) z = NonZero(r) y = Shape(z)", [(True, False), (True, True)]),
    "a type is no number": (
        "r = RandomUniformLike(x) y = CastLike(x, r) z = Add(x, r)",
        [(False, False), (True, False)],
    ),
    "a range": (
        "r = RandomUniform<shape = [1]>() e = Cast<to = 7>(r) y = Expand(x, e) z = Mul(x, r)",
        [(True, True), (True, False)],
    ),
    "a dropout that does not train": ("y = Dropout(x) z = Identity(y)", [(False, False), (False, False)]),
    "a dropout that trains": (
        "h = Constant<value_float = 0.5>() t = Constant<value = bool {1}>() y = Dropout(x, h, t) z = Identity(x)",
        [(True, False), (False, False)],
    ),
    "a function": ("y, z = local.deep(x)", [(True, False), (False, False)]),
    "a function called with random and with other values": (
        "r = RandomUniformLike(x) y = local.twice(r) z = local.twice(x)",
        [(True, False), (False, False)],
    ),
    "a branch": (
        "y = If (c) <then_branch = t () => (float[4] a) { a = RandomNormalLike(x) }, "
        "else_branch = e () => (float[4] b) { b = Identity(x) }> z = Identity(x)",
        [(True, False), (False, False)],
    ),
    "a random condition": (
        "h = Constant<value_float = 0.5>() d = Bernoulli<dtype = 9>(h) "
        "y = If (d) <then_branch = t () => (float[4] a) { a = Neg(x) }, "
        "else_branch = e () => (float[4] b) { b = Identity(x) }> z = Identity(x)",
        [(True, True), (False, False)],
    ),
    "a random trip count": (
        "h = Constant<value_float = 3.5>() d = Bernoulli<dtype = 7>(h) "
        'v, y = Loop (d, "", x) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] q, float[4] s) '
        "{ co = Identity(ci) q = Add(p, x) s = Identity(x) }> z = Identity(x)",
        [(True, True), (False, False)],
    ),
    "a carry that a second one reads an iteration later": (
        'y, z, u = Loop (n, "", x, x, x) <body = b (int64 i, bool ci, float[4] p, float[4] q, float[4] r) '
        "=> (bool co, float[4] p2, float[4] q2, float[4] r2) "
        "{ co = Identity(ci) p2 = Identity(q) q2 = Identity(q) r2 = RandomNormalLike(r) }>",
        [(False, False), (False, False)],
    ),
    "carries that hand it on": (
        'y, z, u = Loop (n, "", x, x, x) <body = b (int64 i, bool ci, float[4] p, float[4] q, float[4] r) '
        "=> (bool co, float[4] p2, float[4] q2, float[4] r2) "
        "{ co = Identity(ci) p2 = Identity(q) q2 = Identity(r) r2 = RandomNormalLike(r) }>",
        [(True, False), (True, False)],
    ),
    "a scan": (
        "y, z = Scan <num_scan_inputs = 1, body = b (float[4] s, float e) => (float[4] t, float f) "
        "{ k = RandomNormalLike(s) t = Identity(s) f = Identity(e) }> (x, x)",
        [(False, False), (False, False)],
    ),
    "an op that nobody knows": (
        "r = RandomNormalLike(x) y = far.Away(r) z = far.Away(x)",
        [(True, True), (False, False)],
    ),
}


@pytest.mark.parametrize(("body", "wanted"), CASES.values(), ids=CASES.keys())
def test_random_numbers_are_followed(body: str, wanted: list[tuple[bool, bool]]) -> None:
    text = f"g (int64 n, bool c, float[4] x) => (y, z) {{ {body} }}"
    assert drawn(text, FUNCTIONS) == wanted


def test_functions_that_call_each_other_twice_are_followed_once() -> None:
    chain = "".join(
        f'<domain: "local", opset_import: ["" : 21, "local" : 1]> f{k} (a) => (b) '
        f"{{ p = local.f{k + 1}(a) b = local.f{k + 1}(p) }}\n"
        for k in range(30)
    )
    last = '<domain: "local", opset_import: ["" : 21]> f30 (a) => (b) { b = RandomNormalLike(a) }'
    assert drawn("g (float[4] x) => (y) { y = local.f0(x) }", "\n" + chain + last) == [(True, False)]

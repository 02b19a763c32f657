"""Loops that stay come out with the same bits: depth, neighbours and known shapes are part of them."""

from __future__ import annotations

import numpy as np
import pytest

from looplift.passes import run_pipeline
from looplift.passes.graph.last_bits import MARK
from tests.engine_bits import differs, drawn, given
from tests.helpers import ops

K, N = 300, 24

ONE = f"""main (int64 M, {{inputs}}, float[1,{N}] v) => (float[1,{N}] y) {{{{
    {{before}}
    y = Loop (M, , v) <body = b (int64 i, bool c, {{previous}}) => (bool d, {{updated}}) {{{{
        d = Identity (c) {{body}} sq = Mul (g, g) dq = Sub (g, sq) q = Tanh (dq) }}}}>
}}}}"""

NESTED = f"""main (int64 M, {{inputs}}, float[1,{N}] v) => (float[1,{N}] y) {{{{
    y = Loop (M, , v) <body = a (int64 i, bool c, float[1,{N}] p) => (bool d, float[1,{N}] q) {{{{
        d = Identity (c)
        q = Loop (M, , p) <body = b (int64 j, bool e, float[1,{N}] r) => (bool f, float[1,{N}] s) {{{{
            f = Identity (e) {{body}} sq = Mul (g, g) dq = Sub (g, sq) s = Tanh (dq) }}}}>
    }}}}>
}}}}"""


def one(body: str, inputs: str, *, carried: str = "", declared: str = f"float[1,{N}]", before: str = "") -> str:
    """A loop that computes g from p; `carried` names more that it carries and never changes."""
    text = ONE.format(
        inputs=inputs,
        body=body,
        before=before,
        previous=", ".join([f"{declared} p", *(f"float {name}_" for name in carried.split())]),
        updated=", ".join([f"{declared} q", *(f"float {name}_" for name in carried.split())]),
    )
    more = "".join(f", {name}" for name in carried.split())
    return text.replace("y = Loop (M, , v)", f"y{more.replace(', ', ', end_')} = Loop (M, , v{more})")


X = f"float[1,{K}] x"
SQUARE = np.eye(N, dtype=np.float32) + drawn(N, N)
CASES = {
    "a product in a loop in a loop, whose weight is packed one further out": (
        NESTED.format(inputs=f"{X}, float[{K},{N}] w", body="h = MatMul (x, w) g = Add (r, h)"),
        {"w": drawn(K, N)},
        {"x": drawn(1, K)},
    ),
    "a carried weight, packed where it is read from outside": (
        one("g = MatMul (p, w_)", f"float[{N},{N}] w", carried="w"),
        {"w": SQUARE},
        {},
    ),
    "a Transpose and its product": (
        one("t = Transpose <perm = [1, 0]> (w) g = MatMul (p, t)", f"float[{N},{N}] w"),
        {},
        {"w": SQUARE},
    ),
    "a Transpose and its Gemm": (
        one(
            "t = Transpose <perm = [1, 0]> (w) h = Gemm (x, t) g = Add (p, h)", f"{X}, float[{N},{K}] w, float[1,{N}] k"
        ),
        {},
        {"x": drawn(1, K), "w": drawn(N, K), "k": drawn(1, N)},
    ),
    "a scale and its product": (
        one("t = Mul (w, k) g = MatMul (p, t)", f"float[{N},{N}] w, float k"),
        {"k": np.array(0.7, np.float32)},
        {"w": SQUARE},
    ),
    "a reciprocal and its product": (
        one("t = Div (k, w) g = Mul (p, t)", f"float[1,{N}] w, float k"),
        {"k": np.array(1, np.float32)},
        {"w": drawn(1, N) + 3},
    ),
    "a product and a bias": (
        one("h = MatMul (x, w) g = Add (h, p)", f"{X}, float[{K},{N}] w"),
        {"w": drawn(K, N)},
        {"x": drawn(1, K)},
    ),
    "a bias whose shape is known only outside": (
        one(
            "k = Gather (x, i) h = MatMul (k, w) n = Add (h, b_) g = Add (n, p)",
            f"float[5,1,{K}] x, float[{K},{N}] w, float[{N}] b",
            carried="b",
        ),
        {"w": drawn(K, N)},
        {"x": drawn(5, 1, K), "b": drawn(N)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loop_that_stays_keeps_its_bits(name):
    text, constants, feeds = CASES[name]
    subject = given(text, **constants)
    feeds = {"M": np.array(3), "v": drawn(1, N), **feeds}
    careless, _ = run_pipeline(subject, exact=False)
    assert differs(subject, careless, feeds), "the case shows nothing: without care the bits are the same"
    assert any(MARK in node.metadata_props for node in careless.graph.all_nodes()), "what may differ is not marked"
    for target in ("kernel", "standard"):
        after, _ = run_pipeline(subject, target=target)
        assert not differs(subject, after, feeds)
        assert not any(MARK in node.metadata_props for node in after.graph.all_nodes())


def test_shapes_that_a_body_declares_come_back():
    """Without them the engine makes no Gemm of a product and a bias; something else in the loop is simplified."""
    text = one(
        "h = MatMul (p, w) g = Add (h, b) z = Add (o_, o_)", f"float[{N},{N}] w, float[{N}] b, float[2] o", carried="o"
    )
    subject = given(text, w=SQUARE)
    after, (finding,) = run_pipeline(subject)
    assert finding.actions
    (loop,) = [node for node in after.graph if node.op_type == "Loop"]
    (product,) = [node for node in loop.attributes["body"].as_graph() if node.op_type == "MatMul"]
    assert list(product.inputs[0].shape) == [1, N]


def test_a_loop_does_not_become_a_scan_whose_body_knows_more_shapes():
    text = one("k = Gather (x, i) h = MatMul (p, w) n = Add (h, k) g = Tanh (n)", f"float[5,1,{N}] x, float[{N},{N}] w")
    subject = given(text.replace("p) =>", "p_) =>").replace("(p, w)", "(p_, w)"), w=SQUARE)
    after, _ = run_pipeline(subject)
    assert "Scan" not in ops(after.graph)
    declared = given(text, w=SQUARE)
    after, _ = run_pipeline(declared)
    assert "Scan" in ops(after.graph)
    assert not differs(declared, after, {"M": np.array(3), "v": drawn(1, N), "x": drawn(5, 1, N)})


def test_a_product_that_others_read_stays_so():
    """Where nothing else reads a product, ONNX Runtime makes a Gemm of it and its bias."""
    text = f"""main (int64 M, float[1,{N}] v, float[{N},{N}] w, float[{N}] b) => (float[1,{N}] y) {{
        y, z = Loop (M, , v) <body = a (int64 i, bool c, float[1,{N}] p) => (bool d, float[1,{N}] q, float[1,{N}] h) {{
            d = Identity (c) h = MatMul (p, w) g = Add (h, b) s = Mul (g, g) u = Sub (g, s) q = Tanh (u) }}>
    }}"""
    subject = given(text, w=SQUARE)
    after, _ = run_pipeline(subject)
    assert not differs(subject, after, {"M": np.array(3), "v": drawn(1, N), "b": drawn(N)})


def test_what_rounds_the_same_everywhere_still_moves():
    subject = given(one("t = Mul (k, k) u = Tanh (t) g = Add (p, u)", f"float[1,{N}] k"))
    after, (finding,) = run_pipeline(subject)
    assert finding.actions == ("hoisted Mul, Tanh out of the body",)
    assert not differs(subject, after, {"M": np.array(3), "v": drawn(1, N), "k": drawn(1, N)})


def test_what_moves_with_a_lift_is_marked_and_told():
    """The product is the same in each iteration of a loop in a loop; outside it ONNX Runtime packs its weight."""
    text = f"""main (int64 M, float[1,{K}] x, float[{K},{N}] w, float[1,{N}] v) => (float[1,{N}] y) {{
        y = Loop (M, , v) <body = a (int64 i, bool c, float[1,{N}] p) => (bool d, float[1,{N}] q) {{
            d = Identity (c)
            q = Loop (M, , p) <body = b (int64 j, bool e, float[1,{N}] r) => (bool f, float[1,{N}] s) {{
                f = Identity (e) h = MatMul (x, w) s = Add (r, h) }}>
        }}>
    }}"""
    after, findings = run_pipeline(given(text, w=drawn(K, N)))
    assert all(finding.lifted for finding in findings)
    (product,) = [node for node in after.graph.all_nodes() if node.op_type == "MatMul"]
    assert product.metadata_props[MARK] == "products"
    assert any("may round differently" in action for finding in findings for action in finding.actions)


ROWS = """main (double[5,5] v, double[5,5,5] x) => (double[5,5,5] y) {{
    {names} = Scan <num_scan_inputs = 1, body = b (double[5,5] p{carried}, double[5,5] row)
        => (double[5,5] q{updated}, double[5,5] r) {{ {body} w = Mul (p, p) h = Tanh (w) q = Sub (row, h) }}> (v{initial}, x) }}"""


ON_ROWS = {
    "v": np.random.default_rng(0).integers(-3, 4, (5, 5)).astype(np.float64),
    "x": np.random.default_rng(9).integers(-3, 4, (5, 5, 5)).astype(np.float64),
}


def rows(body: str, *, dead: str = "") -> str:
    """A Scan that stacks r; `dead` is what another state, on which nothing depends, becomes."""
    more = (", double[5,5] z", f", double[5,5] {dead}", ", v", "f, g, y") if dead else ("", "", "", "f, y")
    return ROWS.format(body=body, carried=more[0], updated=more[1], initial=more[2], names=more[3])


PLACED = {
    "a copy in front of a stack": (rows("e = Exp (p) r = Identity (e)", dead="p"), {"Identity"}),
    "two copies": (rows("e = Exp (p) c = Identity (e) r = Identity (c)", dead="p"), {"Identity"}),
    "a product by one": (rows("o = Constant <value = double {1.0}> () e = Exp (p) r = Mul (e, o)", dead="p"), set()),
    "another reader, on which nothing depends": (rows("e = Exp (p) r = Identity (e) u = Add (z, e)", dead="u"), set()),
    "a copy of a row": (rows("c = Identity (row) s = Sin (c) r = Add (s, p)", dead="p"), {"Identity"}),
    "a branch that is always taken": (
        rows(
            "t = Constant <value = bool {1}> () e = If (t) <then_branch = a () => (double[5,5] j) { i = Exp (p) "
            "j = Identity (i) }, else_branch = l () => (double[5,5] k) { k = Neg (p) }> r = Identity (e)",
            dead="p",
        ),
        set(),
    ),
}


@pytest.mark.parametrize("name", PLACED)
def test_what_a_scan_stacks_lies_where_it_lay(name):
    """Exp of doubles rounds by the address that it writes to; others may by the one that they read from."""
    text, kept = PLACED[name]
    subject = given(text)
    for target in ("kernel", "standard"):
        after, _ = run_pipeline(subject, target=target)
        assert not differs(subject, after, ON_ROWS)
        assert kept <= set(ops(after.graph))


def test_without_the_copy_the_bits_are_others():
    assert differs(given(rows("e = Exp (p) r = Identity (e)")), given(rows("r = Exp (p)")), ON_ROWS)


def test_what_left_a_stack_with_its_loop_is_marked():
    after, (finding,) = run_pipeline(given(rows("e = Exp (v) r = Identity (e)")))
    assert finding.lifted
    (moved,) = [node for node in after.graph if node.op_type == "Exp"]
    assert moved.metadata_props[MARK] == "functions"

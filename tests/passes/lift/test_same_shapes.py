"""Extents that nothing proves equal are compared when the model runs; the loop as it was stands in the other branch."""

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import looplift
from looplift.report import outcome
from tests.helpers import assert_same, model, ops

GAE = """g (float[T,{r}] r, float[T2,{v}] v, float[{h}] h) => (float[?] w, float[?,?] z) {{
  l = Shape(r)
  zero = Constant<value = int64 {{0}}>()
  n = Gather(l, zero)
  decay = Constant<value = float {{0.9}}>()
  w, z = {loop}
}}"""
LOOP = """Loop (n, , h) <body = b (int64 i, bool c, float[?] p) => (bool d, float[?] q, float[?] o) {
    d = Identity(c)
    a = Gather(r, i)
    e = Gather(v, i)
    x = Mul(a, e)
    y = Mul(decay, p)
    q = Add(x, y)
    o = Identity(q)
  }>"""
SCAN = """Scan <num_scan_inputs = 2, body = b (float[?] p, float[?] a, float[?] e) => (float[?] q, float[?] o) {
    x = Mul(a, e)
    y = Mul(decay, p)
    q = Add(x, y)
    o = Identity(q)
  }> (h, r, v)"""


def feeds(rows: int, r: int, v: int, h: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {
        "r": rng.standard_normal((rows, r)).astype(np.float32),
        "v": rng.standard_normal((rows, v)).astype(np.float32),
        "h": rng.standard_normal(h).astype(np.float32),
    }


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"r": "A", "v": "B", "h": "C"}, "'A' and 'B' and 'C'"),
        ({"r": "?", "v": "?", "h": "?"}, "'h:0' and 'r:1' and 'v:1'"),
        ({"r": "A", "v": "A", "h": "C"}, "'A' and 'C'"),
        ({"r": "A", "v": "3", "h": "A"}, "3 and 'A'"),
    ],
)
def test_asks_whether_they_are_equal(dims, words, target):
    before = model(GAE.format(loop=LOOP, **dims))
    (finding,) = looplift.explain(before, target)
    assert outcome(finding) == "reduced", finding
    assert finding.reason.startswith(f"it runs as it was where {words} differ: name these dims alike when exporting")
    assert finding.actions[0] == f"asked before it runs whether {words} are equal"
    assert (finding.node, finding.path) == ("w", "/")
    after = looplift.optimize(before, target=target)
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    (choice,) = (node for node in after.graph if node.op_type == "If" and node.name.endswith("same_shapes"))
    equal, otherwise = (choice.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
    assert "Loop" not in ops(equal)
    assert {"Loop", "Scan"} & set(ops(otherwise))
    sizes = [
        (3, 3, 3),
        (3, 3, 1),
        (1, 3, 1),
        (3, 1, 3),
        (1, 3, 3),
        (0, 0, 0),
        (1, 0, 1),
        (1, 1, 1),
        (2, 3, 3),
        (2, 2, 3),
    ]
    for rows, (r, v, h) in itertools.product((0, 1, 4), sizes):
        named = {dim: size for dim, size in zip(dims.values(), (r, v, h), strict=True) if dim != "?"}
        consistent = all(named.get(dim, size) == size for dim, size in zip(dims.values(), (r, v, h), strict=True))
        if consistent and named.get("3", 3) == 3:  # a name has one size, and a number is one
            assert_same(before, after, feeds(rows, r, v, h), empty_shapes=False)


def test_a_scan_asks_too():
    before = model(GAE.format(loop=SCAN, r="A", v="B", h="C").replace("T2", "T"))
    for target in ("kernel", "standard"):
        after = looplift.optimize(before, target=target)
        for rows, sizes in ((1, (3, 3, 3)), (4, (3, 3, 3)), (4, (3, 1, 3))):
            assert_same(before, after, feeds(rows, *sizes))


@pytest.mark.parametrize(
    "text",
    [
        GAE.format(loop=LOOP.replace("q = Add(x, y)", "t = Tanh(p) q = Add(x, t)"), r="A", v="B", h="C"),
        GAE.format(loop=LOOP, r="4", v="3", h="3"),
        GAE.format(loop=LOOP.replace("x = Mul(a, e)", "k = MatMul(a, e) x = Add(a, e)"), r="A", v="B", h="C"),
        GAE.format(loop=LOOP, r="A", v="A", h="A"),
    ],
    ids=["no recurrence", "never equal", "a product", "equal for certain"],
)
def test_does_not_ask_in_vain(text):
    assert not any(node.op_type == "If" for node in looplift.optimize(model(text)).graph)


def test_only_the_loop_that_gains_asks():
    text = GAE.format(loop=LOOP, r="A", v="B", h="C").replace(
        "w, z =", f"u, y2 = {LOOP.replace('q = Add(x, y)', 't = Tanh(y) s = Mul(a, t) q = Add(s, e)')}\n  w, z ="
    )
    text = text.replace("=> (float[?] w,", "=> (float[?] u, float[?,?] y2, float[?] w,")
    after = looplift.optimize(model(text))
    assert ops(after.graph).count("If") == 1
    assert [outcome(finding) == "reduced" for finding in looplift.explain(model(text))] == [False, True]
    assert_same(model(text), after, feeds(3, 2, 2, 2))


def test_with_dims_that_are_said_to_be_equal_nothing_is_asked():
    before = model(GAE.format(loop=LOOP, r="A", v="B", h="C"))
    after = looplift.optimize(before, same_dims=[("A", "B"), ("B", "C")])
    assert "If" not in ops(after.graph)
    assert "Loop" not in ops(after.graph)

"""Loops that become Scans: what their bodies do, where they stand, and that they may run no iteration."""

import numpy as np
import pytest

from looplift.passes.pipeline import run_pipeline
from looplift.passes.targets.loop_to_scan import LoopToScan
from tests.helpers import apply, assert_same, find, model, ops, run_ort
from tests.passes.places import assert_same_everywhen, everywhere
from tests.passes.row_loops import STEP, assert_same_in_session, feeds, loop


@pytest.mark.parametrize(
    ("trips", "cond", "x", "more"),
    [
        ("M", "", "float[n,2]", ""),
        ("M", "keep", "float[n,2]", ""),
        ("five", "keep", "float[5,2]", ""),
        ("n", "", "float[n,2]", "shape = Shape(x)\n at = Constant<value_int=0>()\n n = Gather(shape, at)"),
        ("n", "keep", "float[n,2]", "shape = Shape(x)\n n = Gather(shape, zero)"),
        ("M1", "keep1", "float[n,2]", "M1 = Reshape(M, one)\n keep1 = Reshape(keep, one)"),
    ],
)
def test_a_loop_that_may_run_no_iteration_stands_in_a_branch(trips, cond, x, more):
    flag = "bool[1]" if cond == "keep1" else "bool"
    before = loop(f"r = Gather(x, i)\n{STEP}", trips=trips, cond=cond, x=x, flag=flag, more=more)
    after = apply(before, LoopToScan())
    assert set(ops(after.graph)) >= {"If", "Scan"}
    assert "Loop" not in ops(after.graph)
    for count in (-1, 0, 1, 2, 5, 6, 17):
        for keep in (True, False):
            rows = max(count, 0) if trips == "n" else 5
            assert_same(before, after, feeds((rows, 2), count, keep))
            if run_ort(before, feeds((rows, 2), count, keep)) is not None:
                assert_same_in_session(before, after, feeds((rows, 2), count, keep))


def test_as_many_rows_as_iterations_are_read_where_they_are():
    more = "shape = Shape(x)\n n = Gather(shape, zero)"
    after = apply(loop(f"r = Gather(x, i)\n{STEP}", trips="n", x="float[n,2]", more=more), LoopToScan())
    branch = find(after, "If").attributes["then_branch"].as_graph()
    assert [node.op_type for node in branch] == ["Scan"]


@pytest.mark.parametrize(
    ("body", "row"),
    [
        ("r = Gather(x, i)\n w = Add(v, r)\n y = Identity(i)", "int64[]"),  # the number itself is stacked
        ("r = Gather(x, i)\n n = Cast<to=1>(i)\n q = Mul(r, n)\n w = Mul(v, q)\n y = Identity(w)", "float[2]"),
        ("r = Gather(x, i)\n w = Mul(v, r)\n y = Identity(v)", "float[2]"),
        ("w = Gather(x, i)\n y = Mul(v, w)", "float[2]"),  # the state is the row
        ("y = Gather(x, i)\n w = Identity(v)", "float[2]"),
        ("r = Gather(x, i)\n w = Mul(v, r)\n y = Identity(c)", "bool[]"),  # the cond is stacked
        ("r = Gather(x, i)\n q = Where(c, r, v)\n w = Mul(v, q)\n y = Identity(w)", "float[2]"),
        ("r = Gather(x, i)\n q = Gather(x, i)\n m = Mul(v, q)\n w = Add(m, r)\n y = Identity(w)", "float[2]"),
        (
            "r = Gather(x, i)\n h = Gather(x, one)\n q = Squeeze(h, zero)\n m = Mul(v, q)\n w = Add(m, r)\n y = Neg(w)",
            "float[2]",
        ),
        ("r = Gather(x, i)\n w = Mul(v, r)\n y = Constant<value_floats=[1.0,2.0]>()", "float[2]"),
        (
            """r = Gather(x, i)
               w = If(c) <then_branch = t () => (float[2] a) { q = Gather(x, i) a = Mul(q, r) },
                          else_branch = e () => (float[2] b) { b = Identity(v) }>
               y = Identity(r)""",
            None,
        ),
    ],
)
def test_what_else_the_body_does(body, row):
    before = loop(body, row=row or "float[2]")
    after = apply(before, LoopToScan(), expect=row is not None)  # the shape that an If gives is not known
    assert_same(before, after, feeds((5, 2)))
    assert_same_in_session(before, after, feeds((5, 2)))


def test_body_outputs_without_a_node_of_their_own_are_copied():
    before = model("""agraph (float[5,2] x, float[2] v0, float[2] u0)
            => (float[2] v9, float[2] u9, float[k,2] r9, float[k,2] s9) {
        five = Constant<value_int=5>()
        v9, u9, r9, s9 = Loop(five, , v0, u0) <body = b (int64 i, bool c, float[2] v, float[2] u)
                => (bool c, float[2] u, float[2] w, float[2] w, float[2] v) {
            r = Gather(x, i)
            s = Mul(u, r)
            w = Add(s, v)
        }>
    }""")
    after = apply(before, LoopToScan())
    assert_same(before, after, {**feeds((5, 2)), "u0": np.array([2, 0.5], np.float32)})


def test_a_body_initializer_is_returned():
    before = model("""agraph (float[5,2] x, float[2] v0) => (float[2] last, float[k,2] rows) {
        five = Constant<value_int=5>()
        last, rows = Loop(five, , v0) <body = b (int64 i, bool c, float[2] v) => (bool yes, float[2] w, float[2] same)
                <bool yes = {1}, float[2] same = {3, 4}> {
            r = Gather(x, i)
            s = Mul(v, r)
            w = Add(s, same)
        }>
    }""")
    assert_same(before, apply(before, LoopToScan()), feeds((5, 2)))


def test_what_the_body_declares_is_not_trusted():
    """A Loop does not tell its body the shapes of carried values, so wrong ones go unnoticed."""
    before = model("""agraph (float[5,2] x, float[2] v0) => (float[a] last) {
        five = Constant<value_int=5>()
        last = Loop(five, , v0) <body = b (int64 i, bool c, float[n] v) => (bool d, float[9] w) {
            d = Identity(c)
            n = Shape(v)
            r = Gather(x, i)
            p = Expand(v, n)
            s = Mul(p, r)
            w = Expand(s, n)
        }>
    }""")
    after = apply(before, LoopToScan())
    body = find(after, "Scan").attributes["body"].as_graph()
    assert [list(value.shape) for value in (*body.inputs, *body.outputs)] == [[2], [2], [2]]
    assert_same(before, after, feeds((5, 2)))


def test_no_rows_where_the_cond_is_false_whatever_the_limit():
    before = loop(f"r = Gather(x, i)\n{STEP}", cond="keep")
    find(before, "Loop").outputs[1].shape = None
    branches = find(apply(before, LoopToScan()), "If")
    assert list(branches.outputs[1].shape) == [None, 2]


def test_the_iteration_number_keeps_its_rank():
    before = loop(
        "k = Cast<to=1>(i)\n r = Gather(x, i)\n q = Squeeze(r, zero)\n s = Add(q, k)\n w = Tanh(s)\n y = Identity(w)",
        iteration="int64[1]",
    )
    after = apply(before, LoopToScan())
    assert_same(before, after, feeds((5, 2)))


def test_no_state_at_all():
    before = model("""agraph (float[5,2] x) => (float[k,2] rows) {
        five = Constant<value_int=5>()
        true = Constant<value = bool {1}>()
        rows = Loop(five, true) <body = b (int64 i, bool c) => (bool d, float[2] y) {
            d = Identity(c)
            r = Gather(x, i)
            y = Neg(r)
        }>
    }""")
    assert_same(before, apply(before, LoopToScan()), feeds((5, 2)))


def test_extents_of_empty_stacks():
    """They are looked up around the loop: one number, one of the state's, one of the rows'."""
    before = model("""agraph (float[n,B,3] x, float[B,4] v0, float[3,4] A, int64 M)
            => (float[a,b] last, float[k,B,7] rows) {
        last, rows = Loop(M, , v0) <body = b (int64 i, bool c, float[p,q] v) => (bool d, float[p,q] w, float[e,f] y) {
            d = Identity(c)
            r = Gather(x, i)
            m = MatMul(r, A)
            s = Add(v, m)
            w = Tanh(s)
            y = Concat<axis=1>(w, r)
        }>
    }""")
    after = apply(before, LoopToScan())
    rng = np.random.default_rng(0)
    for count in (-1, 0, 1, 4, 6):
        feed = {"M": np.array(count, np.int64), "x": rng.normal(size=(5, 2, 3)).astype(np.float32)}
        feed |= {"v0": np.ones((2, 4), np.float32), "A": np.ones((3, 4), np.float32)}
        assert_same(before, after, feed, empty_shapes=False)
        if count <= 5:
            assert_same_in_session(before, after, feed)
    feed["M"] = np.array(0, np.int64)
    assert run_ort(after, feed)[1].shape == (0, 2, 7)


ROWS = """y, t = Loop(M, c, v) <
  body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] u, float[2] w) {
    co = Identity(ci)
    r = Gather(s, i)
    q = Mul(p, r)
    u = Tanh(q)
    w = Identity(u)
  }
>"""


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body"])
def test_everywhere(place):
    before = everywhere(ROWS)[place]
    after = apply(before, LoopToScan())
    assert ops(after.graph).count("Loop") == (place == "Loop body")
    assert_same_everywhen(before, after)  # s has two rows: 17 iterations fail in both


def test_shapes_that_are_not_known():
    """A function's inputs have none."""
    apply(everywhere(ROWS)["function"], LoopToScan(), expect=False)


def test_a_loop_in_a_loop():
    before = model("""agraph (float[3,5,2] x, float[2] v0, int64 M) => (float[2] last, float[3,k,2] rows) {
        three = Constant<value_int=3>()
        last, rows = Loop(three, , v0) <body = o (int64 j, bool again, float[2] u)
                => (bool more, float[2] t, float[k,2] ys) {
            more = Identity(again)
            now = Gather(x, j)
            v, ys = Loop(M, , v0) <body = b (int64 i, bool c, float[2] p) => (bool d, float[2] w, float[2] y) {
                d = Identity(c)
                r = Gather(now, i)
                q = Mul(p, r)
                w = Tanh(q)
                y = Identity(w)
            }>
            t = Identity(u)
        }>
    }""")
    after = apply(before, LoopToScan())
    assert [ops(after.graph).count(op_type) for op_type in ("Loop", "If", "Scan")] == [1, 1, 1]
    for trips in (-1, 0, 1, 5, 6):
        assert_same(before, after, feeds((3, 5, 2), trips))


GRU = """agraph (float[n,2,4] x, float[2,3] h0, float[4,9] W, float[3,9] U) => (float[2,3] last, float[k,2,3] rows) {
    shape = Shape(x)
    at = Constant<value_int=0>()
    n = Gather(shape, at)
    last, rows = Loop(n, , h0) <body = b (int64 i, bool c, float[2,3] h) => (bool d, float[2,3] new, float[2,3] out) {
        d = Identity(c)
        parts = Constant<value_ints=[6,3]>()
        now = Gather(x, i)
        gx = MatMul(now, W)
        gh = MatMul(h, U)
        zrx, nx = Split<axis=-1>(gx, parts)
        zrh, nh = Split<axis=-1>(gh, parts)
        zr = Add(zrx, zrh)
        gates = Sigmoid(zr)
        z, r = Split<axis=-1>(gates)
        reset = Mul(r, nh)
        candidate = Add(nx, reset)
        proposed = Tanh(candidate)
        difference = Sub(h, proposed)
        weighted = Mul(z, difference)
        new = Add(proposed, weighted)
        out = Identity(new)
    }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_in_the_pipeline(target):
    before = model(GRU)
    after, (finding,) = run_pipeline(before, target=target)
    again, findings = run_pipeline(after, target=target)
    assert "Loop" not in ops(after.graph)
    assert ops(again.graph) == ops(after.graph)
    assert not finding.lifted
    assert "made it a Scan over the rows that it reads" in finding.actions
    assert [f.op_type for f in findings] == ["Scan"]
    rng = np.random.default_rng(0)
    for rows in (0, 1, 12):
        feed = {
            name: rng.normal(size=shape).astype(np.float32)
            for name, shape in {"x": (rows, 2, 4), "h0": (2, 3), "W": (4, 9), "U": (3, 9)}.items()
        }
        for result in (after, again):
            assert_same(before, result, feed)
            assert_same_in_session(before, result, feed)

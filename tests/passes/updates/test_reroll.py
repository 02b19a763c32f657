"""Loops that were unrolled in part are rolled up."""

import numpy as np
import pytest

from looplift.passes.stack.stack_sequences import StackSequences
from looplift.passes.updates.reroll import Reroll
from looplift.patterns.graph.constants import scalar
from tests.helpers import apply, assert_same, find, model, ops

TRIPS = [-1, 0, 1, 2, 17]


def loop(body, *, opset=17, count="int64 M", outputs="float[4] v2", carries="float[4] v"):
    """A loop over v (and w) whose body is given; step and other are captured."""
    two = "w" in carries
    starts, finals, declared = ("x, y", "a, b", "float[4] a, float[4] b") if two else ("x", "a", "float[4] a")
    return model(
        f"""agraph (float[4] x, float[4] y, float[4] step, float[4] other, {count}, bool go) => ({declared}) {{
            {finals} = Loop(M, go, {starts}) <body = b (int64 i, bool c, {carries}) => (bool d, {outputs}) {{
                d = Identity(c)
                {body}
            }}>
        }}""",
        opset,
    )


def feeds(trips, go=True, shape=()):
    rng = np.random.default_rng(3)
    names = ("x", "y", "step", "other")
    floats = {name: rng.normal(size=4).astype(np.float32) for name in names}
    return {**floats, "M": np.full(shape, trips, np.int64), "go": np.array(go)}


def check(before, left):
    after = apply(before, Reroll())
    assert ops(find(after, "Loop").attributes["body"].as_graph()) == left
    for trips in TRIPS:
        for go in (True, False):
            shape = tuple(before.graph.inputs[4].shape)
            assert_same(before, after, feeds(trips, go, shape))
    return after


@pytest.mark.parametrize("count", ["int64 M", "int64[1] M"])
@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("p = Add(v, step)\n v2 = Add(p, step)", ["Identity", "Add"]),
        ("p = Add(v, step)\n q = Add(p, step)\n v2 = Add(q, step)", ["Identity", "Add"]),
        ("p = Add(v, step)\n r = Identity(p)\n q = Add(r, step)\n v2 = Identity(q)", ["Identity", "Add"]),
        # two different steps in turn, three times over: one iteration keeps both, in their order
        (
            "p = Add(v, step)\n q = Add(p, other)\n r = Add(q, step)\n s = Add(r, other)\n t = Add(s, step)\n"
            "v2 = Add(t, other)",
            ["Identity", "Add", "Add"],
        ),
        ("m = Mul(v, other)\n p = Add(m, step)\n n = Mul(p, other)\n v2 = Add(n, step)", ["Identity", "Mul", "Add"]),
        (
            "k = Constant<value_float=0.1>()\n p = Mul(v, k)\n l = Constant<value_float=0.1>()\n v2 = Mul(p, l)",
            ["Identity", "Constant", "Mul"],
        ),
        ("p = Neg(v)\n q = Neg(p)\n r = Neg(q)\n v2 = Neg(r)", ["Identity", "Neg"]),
    ],
)
def test_equal_steps_become_iterations(body, left, count):
    check(loop(body, count=count), left)


def test_steps_that_can_not_be_lifted_stay_unrolled():
    apply(loop("p = Cos(v)\n q = Cos(p)\n v2 = Cos(q)"), Reroll(), expect=False)


def test_several_carries_roll_up_together():
    body = """v1 = Add(v, w)
              w1 = Add(w, step)
              v2 = Add(v1, w1)
              w2 = Add(w1, step)"""
    check(loop(body, carries="float[4] v, float[4] w", outputs="float[4] v2, float[4] w2"), ["Identity", "Add", "Add"])


def test_carries_out_of_step_stay():
    body = """v1 = Add(v, w)
              v2 = Add(v1, w)
              w1 = Add(w, step)
              w2 = Add(w1, step)"""
    before = loop(body, carries="float[4] v, float[4] w", outputs="float[4] v2, float[4] w2")
    apply(before, Reroll(), expect=False)


def test_carries_with_different_numbers_of_steps_stay():
    body = """v1 = Add(v, step)
              v2 = Add(v1, step)
              w0 = Add(w, other)
              w1 = Add(w0, other)
              w2 = Add(w1, other)"""
    before = loop(body, carries="float[4] v, float[4] w", outputs="float[4] v2, float[4] w2")
    apply(before, Reroll(), expect=False)


@pytest.mark.parametrize(("first", "second", "total"), [(-3, 4, 4), (4, -3, 4), (2, 3, 5), (-1, -1, 0)])
def test_constant_trip_counts_add_up(first, second, total):
    constants = f"M = Constant<value_int={first}>()\n N = Constant<value_int={second}>()\n a = Loop"
    before = model(TWO.replace("int64 M, int64 N, ", "").replace("a = Loop", constants, 1))
    after = apply(before, Reroll())
    assert scalar(find(after, "Loop").inputs[0], 17) == total
    assert_same(before, after, feeds(0))


@pytest.mark.parametrize(
    "body",
    [
        "p = Add(v, step)\n v2 = Add(p, other)",
        "p = Add(v, step)\n v2 = Sub(p, step)",
        "p = Add(v, step)\n v2 = Add(p, p)",
        "p = Add(v, step)\n v2 = Add(step, step)",
        "k = Constant<value_float=0.0>()\n l = Constant<value_float=-0.0>()\n p = Add(v, k)\n v2 = Add(p, l)",
        "f = Cast<to=1>(i)\n p = Add(v, f)\n v2 = Add(p, f)",  # the iteration number
        "r = RandomNormalLike(v)\n p = Add(v, r)\n v2 = Add(p, r)",  # one draw for both
        "r = RandomNormalLike(v)\n q = RandomNormalLike(v)\n p = Add(v, r)\n v2 = Add(p, q)",
        """r = If(c) <then_branch = t () => (float[4] n) { n = Neg(v) },
                      else_branch = e () => (float[4] m) { m = Neg(step) }>
           p = Add(v, r)
           v2 = Add(p, r)""",
    ],
)  # fmt: skip
def test_left_alone(body):
    apply(loop(body), Reroll(), expect=False)


def test_stacked_states_are_left():
    before = model("""agraph (float[4] x, float[4] step, int64 M) => (float[4] a, float[m,4] s) {
        a, s = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2, float[4] p2) {
            d = Identity(c)
            p = Add(v, step)
            v2 = Add(p, step)
            p2 = Identity(v2)
        }>
    }""")
    apply(before, Reroll(), expect=False)


def test_a_data_dependent_exit_is_left():
    before = model("""agraph (float[4] x, float[4] step, int64 M) => (float[4] a) {
        a = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
            p = Add(v, step)
            v2 = Add(p, step)
            s = ReduceMax<keepdims=0>(v2)
            k = Constant<value_float=10.0>()
            d = Less(s, k)
        }>
    }""")
    apply(before, Reroll(), expect=False)


def test_trip_counts_near_the_end_of_int64():
    body = "p = Add(v, step)\n v2 = Add(p, step)"
    constant = model(f"""agraph (float[4] x, float[4] step) => (float[4] a) {{
        M = Constant<value_int=9223372036854775807>()
        a = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {{ d = Identity(c) {body} }}>
    }}""")
    apply(constant, Reroll(), expect=False)
    # A false cond ends the loop at once, whatever M is: nothing may fail on the way there.
    before = loop(body)
    after = apply(before, Reroll())
    for trips in (2**63 - 1, -(2**63), 2**62):
        assert_same(before, after, feeds(trips, go=False))
    apply(loop(body, opset=11), Reroll(), expect=False)


TWO = """agraph (float[4] x, float[4] step, float[4] other, int64 M, int64 N, bool go) => (float[4] b) {
    a = Loop(M, go, x) <body = f (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
        d = Identity(c)
        v2 = Add(v, step)
    }>
    b = Loop(N, go, a) <body = g (int64 j, bool e, float[4] w) => (bool h, float[4] w2) {
        h = Identity(e)
        w2 = Add(w, step)
    }>
}"""


def test_loops_that_continue_one_another_merge():
    before = model(TWO)
    after = apply(before, Reroll())
    find(after, "Loop")
    first, second = after.graph.meta["findings"]
    assert (first.lifted, second.lifted) == (False, False)
    for trips in TRIPS:
        for more in TRIPS:
            for go in (True, False):
                assert_same(before, after, {**feeds(trips, go), "N": np.array(more, np.int64)})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w2 = Add(w, step)", "w2 = Add(w, other)"),
        ("w2 = Add(w, step)", "w2 = Add(step, w)"),
        ("(float[4] b) {", "(float[4] b, float[4] a) {"),
        ("b = Loop(N, go, a)", "b = Loop(N, , a)"),
        ("w2 = Add(w, step)", "w2 = Add(w, a)"),
        ("b = Loop(N, go, a)", "k = Neg(a)\n b = Loop(N, go, k)"),
    ],
)
def test_loops_that_differ_stay_apart(old, new):
    assert old in TWO
    apply(model(TWO.replace(old, new)), Reroll(), expect=False)


def test_an_unrolled_range():
    """As TorchScript writes range(100): 12 times eight additions, then four."""
    adds = "\n".join(f"k{n} = Constant<value_float=0.1>()\n v{n + 1} = Add(v{n}, k{n})" for n in range(8))
    before = model(f"""agraph (float[4] x) => (float[4] b) {{
        t = Constant<value = bool {{1}}>()
        twelve = Constant<value_int=12>()
        four = Constant<value_int=4>()
        a = Loop(twelve, t, x) <body = f (int64 i, bool c, float[4] v0) => (bool d, float[4] v8) {{
            d = Identity(t)
            {adds}
        }}>
        b = Loop(four, t, a) <body = g (int64 j, bool e, float[4] w) => (bool h, float[4] w2) {{
            h = Identity(t)
            k = Constant<value_float=0.1>()
            w2 = Add(w, k)
        }}>
    }}""")
    after = apply(before, Reroll())
    assert scalar(find(after, "Loop").inputs[0], 17) == 100
    assert_same(before, after, {"x": np.random.default_rng(0).normal(size=4).astype(np.float32)})


def test_an_unrolled_range_that_keeps_a_list():
    """The list is a carry like any other: eight appends per iteration, then one, are one append per iteration."""
    steps = "\n".join(f"v{n + 1} = Add(v{n}, step)\n s{n + 1} = SequenceInsert(s{n}, v{n + 1})" for n in range(8))
    before = model(f"""agraph (float[4] x, float[4] step) => (float[4] b, float[r,4] all) {{
        twelve = Constant<value_int=12>()
        four = Constant<value_int=4>()
        e = SequenceEmpty<dtype=1>()
        a, l1 = Loop(twelve, , x, e) <body = f (int64 i, bool c, float[4] v0, seq(float) s0)
                => (bool d, float[4] v8, seq(float) s8) {{
            d = Identity(c)
            {steps}
        }}>
        b, l2 = Loop(four, , a, l1) <body = g (int64 j, bool h, float[4] w, seq(float) t)
                => (bool k, float[4] w2, seq(float) t2) {{
            k = Identity(h)
            w2 = Add(w, step)
            t2 = SequenceInsert(t, w2)
        }}>
        all = ConcatFromSequence<axis=0, new_axis=1>(l2)
    }}""")
    after = apply(before, Reroll())
    assert ops(find(after, "Loop").attributes["body"].as_graph()).count("SequenceInsert") == 1
    stacked = apply(after, StackSequences())
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=4).astype(np.float32) for name in ("x", "step")}
    assert_same(before, after, feed)
    assert_same(before, stacked, feed)


def test_in_a_branch_a_body_and_a_function():
    inner = """y = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
                   d = Identity(c)
                   p = Mul(v, v)
                   v2 = Mul(p, p)
               }>"""
    branch = model(f"""agraph (float[4] x, int64 M, bool k) => (float[4] z) {{
        z = If(k) <then_branch = t () => (float[4] y) {{ {inner} }},
                   else_branch = e () => (float[4] w) {{ w = Identity(x) }}>
    }}""")
    body = model(f"""agraph (float[4] x, int64 M, bool k) => (float[m,4] z) {{
        z = Loop(M, k) <body = o (int64 j, bool g) => (bool h, float[4] y) {{ h = Identity(g) {inner} }}>
    }}""")
    function = model(f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        agraph (float[4] x, int64 M, bool k) => (float[4] z) {{ z = own.f(x, M) }}
        <domain: "own", opset_import: ["": 17]> f (x, M) => (y) {{ {inner} }}""")
    for before in (branch, body, function):
        after = apply(before, Reroll())
        for trips in TRIPS:
            for k in (True, False):
                feed = {"x": np.linspace(-1, 1, 4).astype(np.float32), "M": np.array(trips, np.int64), "k": np.array(k)}
                assert_same(before, after, feed)

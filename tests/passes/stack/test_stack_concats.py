"""Tensors grown by Concat become scan outputs."""

import numpy as np
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from looplift.passes.stack.stack_concats import StackConcats
from tests.helpers import apply, assert_same, model, ops

TRIPS = [-1, 0, 1, 2, 17]


def loop(body, *, start="float[R,4] start", opset=17):
    """x stepped M times; `body` makes acc2 from acc."""
    dims = ",".join("abc"[: start.count(",") + 1])
    return model(
        f"""agraph (float[4] x, {start}, int64 M) => (float[{dims}] y) {{
            v, y = Loop(M, , x, start) <body = b (int64 i, bool c, float[4] u, float acc)
                    => (bool d, float[4] q, float acc2) {{
                d = Identity(c)
                q = Add(u, u)
                {body}
            }}>
        }}""".replace("float acc", "float[] acc"),
        opset,
    )


def check(before, shapes, **kwargs):
    after = apply(before, StackConcats())
    for shape in shapes:
        for trips in TRIPS:
            start = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            feed = {"x": np.arange(4, dtype=np.float32), "start": start, "M": np.array(trips, np.int64)}
            assert_same(before, after, feed, **kwargs)
    return after


ZERO = "z = Constant<value_ints = [0]>()\n"


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 14, 18, 24])
@pytest.mark.parametrize("axis", [0, -2])
def test_append_a_row(axis, opset):
    row = "e = Unsqueeze<axes=[0]>(q)" if opset < 13 else f"{ZERO} e = Unsqueeze(q, z)"
    if opset == 10 and axis < 0:
        return
    after = check(loop(f"{row}\n acc2 = Concat<axis={axis}>(acc, e)", opset=opset), [(0, 4), (3, 4)])
    assert ops(after.graph).count("Concat") <= 2
    node = next(n for n in after.graph if n.op_type == "Loop")
    assert "Concat" not in ops(node.attributes["body"].as_graph())


@pytest.mark.parametrize(
    ("body", "start", "shapes"),
    [
        ("acc2 = Concat<axis=0>(acc, q)", "float[R] start", [(0,), (3,)]),
        ("acc2 = Concat<axis=0>(q, acc)", "float[R] start", [(0,), (3,)]),
        ("n = Neg(q)\n acc2 = Concat<axis=0>(acc, q, n)", "float[R] start", [(0,), (3,)]),
        ("n = Neg(q)\n acc2 = Concat<axis=-1>(q, n, acc)", "float[R] start", [(0,), (3,)]),
        (ZERO + "e = Unsqueeze(q, z)\n acc2 = Concat<axis=0>(e, acc)", "float[R,4] start", [(0, 4), (2, 4)]),
        (ZERO + "e = Unsqueeze(q, z)\n acc2 = Concat<axis=1>(acc, e)", "float[1,R] start", [(1, 0), (1, 3)]),
        (ZERO + "e = Unsqueeze(q, z)\n acc2 = Concat<axis=-1>(e, acc)", "float[1,R] start", [(1, 0), (1, 3)]),
        (
            "k = Constant<value_ints=[4,1]>()\n e = Reshape(q, k)\n acc2 = Concat<axis=1>(acc, e)",
            "float[4,R] start",
            [(4, 0), (4, 2)],
        ),
        (
            "k = Constant<value_ints=[2,2]>()\n e = Reshape(q, k)\n acc2 = Concat<axis=1>(acc, e)",
            "float[2,R] start",
            [(2, 0), (2, 3)],
        ),
        (
            "k = Constant<value_ints=[2,2]>()\n e = Reshape(q, k)\n acc2 = Concat<axis=0>(acc, e)",
            "float[R,2] start",
            [(0, 2), (3, 2)],
        ),
        (
            "k = Constant<value_ints=[1,2,2]>()\n e = Reshape(q, k)\n acc2 = Concat<axis=1>(acc, e)",
            "float[1,R,2] start",
            [(1, 0, 2), (1, 3, 2)],
        ),
        ("e = Identity(u)\n t = Concat<axis=0>(acc, e)\n acc2 = Identity(t)", "float[R] start", [(0,), (3,)]),
    ],
)
def test_axes_ends_and_extents(body, start, shapes):
    check(loop(body, start=start), shapes)


@pytest.mark.parametrize("start", ["float[R,C] start", "float[R,5] start"])
def test_rows_that_do_not_fit_fail_as_before_and_zero_iterations_do_not(start):
    """The start has other extents than the rows: an error with one iteration, the start itself with none."""
    check(loop(ZERO + "e = Unsqueeze(q, z)\n acc2 = Concat<axis=0>(acc, e)", start=start), [(3, 5), (0, 5)])


def test_extents_without_numbers():
    before = model("""agraph (float[N] x, float[R,K] start, int64 M) => (float[a,b] y) {
        z = Constant<value_ints=[0]>()
        y = Loop(M, , start) <body = b (int64 i, bool c, float[r,k] acc) => (bool d, float[s,t] acc2) {
            d = Identity(c)
            n = Neg(x)
            e = Unsqueeze(n, z)
            acc2 = Concat<axis=1>(acc, e)
        }>
    }""")
    after = apply(before, StackConcats())
    for trips in TRIPS:
        for n in (0, 1, 3):
            for shape in ((1, 0), (1, 2), (2, 2)):
                feed = {
                    "x": np.ones(n, np.float32),
                    "start": np.ones(shape, np.float32),
                    "M": np.array(trips, np.int64),
                }
                assert_same(before, after, feed, errors_may_vanish=n == 0)


def test_an_empty_start_leaves_no_concat():
    before = model("""agraph (float[4] x, int64 M) => (float[a,b] y) {
        z = Constant<value_ints=[0]>()
        shape = Constant<value_ints=[0,4]>()
        start = ConstantOfShape(shape)
        v, y = Loop(M, , x, start) <body = b (int64 i, bool c, float[4] u, float[r,k] acc)
                => (bool d, float[4] q, float[s,t] acc2) {
            d = Identity(c)
            q = Add(u, u)
            e = Unsqueeze(q, z)
            acc2 = Concat<axis=0>(acc, e)
        }>
    }""")
    ShapeInferencePass()(before)
    after = apply(before, StackConcats())
    assert "Concat" not in ops(after.graph)
    for trips in TRIPS:
        assert_same(before, after, {"x": np.ones(4, np.float32), "M": np.array(trips, np.int64)})


@pytest.mark.parametrize(
    ("body", "start"),
    [
        ("acc2 = Concat<axis=0>(acc, acc)", "float[R] start"),
        ("acc2 = Concat<axis=0>(q, acc, q)", "float[R] start"),
        ("s = ReduceSum<keepdims=0>(acc)\n e = Add(q, s)\n acc2 = Concat<axis=0>(acc, e)", "float[R] start"),
        ("n = Shape(acc)\n f = CastLike(n, q)\n acc2 = Concat<axis=0>(acc, f)", "float[R] start"),
        ("k = Constant<value_ints=[0]>()\n n = Unsqueeze(i, k)\n e = Slice(q, k, n)\n acc2 = Concat<axis=0>(acc, e)",
         "float[R] start"),
    ],
)  # fmt: skip
def test_left_alone(body, start):
    apply(loop(body, start=start), StackConcats(), expect=False)


def test_in_a_branch_a_body_and_a_function():
    inner = """y = Loop(M, , x) <body = b (int64 i, bool c, float[r] acc) => (bool d, float[s] acc2) {
                   d = Identity(c)
                   w0 = Constant<value_ints=[0]>()
                   n = Cast<to=1>(i)
                   e = Unsqueeze(n, w0)
                   acc2 = Concat<axis=0>(acc, e)
               }>"""
    branch = model(f"""agraph (float[4] x, int64 M, bool k) => (float[r] z) {{
        z = If(k) <then_branch = t () => (float[r] y) {{ {inner} }},
                   else_branch = e () => (float[r] w) {{ w = Identity(x) }}>
    }}""")
    body = model(f"""agraph (float[4] x, int64 M, bool k) => (float[m,r] z) {{
        z = Loop(M, k) <body = o (int64 j, bool g) => (bool h, float[r] y) {{ h = Identity(g) {inner} }}>
    }}""")
    function = model(f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        agraph (float[4] x, int64 M, bool k) => (float[r] z) {{ z = own.f(x, M) }}
        <domain: "own", opset_import: ["": 17]> f (q, M) => (y) {{
            x = Constant<value_floats=[1.0, 2.0]>()
            {inner}
        }}""")
    for before in (branch, body, function):
        after = apply(before, StackConcats())
        for trips in TRIPS:
            for k in (True, False):
                feed = {"x": np.arange(4, dtype=np.float32), "M": np.array(trips, np.int64), "k": np.array(k)}
                assert_same(before, after, feed, empty_shapes=False)

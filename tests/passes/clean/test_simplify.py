"""Local clean-up in and around loops."""

import numpy as np
import pytest

from looplift.passes.clean.simplify import Simplify
from tests.helpers import apply, assert_same, find, model, ops

TRIPS = [-1, 0, 1, 2, 17]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, 0.1], np.float32)


def loop(body, *, opset=17, state="float[9]", element="float[9]"):
    """x is the state; `body` makes y of v, which is stacked."""
    stacked = element.replace("[", "[m,") if "[" in element else f"{element}[m]"
    return model(
        f"""agraph ({state} x, int64 M) => ({stacked} s) {{
            a, s = Loop(M, , x) <body = b (int64 i, bool c, {state} v) => (bool d, {state} v2, {element} y) {{
                d = Identity(c)
                v2 = Neg(v)
                {body}
            }}>
        }}""",
        opset,
    )


def body_of(subject):
    return find(subject, "Loop").attributes["body"].as_graph()


def feeds(trips, x=SPECIAL):
    return {"x": x, "M": np.array(trips, np.int64)}


COPIES = [
    "y = Identity(w)",
    "y = Cast<to=1>(w)",
    "y = CastLike(w, v)",
    "t = Cast<to=11>(w)\n y = Cast<to=1>(t)",
    "t = Neg(w)\n y = Neg(t)",
    "k = Constant<value_ints=[9]>()\n y = Reshape(w, k)",
    "k = Shape(w)\n y = Reshape(w, k)",
    "k = Shape(v)\n y = Expand(w, k)",
    "k = Constant<value_ints=[1]>()\n y = Expand(w, k)",
    "a = Constant<value_ints=[0]>()\n t = Unsqueeze(w, a)\n y = Squeeze(t, a)",
    "a = Constant<value_ints=[-1]>()\n t = Unsqueeze(w, a)\n y = Squeeze(t, a)",
    "k = Constant<value_float=1.0>()\n y = Mul(w, k)",
    "k = Constant<value_floats=[1.0]>()\n y = Mul(k, w)",
    "k = Constant<value_float=1.0>()\n y = Div(w, k)",
    "k = Constant<value_float=-0.0>()\n y = Add(w, k)",
    "k = Constant<value_float=0.0>()\n y = Sub(w, k)",
    "z = Constant<value_ints=[0]>()\n e = Constant<value_ints=[9223372036854775807]>()\n y = Slice(w, z, e)",
    "z = Constant<value_ints=[0]>()\n e = Constant<value_ints=[1000]>()\n y = Slice(w, z, e)",
    "y = Concat<axis=0>(w)",
    "y = Sum(w)",
    "y = Transpose<perm=[0]>(w)",
    "t = Constant<value = bool {1}>()\n y = Where(t, w, v)",
    "y = Dropout(w)",
]


@pytest.mark.parametrize("copy", COPIES)
def test_what_copies_goes(copy):
    before = loop(f"w = Mul(v, v)\n {copy}")
    after = apply(before, Simplify())
    output = body_of(after).outputs[-1]
    assert output.producer().op_type == "Mul"
    assert output.producer().inputs[0] is body_of(after).inputs[2]
    for trips in TRIPS:
        assert_same(before, after, feeds(trips))


@pytest.mark.parametrize(
    "keep",
    [
        "y = Neg(w)",
        "t = Neg(w)\n y = Abs(t)",
        "t = Cast<to=7>(w)\n y = Cast<to=1>(t)",
        "t = Cast<to=10>(w)\n y = Cast<to=1>(t)",
        "k = Constant<value_float=0.0>()\n y = Add(w, k)",  # -0 + 0 is +0
        "k = Constant<value_float=-0.0>()\n y = Sub(w, k)",
        "k = Constant<value_float=0.0>()\n y = Sub(k, w)",
        "k = Constant<value_float=1.0>()\n y = Div(k, w)",
        "k = Constant<value_float=0.5>()\n y = Mul(w, k)",
        "z = Constant<value_ints=[0]>()\n e = Constant<value_ints=[9]>()\n s = Constant<value_ints=[-1]>()\n"
        " f = Constant<value_ints=[-10]>()\n y = Slice(w, e, f, z, s)",
        "t = Constant<value = bool {0}>()\n y = Where(t, v, w)",
    ],
)
def test_what_changes_a_bit_stays(keep):
    before = loop(f"w = Mul(v, v)\n {keep}")
    if "Where" in keep:
        after = apply(before, Simplify())
        assert body_of(after).outputs[-1].producer().op_type == "Mul"
    else:
        after = apply(before, Simplify(), expect=False)
    assert_same(before, after, feeds(3))


@pytest.mark.parametrize(
    ("body", "element"),
    [
        ("k = Constant<value_floats=[1.0, 1.0]>()\n s1 = ReduceSum<keepdims=0>(v)\n y = Mul(s1, k)", "float[2]"),
        ("k = Constant<value = float[1,1] {1.0}>()\n y = Mul(v, k)", "float[1,9]"),
        ("k = Constant<value_ints=[2,9]>()\n y = Expand(v, k)", "float[2,9]"),
        ("k = Constant<value_ints=[9,1]>()\n y = Reshape(v, k)", "float[9,1]"),
        ("a = Constant<value_ints=[0]>()\n t = Unsqueeze(v, a)\n u = Unsqueeze(t, a)\n y = Squeeze(u)", "float[9]"),
    ],
)
def test_what_changes_the_shape_stays(body, element):
    before = loop(body, element=element)
    after = apply(before, Simplify(), expect=False)
    assert_same(before, after, feeds(3))


def test_declared_shapes_are_not_believed():
    """The body declares its state as [9], but it may shrink; then the Reshape to [9] fails."""
    before = model("""agraph (float[N] x, int64 M) => (float[r] a, float[m,9] s) {
        a, s = Loop(M, , x) <body = b (int64 i, bool c, float[9] v) => (bool d, float[9] v2, float[9] y) {
            d = Identity(c)
            n = NonZero(v)
            m = Constant<value_ints=[-1]>()
            at = Reshape(n, m)
            v2 = Gather(v, at)
            k = Constant<value_ints=[9]>()
            y = Reshape(v, k)
        }>
    }""")
    apply(before, Simplify(), expect=False)


def test_integers_booleans_and_casts():
    before = model("""agraph (int32[3] n, bool[3] p, int64 M) => (int32[3] a, bool[3] q) {
        a, q = Loop(M, , n, p) <body = b (int64 i, bool c, int32[3] v, bool[3] w) => (bool d, int32[3] v2, bool[3] w2) {
            d = Identity(c)
            zero = Constant<value = int32 {0}>()
            one = Constant<value = int32 {1}>()
            t = Constant<value = bool {1}>()
            f = Constant<value = bool {0}>()
            v3 = Add(v, zero)
            v4 = Sub(v3, zero)
            v5 = Mul(one, v4)
            v6 = Cast<to=7>(v5)
            v7 = Cast<to=6>(v6)
            v8 = Neg(v7)
            v9 = Neg(v8)
            v2 = Sub(zero, v9)
            w3 = And(w, t)
            w4 = Or(f, w3)
            w5 = Xor(w4, f)
            w6 = Not(w5)
            w7 = Not(w6)
            w2 = Not(w7)
        }>
    }""")
    after = apply(before, Simplify())
    assert find(after, "Sub").inputs[1] is body_of(after).inputs[2]
    assert body_of(after).outputs[2].producer().inputs[0] is body_of(after).inputs[3]
    for trips in TRIPS:
        feed = {"n": np.array([-(2**31), 0, 7], np.int32), "p": np.array([True, False, True])}
        assert_same(before, after, {**feed, "M": np.array(trips, np.int64)})


@pytest.mark.parametrize(
    "body",
    [
        "y = Identity(x)",
        "y = Identity(v)",
        "y = Identity(v2)",
        "y = Cast<to=1>(x)",
        "w = Identity(x)\n y = Identity(w)",
    ],
)
def test_outputs_stay_outputs(body):
    """An outer value, an input or a value that is returned already can't be returned (again)."""
    before = loop(body)
    expect = "Cast" in body or "w = " in body
    after = apply(before, Simplify(), expect=expect)
    assert body_of(after).outputs[-1].producer().op_type == "Identity"
    for trips in TRIPS:
        assert_same(before, after, feeds(trips))


@pytest.mark.parametrize("opset", [8, 11, 12, 13, 18])
def test_axes_in_old_opsets(opset):
    if opset < 13:
        body = "t = Unsqueeze<axes=[1]>(v)\n w = Squeeze<axes=[1]>(t)\n y = Abs(w)"
    else:
        body = "a = Constant<value = int64[1] {1}>()\n t = Unsqueeze(v, a)\n w = Squeeze(t, a)\n y = Abs(w)"
    before = loop(body, opset=opset)
    after = apply(before, Simplify())
    assert find(after, "Abs").inputs[0] is body_of(after).inputs[2]
    for trips in TRIPS[1:]:
        assert_same(before, after, feeds(trips))


def test_a_squeeze_that_can_fail_stays():
    before = model("""agraph (float[N,K] x, int64 M) => (float[N,K] a) {
        a = Loop(M, , x) <body = b (int64 i, bool c, float[N,K] v) => (bool d, float[N,K] v2) {
            d = Identity(c)
            z = Constant<value_ints=[0]>()
            t = Squeeze(v, z)
            w = Unsqueeze(t, z)
            v2 = Neg(w)
        }>
    }""")
    apply(before, Simplify(), expect=False)


def test_models_without_loops_are_not_touched():
    before = model("""agraph (float[4] x) => (float[4] y) {
        t = Constant<value = bool {1}>()
        w = Identity(x)
        v = Identity(w)
        y = If(t) <then_branch = a () => (float[4] n) { n = Neg(v) }, else_branch = b () => (float[4] m) { m = Abs(v) }>
    }""")
    apply(before, Simplify(), expect=False)


def test_around_a_loop():
    before = model("""agraph (float[4] x, int64 M, float[4] far) => (float[4] y, float[4] z) {
        n = Cast<to=7>(M)
        w = Identity(x)
        a = Loop(n, , w) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
            d = Identity(c)
            v2 = Add(v, v)
        }>
        e = Identity(a)
        y = Neg(e)
        g = Identity(far)
        z = Neg(g)
    }""")
    after = apply(before, Simplify())
    assert ops(after.graph) == ["Loop", "Identity", "Add", "Neg", "Identity", "Neg"]
    assert_same(before, after, {"x": np.ones(4, np.float32), "M": np.array(3), "far": np.ones(4, np.float32)})


BRANCHES = """agraph (float[4] x, int64 M) => (float[4] y) {
    k = Constant<value = bool {KNOWN}>()
    y = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
        d = Identity(c)
        r, s = If(k) <
            then_branch = t () => (float[4] p, float[4] q) <float[4] w = {1, 2, 3, 4}> {
                p = Add(v, w) q = Identity(w) },
            else_branch = e () => (float[4] p, float[4] q) { p = Sub(v, x) q = Identity(x) }>
        v2 = Mul(r, s)
    }>
}"""


@pytest.mark.parametrize(("known", "left"), [("1", "Add"), ("0", "Sub")])
def test_a_constant_condition_takes_its_branch_out(known, left):
    before = model(BRANCHES.replace("KNOWN", known))
    after = apply(before, Simplify())
    assert [op for op in ops(body_of(after)) if op != "Constant"] == ["Identity", left, "Mul"]
    for trips in TRIPS:
        assert_same(before, after, {"x": np.array([1, 2, 3, 5], np.float32), "M": np.array(trips, np.int64)})


def test_a_branch_with_a_loop_moves_out_whole():
    before = model("""agraph (float[4] x, int64 M) => (float[4] y, float[4] z) {
        k = Constant<value = bool {1}>()
        y, z = If(k) <then_branch = t () => (float[4] p, float[4] x2) {
            p = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
                d = Identity(c)
                v2 = Add(v, x)
            }>
            x2 = Identity(x)
        }, else_branch = e () => (float[4] m, float[4] n) { m = Neg(x) n = Abs(x) }>
    }""")
    after = apply(before, Simplify())
    assert "If" not in ops(after.graph)
    assert [value.name for value in after.graph.outputs] == ["y", "z"]
    (finding,) = after.graph.meta["findings"]
    assert finding.actions == ("taken out of a branch that is always taken",)
    for trips in TRIPS:
        assert_same(before, after, {"x": np.array([1, 2, 3, 5], np.float32), "M": np.array(trips, np.int64)})


@pytest.mark.parametrize(("opset", "moves"), [(13, False), (16, True)])
def test_a_branch_that_returns_a_sequence_twice_moves_out_where_that_can_be_copied(opset, moves):
    text = """agraph (float[2] x, int64 M) => (seq(float[2]) y, seq(float[2]) z) {
        t = Constant<value = bool {1}>()
        y, z = If(t) <then_branch = t () => (seq(float[2]) p, seq(float[2]) p) {
            e = SequenceEmpty()
            p = Loop(M, , e) <body = b (int64 i, bool c, seq(float[2]) v) => (bool d, seq(float[2]) w) {
                d = Identity(c)
                w = SequenceInsert(v, x)
            }>
        }, else_branch = e () => (seq(float[2]) m, seq(float[2]) n) { m = SequenceEmpty() n = SequenceEmpty() }>
    }"""
    after = apply(model(text, opset), Simplify(), expect=moves)
    assert ("If" in ops(after.graph)) is not moves


def test_in_a_branch_a_body_and_a_function():
    inner = """y = Loop(M, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] v2) {
                   d = Identity(c)
                   p = Identity(v)
                   q = Add(p, p)
                   v2 = Identity(q)
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
        after = apply(before, Simplify())
        add = find(after, "Add")
        assert add.inputs[0] is add.graph.inputs[2]
        assert add.graph.outputs[1] is add.outputs[0]
        for trips in TRIPS:
            for k in (True, False):
                feed = {"x": np.arange(4, dtype=np.float32), "M": np.array(trips, np.int64), "k": np.array(k)}
                assert_same(before, after, feed)

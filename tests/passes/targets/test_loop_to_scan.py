"""Loops that read rows by their number become Scans: which rows, and what is left alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.passes.targets.loop_to_scan import LoopToScan
from tests.helpers import apply, assert_same, find, model, ops
from tests.passes.row_loops import STEP, assert_same_in_session, feeds, loop


@pytest.mark.parametrize(
    ("read", "x", "cut"),
    [
        ("r = Gather(x, i)", (5, 2), False),
        ("r = Gather<axis=1>(x, i)", (2, 5), False),
        ("r = Gather<axis=-1>(x, i)", (2, 5), False),
        ("k = Cast<to=6>(i)\n r = Gather(x, k)", (5, 2), False),
        ("k = Sub(five, i)\n l = Cast<to=6>(k)\n m = Cast<to=7>(l)\n n = Neg(one)\n r = Gather(x, m)", (6, 2), True),
        ("k = Sub(five, i)\n f = Sub(k, one)\n r3 = Gather(x, f)\n r = Squeeze(r3, zero)", (5, 2), False),
        ("m = Neg(one)\n k = Sub(m, i)\n r3 = Gather(x, k)\n r = Squeeze(r3, zero)", (5, 2), False),
        ("m = Neg(one)\n k = Sub(m, i)\n r3 = Gather(x, k)\n r = Squeeze(r3, zero)", (9, 2), True),
        ("k = Add(i, i)\n r3 = Add(k, one)\n r4 = Gather(x, r3)\n r = Squeeze(r4, zero)", (10, 2), True),
        ("r = Gather(x, i)", (8, 2), True),
        ("k = Unsqueeze(i, zero)\n l = Add(k, one)\n q = Slice(x, k, l, zero)\n r = Squeeze(q, zero)", (5, 2), False),
        ("k = Unsqueeze(i, zero)\n l = Add(k, one)\n q = Slice(x, k, l, one)\n r = Squeeze(q, one)", (2, 7), True),
        ("k = Unsqueeze(i, zero)\n l = Unsqueeze(k, zero)\n q = Gather(x, l)\n r = Reshape(q, two)", (5, 2), False),
    ],
)
def test_every_way_to_read_a_row(read, x, cut):
    more = "two = Constant<value_ints=[2]>()"
    before = loop(f"{read}\n{STEP}", x=f"float[{x[0]},{x[1]}]", more=more)
    after = apply(before, LoopToScan())
    scan = find(after, "Scan")
    assert "Loop" not in ops(after.graph)
    assert not {"Slice", "Gather"} & set(ops(scan.attributes["body"].as_graph()))
    assert ("Gather" in ops(after.graph)) == cut
    assert_same(before, after, feeds(x))
    assert_same_in_session(before, after, feeds(x))


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 18, 23])
def test_opsets(opset):
    before = model(
        """agraph (float[6,2] x, float[2] v0) => (float[2] last, float[5,2] rows) {
            five = Constant<value = int64 {5}>()
            last, rows = Loop(five, , v0) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] y) {
                d = Identity(c)
                r = Gather(x, i)
                s = Add(v, r)
                w = Tanh(s)
                y = Identity(w)
            }>
        }""",
        opset,
    )
    after = apply(before, LoopToScan())
    assert_same(before, after, feeds((6, 2)))


@pytest.mark.parametrize("opset", [9, 10, 11, 17])
@pytest.mark.parametrize("stacked", [True, False])
def test_the_branches_of_an_if_had_one_shape_before_opset_11(opset, stacked):
    """Rows and no rows are two shapes: ONNX Runtime refused such a model."""
    text = """agraph (float[6,2] x, float[2] v0, bool go) => (float[2] last, float[n,2] rows) {
        five = Constant<value = int64 {5}>()
        last, rows = Loop(five, go, v0) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] y) {
            d = Identity(c)
            r = Gather(x, i)
            s = Add(v, r)
            w = Tanh(s)
            y = Identity(w)
        }>
    }"""
    before = model(text if stacked else text.replace(", float[n,2] rows", ""), opset)
    after = apply(before, LoopToScan(), expect=opset >= 11 or not stacked)
    for go in (True, False):
        assert_same(before, after, feeds((6, 2)) | {"go": np.array(go)})


def test_scan_8_has_a_batch_axis():
    before = model(
        """agraph (float[5,2] x, float[2] v0, int64 M) => (float[2] last) {
            last = Loop(M, , v0) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
                d = Identity(c)
                r = Gather(x, i)
                s = Add(v, r)
                w = Tanh(s)
            }>
        }""",
        8,
    )
    apply(before, LoopToScan(), expect=False)


@pytest.mark.parametrize(("kept", "squeezed"), [("k = Identity(i)", "r"), ("k = Unsqueeze(i, zero)", "q")])
def test_rows_behind_axes_of_one_entry_are_not_transposed(kept, squeezed):
    before = loop(
        f"""{kept}
            {squeezed}3 = Gather<axis=2>(x, k)
            r = Reshape({squeezed}3, two)
            {STEP}""",
        x="float[1,1,5,2]",
        more="two = Constant<value_ints=[2]>()",
    )
    after = apply(before, LoopToScan())
    assert "scan_input_axes" not in find(after, "Scan").attributes
    assert_same(before, after, feeds((1, 1, 5, 2)))
    assert_same_in_session(before, after, feeds((1, 1, 5, 2)))


@pytest.mark.parametrize(
    ("x", "axis", "pays"),
    [((5, 9, 1024), 0, True), ((6, 9, 1024), 0, False), ((9, 5, 1024), 1, False), ((1, 5, 9216), 1, True)],
)
def test_wide_rows_are_not_copied(x, axis, pays):
    before = loop(
        f"q = Gather<axis={axis}>(x, i)\n m = Gather(q, at)\n r = Slice(m, zero, two)\n w = Mul(v, r)\n y = Neg(w)",
        x=f"float[{x[0]},{x[1]},{x[2]}]",
        more="at = Constant<value_int=0>()\ntwo = Constant<value_ints=[2]>()",
    )
    after = apply(before, LoopToScan(), expect=pays)
    assert_same(before, after, feeds(x))


@pytest.mark.parametrize("scalar", ["float", "double", "float16"])
@pytest.mark.parametrize(
    ("step", "becomes"),
    [
        ("y = Log(r)\n w = Identity(v)", False),  # written in place, at any address
        ("y = Max(v, r)\n w = Neg(v)", False),
        ("q = Sin(r)\n y = Reshape(q, all)\n w = Mul(v, v)", False),
        ("p = Sub(v, r)\n q = Exp(p)\n w = Add(v, q)\n y = Identity(q)", True),  # made elsewhere and copied
        ("p = Sub(v, r)\n y = Tanh(p)\n w = Identity(y)", True),
        ("p = Sub(v, r)\n w = Sigmoid(p)\n y = Reshape(w, all)", False),
        ("y = Add(v, r)\n w = Cos(y)", True),
        ("w = Max(v, r)\n y = Identity(w)", "not float16"),
        ("m = Min(v, r)\n w = Neg(m)\n y = Add(w, v)", "not float16"),
        ("e = Exp(r)\n l = Log(r)\n t = Tanh(r)\n s = Sigmoid(r)\n w = Sum(v, e, l, t, s)\n y = Neg(w)", "not float16"),
        ("s = ReduceSum<keepdims=0>(r)\n w = Add(v, s)\n y = Neg(w)", False),  # adds in another order
        ("u = Unsqueeze(r, zero)\n s = ReduceMean<keepdims=0>(u)\n w = Add(v, s)\n y = Neg(w)", False),
        ("p = Mul(v, r)\n s = ReduceSum<keepdims=0>(p)\n w = Add(v, s)\n y = Neg(w)", True),
    ],
)
def test_bits_that_depend_on_the_place_in_memory(step, becomes, scalar):
    before = model(f"""agraph ({scalar}[23,7] x, {scalar}[7] v0) => ({scalar}[7] last, {scalar}[k,7] rows) {{
        zero = Constant<value_ints=[0]>()
        all = Constant<value_ints=[-1]>()
        M = Constant<value_int=23>()
        last, rows = Loop(M, , v0) <body = b (int64 i, bool c, {scalar}[7] v)
                => (bool d, {scalar}[7] w, {scalar}[7] y) {{
            d = Identity(c)
            r = Gather(x, i)
            {step}
        }}>
    }}""")
    after = apply(before, LoopToScan(), expect=scalar != "float16" if becomes == "not float16" else becomes)
    x = np.random.default_rng(0).choice([-0.0, 0.0, 0.7, 1.3, 2.9, 3.1], (23, 7))
    dtype = {"float": np.float32, "double": np.float64, "float16": np.float16}[scalar]
    feed = {"x": x.astype(dtype), "v0": np.zeros(7, dtype)}
    assert_same(before, after, feed)
    assert_same_in_session(before, after, feed)


def test_a_wide_row_beside_a_narrow_one_is_read_as_before():
    before = model("""agraph (float[5,2] x, float[6,9216] wide, float[2] v0) => (float[2] last) {
        five = Constant<value_int=5>()
        one = Constant<value_ints=[1]>()
        three = Constant<value_ints=[3]>()
        last = Loop(five, , v0) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
            d = Identity(c)
            r = Gather(x, i)
            q = Gather(wide, i)
            m = Slice(q, one, three)
            n = Mul(v, m)
            w = Add(n, r)
        }>
    }""")
    after = apply(before, LoopToScan())
    assert ops(find(after, "Scan").attributes["body"].as_graph()).count("Gather") == 1
    wide = np.random.default_rng(0).normal(size=(6, 9216)).astype(np.float32)
    assert_same(before, after, {**feeds((5, 2)), "wide": wide})


@pytest.mark.parametrize(
    "before",
    [
        loop("w = Tanh(v)\n y = Identity(w)"),  # reads nothing
        loop("h = Gather(x, one)\n r = Squeeze(h, zero)\n w = Mul(v, r)\n y = Identity(w)"),  # one row, again and again
        loop("k = Mul(i, i)\n r = Gather(x, k)\n w = Mul(v, r)\n y = Identity(w)"),
        model("""agraph (float[5,2] x, float v0) => (float[a] last) {
            five = Constant<value_int=5>()
            last = Loop(five, , v0) <body = b (int64 i, bool c, float[] v) => (bool d, float[] w) {
                d = Identity(c)
                r = Gather(x, i)
                w = Mul(v, r)
            }>
        }"""),  # the state changes its shape in iteration 0
        model("""agraph (float[5,2] x, float[2] v0) => (float[2] last) {
            five = Constant<value_int=5>()
            last = Loop(five, , v0) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
                r = Gather(x, i)
                w = Mul(v, r)
                m = ReduceSum<keepdims=0>(w)
                limit = Constant<value_float=3.0>()
                d = Less(m, limit)
            }>
        }"""),  # ends early
        model("""agraph (string[5,2] x, string[2] v0) => (string[2] last) {
            five = Constant<value_int=5>()
            last = Loop(five, , v0) <body = b (int64 i, bool c, string[2] v) => (bool d, string[2] w) {
                d = Identity(c)
                w = Gather(x, i)
            }>
        }"""),
        model("""agraph (float[n,2] x, float[2] v0, bool[n] f, int64 M) => (float[2] last, float[k,m] rows) {
            last, rows = Loop(M, , v0) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[m] y) {
                d = Identity(c)
                r = Gather(x, i)
                w = Mul(v, r)
                axes = Constant<value_ints=[1]>()
                p = Compress<axis=0>(x, f)
                y = ReduceSum<keepdims=0>(p, axes)
            }>
        }"""),  # how long an empty stack's rows would be is not known without running it
    ],
)
def test_left_alone(before):
    apply(before, LoopToScan(), expect=False)


@given(
    first=st.integers(-7, 7),
    stride=st.integers(-3, 3),
    rows=st.integers(0, 7),
    trips=st.integers(-1, 8),
    axis=st.integers(-2, 1),
    form=st.sampled_from(["number", "vector", "slice"]),
    known=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_any_row_that_counts(first, stride, rows, trips, axis, form, known):
    """The same bits as the loop, or an error where it fails."""
    size, extents = (rows, 2) if axis in (0, -2) else (2, rows), "n,2" if axis in (0, -2) else "2,n"
    read = {
        "number": f"r = Gather<axis={axis}>(x, k)",
        "vector": f"l = Unsqueeze(k, zero)\n g = Gather<axis={axis}>(x, l)\n r = Squeeze(g, axis)",
        "slice": "l = Unsqueeze(k, zero)\n m = Add(l, one)\n g = Slice(x, l, m, axis)\n r = Squeeze(g, axis)",
    }[form]
    before = loop(
        f"p = Mul(i, stride)\n k = Add(p, first)\n {read}\n {STEP}",
        trips="count" if known else "M",
        x=f"float[{str(size)[1:-1] if known else extents}]",
        more=f"""stride = Constant<value_int={stride}>()
                 first = Constant<value_int={first}>()
                 axis = Constant<value_ints=[{axis}]>()
                 count = Constant<value_int={trips}>()""",
    )
    after = apply(before, LoopToScan(), expect=None)
    if stride and not (known and trips <= 0) and not (form == "slice" and (first < 0 or stride < 0)):
        assert "Scan" in ops(after.graph)
    assert_same(before, after, feeds(size, trips), errors_may_vanish=form == "slice")

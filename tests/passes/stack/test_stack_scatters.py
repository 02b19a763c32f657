"""Rows written one by one become a scan output."""

import numpy as np
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from looplift.passes.pipeline import run_pipeline
from looplift.passes.stack.stack_scatters import StackScatters
from tests.helpers import apply, assert_same, model, ops

TRIPS = [-1, 0, 1, 2, 5, 17]
INDEX = "z = Constant<value_ints=[0]>()\n one = Constant<value_ints=[1]>()\n m = Constant<value_ints=[-1]>()\n"


def loop(body, *, out="float[R,4]", opset=17):
    """x doubled M times; `body` makes out2 from out."""
    dims = ",".join("abc"[: out.count(",") + 1])
    return model(
        f"""agraph (float[4] x, {out} start, int64 M) => (float[{dims}] y) {{
            v, y = Loop(M, , x, start) <body = b (int64 i, bool c, float[4] u, float[] out)
                    => (bool d, float[4] q, float[] out2) {{
                d = Identity(c)
                q = Add(u, u)
                {INDEX}
                {body}
            }}>
        }}""",
        opset,
    )


def feeds(trips, shape):
    start = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return {"x": np.arange(4, dtype=np.float32), "start": start, "M": np.array(trips, np.int64)}


@pytest.mark.parametrize("opset", [13, 16, 18, 24])
@pytest.mark.parametrize(
    "body",
    [
        "k = Unsqueeze(i, z)\n out2 = ScatterND(out, k, q)",
        "k = Unsqueeze(i, z)\n l = Unsqueeze(k, m)\n w = Unsqueeze(q, z)\n out2 = ScatterND(out, l, w)",
        "n = Reshape(i, one)\n k = Add(n, one)\n out2 = ScatterND(out, k, u)",
        "n = Reshape(i, one)\n k = Add(n, n)\n t = ScatterND(out, k, u)\n out2 = Identity(t)",
        # TorchScript's out[i] = q: the row takes its shape from the tensor that it is written to
        """g = Gather<axis=0>(out, i)
           gs = Shape(g)
           e = Expand(q, gs)
           k = Unsqueeze(i, z)
           ks = Shape(k)
           l = Unsqueeze(k, m)
           os = Shape(out)
           top = Constant<value_ints=[9223372036854775807]>()
           rest = Slice(os, one, top)
           shape = Concat<axis=0>(ks, rest)
           w = Reshape(e, shape)
           out2 = ScatterND(out, l, w)""",
    ],
)
def test_rows_written_in_order(body, opset):
    before = loop(body, opset=opset)
    after = apply(before, StackScatters())
    body = next(node for node in after.graph if node.op_type == "Loop").attributes["body"].as_graph()
    assert "ScatterND" not in ops(body)
    for trips in TRIPS:
        for shape in ((5, 4), (40, 4), (0, 4), (5, 3)):
            assert_same(before, after, feeds(trips, shape))


def test_rows_of_rank_zero_and_two():
    scalar = loop("k = Unsqueeze(i, z)\n s = ReduceSum<keepdims=0>(q)\n out2 = ScatterND(out, k, s)", out="float[R]")
    matrix = loop(
        "k = Unsqueeze(i, z)\n two = Constant<value_ints=[2,2]>()\n w = Reshape(q, two)\n out2 = ScatterND(out, k, w)",
        out="float[R,2,2]",
    )
    for before, shape in ((scalar, (6,)), (matrix, (6, 2, 2))):
        after = apply(before, StackScatters())
        for trips in TRIPS:
            assert_same(before, after, feeds(trips, shape))


@pytest.mark.parametrize(
    "make", ["n = Unsqueeze(M, z)\n s = Concat<axis=0>(n, four)", "s = Concat<axis=0>(rows, four)"]
)
def test_a_tensor_that_is_written_all_over_is_the_stack(make):
    trips = "M" if "M" in make else "five"
    before = model(f"""agraph (float[4] x, int64 M) => (float[a,b] y) {{
        z = Constant<value_ints=[0]>()
        four = Constant<value_ints=[4]>()
        rows = Constant<value_ints=[5]>()
        five = Constant<value_int=5>()
        {make}
        start = ConstantOfShape(s)
        v, y = Loop({trips}, , x, start) <body = b (int64 i, bool c, float[4] u, float[] out)
                => (bool d, float[4] q, float[] out2) {{
            d = Identity(c)
            q = Add(u, u)
            k = Unsqueeze(i, z)
            out2 = ScatterND(out, k, q)
        }}>
    }}""")
    ShapeInferencePass(data_prop=True)(before)
    after = apply(before, StackScatters())
    assert "ScatterND" not in ops(after.graph)
    for trips in TRIPS:
        feed = {"x": np.arange(4, dtype=np.float32), "M": np.array(trips, np.int64)}
        assert_same(before, after, feed, errors_may_vanish=trips < 0)


@pytest.mark.parametrize("width", [4, 8, 1])
def test_rows_that_do_not_fit_the_tensor_fail_as_before(width):
    before = model(f"""agraph (float[4] x, int64 M) => (float[a,b] y) {{
        z = Constant<value_ints=[0]>()
        width = Constant<value_ints=[{width}]>()
        n = Unsqueeze(M, z)
        s = Concat<axis=0>(n, width)
        start = ConstantOfShape(s)
        y = Loop(M, , start) <body = b (int64 i, bool c, float[r,s] out) => (bool d, float[r2,s2] out2) {{
            d = Identity(c)
            k = Unsqueeze(i, z)
            q = Neg(x)
            out2 = ScatterND(out, k, q)
        }}>
    }}""")
    ShapeInferencePass(data_prop=True)(before)
    after = apply(before, StackScatters())
    for trips in TRIPS:
        feed = {"x": np.arange(4, dtype=np.float32), "M": np.array(trips, np.int64)}
        assert_same(before, after, feed, errors_may_vanish=trips < 0)


def test_a_scan_that_writes_one_row_again_and_again_is_left():
    before = model("""agraph (float[4] x, float[N,4] steps, float[R,4] start) => (float[a,b] y) {
        v, y = Scan(x, start, steps) <num_scan_inputs: int = 1, body: graph = b (float[4] u, float[R,4] out, float[4] s)
                => (float[4] q, float[R,4] out2) {
            q = Add(u, s)
            k = Constant<value_ints=[1]>()
            out2 = ScatterND(out, k, q)
        }>
    }""")
    apply(before, StackScatters(), expect=False)


@pytest.mark.parametrize(
    "body",
    [
        "k = Sub(one, one)\n out2 = ScatterND(out, k, q)",  # one row, again and again
        "n = Unsqueeze(i, z)\n k = Sub(n, one)\n out2 = ScatterND(out, k, q)",  # row -1 comes first and last
        "n = Unsqueeze(i, z)\n k = Sub(z, n)\n out2 = ScatterND(out, k, q)",
        "k = Unsqueeze(i, z)\n out2 = ScatterND<reduction='add'>(out, k, q)",
        "k = Unsqueeze(i, z)\n t = ScatterND(out, k, q)\n w = Neg(t)\n out2 = ScatterND(w, k, q)",
        "k = Unsqueeze(i, z)\n g = Gather(out, i)\n w = Add(g, q)\n out2 = ScatterND(out, k, w)",
        "k = Unsqueeze(i, z)\n g = ReduceMax<keepdims=0>(out)\n w = Add(g, q)\n out2 = ScatterND(out, k, w)",
    ],
)
def test_left_alone(body):
    apply(loop(body.replace("'", '"')), StackScatters(), expect=False)


def test_in_a_branch_a_body_and_a_function():
    inner = """y = Loop(M, , x) <body = b (int64 i, bool c, float[] out) => (bool d, float[] out2) {
                   d = Identity(c)
                   z = Constant<value_ints=[0]>()
                   n = Cast<to=1>(i)
                   l = Unsqueeze(i, z)
                   out2 = ScatterND(out, l, n)
               }>"""
    branch = model(f"""agraph (float[4] x, int64 M, bool k) => (float[r] w) {{
        w = If(k) <then_branch = t () => (float[4] y) {{ {inner} }},
                   else_branch = e () => (float[4] v) {{ v = Identity(x) }}>
    }}""")
    body = model(f"""agraph (float[4] x, int64 M, bool k) => (float[m,r] w) {{
        w = Loop(M, k) <body = o (int64 j, bool g) => (bool h, float[4] y) {{ h = Identity(g) {inner} }}>
    }}""")
    function = model(f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        agraph (float[4] x, int64 M, bool k) => (float[r] w) {{ w = own.f(x, M) }}
        <domain: "own", opset_import: ["": 17]> f (x, M) => (y) {{ {inner} }}""")
    for before in (branch, body, function):
        after = apply(before, StackScatters())
        for trips in TRIPS:
            for k in (True, False):
                feed = {"x": np.arange(4, dtype=np.float32), "M": np.array(trips, np.int64), "k": np.array(k)}
                assert_same(before, after, feed)


BACKWARDS = {
    "n - 1 - i": "n1 = Sub(n, one0) t = Sub(n1, i)",
    "n - (i + 1)": "i1 = Add(i, one0) t = Sub(n, i1)",
    "-1 - i": "m1 = Neg(one0) t = Sub(m1, i)",
    "(n - 1) + i * -1": "m1 = Neg(one0) n1 = Sub(n, one0) d1 = Mul(i, m1) t = Add(n1, d1)",
}


def written_backwards(index: str, count: str = "shape = Shape(x) n = Gather(shape, zero)", where: str = "x", opset=17):
    made = model(
        f"""agraph (float[r,3] x, float[3] g0, int64 M) => (float[p,3] y) {{
            zero = Constant<value_int = 0>() one0 = Constant<value_int = 1>()
            {count}
            like = Shape({where}) out0 = ConstantOfShape(like)
            g, y = Loop(n, , g0, out0) <body = b (int64 i, bool c, float[3] u, float[p,3] out)
                    => (bool d, float[3] q, float[p,3] out2) {{
                d = Identity(c) {index}
                row = Gather(x, t) q = Add(u, row)
                axes = Constant<value_ints = [0, 1]>() k = Unsqueeze(t, axes)
                first = Constant<value_ints = [0]>() w = Unsqueeze(q, first)
                out2 = ScatterND(out, k, w)
            }}>
        }}""",
        opset,
    )
    ShapeInferencePass()(made)
    return made


def backward_feeds(rows, trips=0):
    x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    x[1:2] = np.nan, -0.0, np.inf
    return {"x": x, "g0": np.full(3, -0.0, np.float32), "M": np.array(trips)}


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("index", BACKWARDS)
def test_rows_written_from_the_end(index, opset):
    before = written_backwards(BACKWARDS[index], opset=opset)
    after = apply(before, StackScatters())
    assert "ScatterND" not in ops(after.graph)  # as many rows as iterations: the stack, backwards
    lifted, _ = run_pipeline(before)
    (node,) = (node for node in lifted.graph if node.op_type == "PrefixSum")
    assert node.attributes["reverse"].as_int() == 1
    assert not {"Loop", "Gather", "Range"} & set(ops(lifted.graph))
    for rows in (0, 1, 2, 7):
        assert_same(before, after, backward_feeds(rows))
        assert_same(before, lifted, backward_feeds(rows))


@pytest.mark.parametrize("index", ["n - 1 - i", "n - (i + 1)", "(n - 1) + i * -1"])
def test_rows_written_from_the_end_of_another_tensor(index):
    """Fewer rows are written than there are, or the count is given: each is written once all the same."""
    before = written_backwards(BACKWARDS[index], count="n = Identity(M)")
    after = apply(before, StackScatters())
    assert "ScatterND" in ops(after.graph)
    for rows in (0, 1, 5):
        for trips in (-1, 0, 1, 3, 5, 6):
            assert_same(before, after, backward_feeds(rows, trips))


@pytest.mark.parametrize(
    "index",
    [
        "n2 = Sub(n, one0) n3 = Sub(n2, one0) t = Sub(n3, i)",  # -1 in the last iteration: the last row, again
        "t = Sub(one0, i)",  # 1, 0, -1, ...
        "two = Add(one0, one0) d2 = Mul(i, two) n1 = Sub(n, one0) t = Sub(n1, d2)",
        "n2 = Add(n, n) n1 = Sub(n2, one0) t = Sub(n1, i)",
    ],
)
def test_rows_that_may_be_written_twice_stay(index):
    before = written_backwards(index)
    after = apply(before, StackScatters(), expect=False)
    assert "a row of its own" in after.graph.meta["findings"][0].reason
    lifted, _ = run_pipeline(before)
    for rows in (0, 1, 2, 5):
        assert_same(before, lifted, backward_feeds(rows))

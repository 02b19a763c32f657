"""Each rule of `passes.vectorize`: a body computed for all iterations at once gives the loop's own results."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, lift, loops_left, parse

from looplift.passes import run_pipeline
from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError

SCAN = """
agraph (float[T,2,3] x, float[T,3] y, float[3] w, float[3,4] m, int64[T] k) => (r) {{
  r = Scan <num_scan_inputs = 3, body = b (float[2,3] xt, float[3] yt, int64 kt) => (out) {{
    {body}
  }}> (x, y, k)
}}"""

BODIES = {
    "unary": "out = Exp(xt)",
    "same rank": "out = Mul(xt, xt)",
    "lower rank": "out = Add(xt, yt)",
    "invariant": "out = Sub(w, yt)",
    "invariant of higher rank": "a = Unsqueeze(yt, z) z = Constant<value_ints = [0]>() out = Mul(a, w)",
    "scalar with vector": "one = Cast<to = 1>(kt) out = Mul(one, w)",
    "where": "c = Less(xt, yt) out = Where(c, xt, w)",
    "max of three": "out = Max(xt, yt, w)",
    "compare": "out = GreaterOrEqual(yt, w)",
    "cast": "out = Cast<to = 7>(xt)",
    "cast like": "out = CastLike(kt, yt)",
    "clip": "lo = Constant<value_float = -0.5>() hi = Constant<value_float = 0.5>() out = Clip(xt, lo, hi)",
    "leaky relu": "out = LeakyRelu<alpha = 0.3>(xt)",
    "reduce last": "a = Constant<value_ints = [-1]>() out = ReduceSum<keepdims = 0>(xt, a)",
    "reduce first": "a = Constant<value_ints = [0]>() out = ReduceSum(xt, a)",
    "reduce all": "out = ReduceSum<keepdims = 0>(xt)",
    "reduce max by attribute": "out = ReduceMax<axes = [1], keepdims = 0>(xt)",
    "arg max": "out = ArgMax<axis = 1, keepdims = 0>(xt)",
    "softmax": "out = Softmax<axis = 1>(xt)",
    "cumulative": "a = Constant<value_int = 1>() out = CumSum(xt, a)",
    "transpose": "out = Transpose(xt)",
    "transpose by": "out = Transpose<perm = [0, 1]>(xt)",
    "reshape": "s = Constant<value_ints = [3, 2]>() out = Reshape(xt, s)",
    "reshape rest": "s = Constant<value_ints = [-1]>() out = Reshape(xt, s)",
    "flatten": "out = Flatten(xt)",
    "unsqueeze and squeeze": "a = Constant<value_ints = [1]>() u = Unsqueeze(xt, a) v = Neg(u) out = Squeeze(v, a)",
    "concat": "out = Concat<axis = 0>(yt, w, yt)",
    "split": "s = Constant<value_ints = [1, 2]>() p, out = Split<axis = -1>(xt, s)",
    "slice": "s = Constant<value_ints = [1]>() e = Constant<value_ints = [9]>() out = Slice(xt, s, e, s)",
    "matmul by invariant": "out = MatMul(xt, m)",
    "vector by invariant": "out = MatMul(yt, m)",
    "matrix by vector": "out = MatMul(xt, yt)",
    "vector by vector": "out = MatMul(yt, yt)",
    "vector by matrix": "t = Transpose(xt) out = MatMul(yt, t)",
    "invariant by vector": "t = Transpose(m) out = MatMul(t, yt)",
    "invariant vector by vector": "out = MatMul(w, yt)",
    "invariant vector by matrix": "t = Transpose(xt) out = MatMul(w, t)",
    "einsum": 'out = Einsum<equation = "ij,j->i">(xt, yt)',
    "gather from invariant": "out = Gather(m, kt)",
    "gather columns from invariant": "out = Gather<axis = 1>(m, kt)",
    "gather from element": "i = Constant<value_ints = [2, 0]>() out = Gather<axis = 1>(xt, i)",
    "gather from element at its own index": "out = Gather<axis = 1>(xt, kt)",
    "gather from vector at its own index": "out = Gather(yt, kt)",
    "gather from element at its own indices": "a = Constant<value_ints = [0, 1]>() p = Unsqueeze(kt, a) "
    "q = Concat<axis = 1>(p, p, p) out = Gather<axis = 1>(xt, q)",
    "gather in 32 bits": "i = Cast<to = 6>(kt) out = Gather<axis = -1>(xt, i)",
    "top two": "two = Constant<value_ints = [2]>() v, i = TopK(xt, two) out = Gather<axis = 1>(v, kt)",
    "smallest along the first axis": "one = Constant<value_ints = [1]>() out, i = TopK<axis = 0, largest = 0>(xt, one)",
    "places of the largest": "two = Constant<value_ints = [2]>() v, i = TopK(xt, two) out = Gather(yt, i)",
    "gather elements": "e = Constant<value = int64[1,2] {1, 0}>() t = Transpose(xt) out = GatherElements(t, e)",
    "expand": "s = Constant<value_ints = [4, 1, 3]>() out = Expand(yt, s)",
    "expand to its own shape": "s = Shape(yt) out = Expand(yt, s)",
    "tile": "s = Constant<value_ints = [2, 1]>() out = Tile(xt, s)",
    "pad": "s = Constant<value_ints = [0, 1, 2, 0]>() f = Constant<value_float = 7.0>() out = Pad(xt, s, f)",
    "gemm": "out = Gemm<alpha = 0.5>(xt, m)",
    "gemm with bias": "z = Constant<value_floats = [1.0, 2.0]>() out = Gemm<transB = 1, beta = 2.0>(xt, v, z) "
    "v = Constant<value = float[2,3] {1, 2, 3, 4, 5, 6}>()",
    "invariant alone": "out = Neg(w)",
    "element alone": "out = Identity(yt)",
    "shape of element": "out = Shape(xt)",
    "part of a shape": "out = Shape<start = 1>(xt)",
    "size": "out = Size(xt)",
}


def _sorted(body: str) -> str:
    """ONNX text wants values made before they are read: constants first."""
    lines = body.replace(") ", ")\n").split("\n")
    return "\n    ".join(sorted(lines, key=lambda line: "Constant<" not in line))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_every_rule(body):
    text = SCAN.format(body=_sorted(body))
    lifted, findings = lift(text)
    assert not loops_left(lifted), findings[0].reason
    random = np.random.default_rng(0)
    for length in (0, 1, 4):
        feed = {
            "x": random.standard_normal((length, 2, 3)).astype("f"),
            "y": random.standard_normal((length, 3)).astype("f"),
            "w": random.standard_normal(3).astype("f"),
            "m": random.standard_normal((3, 4)).astype("f"),
            "k": np.zeros(length, np.int64),
        }
        if "kt" in body:
            feed["k"] = random.integers(0, 2, length)
        _close(text, lifted, feed, exact=not any(op in body for op in ("MatMul", "Einsum", "Gemm")))


NO_SUCH_AXIS = {
    "cumulative": "a = Constant<value_int = 0>() out = CumSum(s, a)",
    "cumulative, too far": "a = Constant<value_int = 1>() out = CumSum(yt, a)",
    "cumulative, along none": "a = Constant<value = int64[0] {}>() out = CumSum(yt, a)",
    "reduce": "a = Constant<value_ints = [0]>() out = ReduceSum(s, a)",
    "reduce, too far": "a = Constant<value_ints = [-2]>() out = ReduceSum(yt, a)",
    "softmax": "out = Softmax(s)",
    "softmax, too far": "out = Softmax<axis = 1>(yt)",
    "arg max": "out = ArgMax<axis = 0>(s)",
    "concat": "out = Concat<axis = 0>(s, s)",
    "concat, too far": "out = Concat<axis = 1>(yt, yt)",
    "split": "p, out = Split<axis = 0>(s)",
    "squeeze": "a = Constant<value_ints = [0]>() out = Squeeze(s, a)",
    "unsqueeze, too far": "a = Constant<value_ints = [2]>() out = Unsqueeze(s, a)",
    "gather": "i = Constant<value_int = 0>() out = Gather(s, i)",
    "gather, too far": "i = Constant<value_int = 0>() out = Gather<axis = -2>(yt, i)",
    "slice": "a = Constant<value_ints = [0]>() e = Constant<value_ints = [1]>() out = Slice(s, a, e, a)",
    "slice that moves": "o = Constant<value_ints = [1]>() a = Unsqueeze(kt, z) z = Constant<value_ints = [0]>() "
    "e = Add(a, o) out = Slice(u, a, e, z) u = Constant<value_float = 1.0>()",
}


@pytest.mark.parametrize("body", NO_SUCH_AXIS.values(), ids=NO_SUCH_AXIS.keys())
def test_an_axis_that_is_not_there(body):
    """Fails where an iteration runs, so the loop stays, which is no fault where none does."""
    body = f"n = Constant<value_float = 2.0>() m0 = Cast<to = 1>(kt) s = Mul(m0, n) {body}"
    (finding,) = run_pipeline(parse(SCAN.format(body=_sorted(body))))[1]
    assert not finding.lifted
    assert finding.reason


def _close(text, lifted, feed, *, exact):
    if exact:
        assert_equal(text, lifted, feed)
        return
    from lifting import parse

    from looplift.runtime import Session

    want, got = (Session(m, device="numpy").run(None, feed)[0] for m in (parse(text), lifted))
    assert want.shape == got.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)


REFUSED = {
    "NonZero": "out = NonZero(xt)",
    "Dropout can't": "r = Constant<value_float = 0.5>() t = Constant<value_int = 1>() b = Cast<to = 9>(t) out = Dropout(xt, r, b)",
    "bounds of Clip vary": "f = Cast<to = 1>(kt) out = Clip(xt, f)",
    "shape that Reshape makes is not known": "one = Constant<value_ints = [-1]>() u = Reshape(kt, one) "
    "s = Concat<axis = 0>(u, one) out = Reshape(xt, s)",
    "the number of elements that TopK takes varies": "o = Constant<value_ints = [0]>() e = Unsqueeze(kt, o) "
    "v, out = TopK(w, e)",
    "leaves the order of equal elements": "two = Constant<value_ints = [2]>() out, i = TopK<sorted = 0>(xt, two)",
    "Slice at varying bounds": "o = Constant<value_ints = [0]>() e = Unsqueeze(kt, o) out = Slice(w, o, e)",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_rule_stays_with_the_reason(reason):
    lifted, (finding,) = lift(SCAN.format(body=_sorted(REFUSED[reason])))
    assert loops_left(lifted) == 1
    assert not finding.lifted
    assert reason in finding.reason


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 17, 18, 21])
def test_forms_that_changed_between_opsets(opset):
    axes = "axes = [0]>(xt)" if opset < 13 else "keepdims = 1>(xt, a)"
    constant = "a = Constant<value = int64[1] {0}>()" if opset >= 13 else ""
    text = f"""
    agraph (float[T,3] x) => (r) {{
      r = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
        body = b (float[3] xt) => (out) {{
          {constant}
          s = ReduceSum<{axes}
          out = Sub(xt, s)
      }}> (x)
    }}"""
    lifted, (finding,) = lift(text, opset)
    assert finding.lifted, finding.reason
    assert_equal(text, lifted, {"x": np.arange(12, dtype="f").reshape(4, 3)}, opset=opset)


@pytest.mark.parametrize(
    "part", ["start = 0", "start = 1", "start = -1", "end = 0", "start = 0, end = 0", "end = -1", "start = 1, end = 9"]
)
def test_parts_of_a_shape_that_is_not_known(part):
    text = f"""
    agraph (float[N,T,4] x) => (r, e) {{
      r, e = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = b (xt) => (out, copy) {{
        out = Shape<{part}>(xt) copy = Neg(xt)
      }}> (x)
    }}"""
    lifted, _ = lift(text)
    assert not loops_left(lifted)
    assert_equal(text, lifted, *({"x": np.ones((n, 5, 4), "f")} for n in (0, 1, 3)))


ANY_ROW = """
agraph (float[N, 2] x, int64[T] at) => (float[T, 2] y) {{
  n = Shape(at) count = Squeeze(n)
  y = Loop (count, "") <body = b (int64 i, bool ci) => (bool co, float[2] r)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] past = {{1000000000}}> {{
    co = Identity(ci)
    k = Gather(at, i) start = Unsqueeze(k, zero) {end}
    cut = Slice(x, start, end, zero{step}) r = Squeeze(cut, zero) }}>
}}"""


@pytest.mark.parametrize(
    ("end", "step"),
    [
        ("end = Add(start, one)", ""),
        ("end = Identity(past)", ", past"),
        ("e = Add(start, one) end = Max(e, past)", ", past"),
    ],
    ids=["start + 1", "to the end", "at least to the end"],
)
def test_rows_at_any_start(end, step):
    """Negative starts count from the end, those below are clamped, those above and -1 + 1 cut nothing and fail."""
    text = ANY_ROW.format(end=end, step=step)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    before, after = Session(parse(text), device="numpy"), Session(model, device="numpy")
    assert_equal(text, model, {"x": x, "at": np.array([0, 4, 2, -5, -2])}, {"x": x, "at": np.zeros(0, np.int64)})
    for start in range(-8, 8):
        feed = {"x": x, "at": np.array([1, start])}
        try:
            before.run(None, feed)
        except LoopliftError:
            with pytest.raises(LoopliftError):
                after.run(None, feed)
        else:
            assert_equal(text, model, feed)

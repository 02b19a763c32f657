"""Cells that are written out in other operators, under exact=False."""

from __future__ import annotations

import numpy as np
import pytest

import looplift
from looplift.passes import run_pipeline
from tests.engine_bits import drawn, given
from tests.helpers import ops, run_ort

WIDTH, H = 3, 4
SHAPES = {
    "K": (WIDTH, 4 * H),
    "R": (H, 4 * H),
    "b": (4 * H,),
    "U": (4 * H, WIDTH),
    "V": (4 * H, H),
    "e": (4 * H,),
    "J": (WIDTH + H, 4 * H),
    "k": (WIDTH, 3 * H),
    "r": (H, 3 * H),
    "g": (3 * H,),
    "q": (3 * H,),
    "S": (H, 2 * H),
    "C": (H, H),
    "A": (WIDTH, H),
    "a": (H,),
    "k1": (WIDTH, H),
    "k2": (WIDTH, H),
    "k3": (WIDTH, H),
    "r1": (H, H),
    "r2": (H, H),
    "r3": (H, H),
}
MIX = "ft = Mul(f, c) it = Mul(i, j) cn = Add(ft, it) ct = Tanh(cn) hn = Mul(o, ct)"
GATES = "i = Sigmoid(zi) f = Sigmoid(zf) j = Tanh(zj) o = Sigmoid(zo)"
GRU = "z = Sigmoid(zz) s = Sigmoid(zr) less = Sub(unit, z)"
WRITTEN = {
    "LSTM, one product for all gates": f"""a1 = MatMul(x, K) a2 = MatMul(h, R) a3 = Add(a1, a2) a4 = Add(a3, b)
        zi, zf, zj, zo = Split<axis = -1>(a4) {GATES} {MIX}""",
    "LSTM, Gemm": f"""a1 = Gemm<transB = 1>(x, U, b) a2 = Gemm<transB = 1>(h, V, e) a3 = Add(a2, a1)
        zi, zf, zj, zo = Split<axis = 1>(a3) {GATES} {MIX}""",
    "LSTM, x and h joined, a bias to forget": f"""xh = Concat<axis = 1>(x, h) a1 = MatMul(xh, J) a2 = Add(a1, b)
        zi, zj, z2, zo = Split<axis = 1>(a2) zf = Add(z2, unit) {GATES} {MIX}""",
    "LSTM, sliced": f"""a1 = MatMul(x, K) a2 = MatMul(h, R) a3 = Add(a1, a2)
        zi = Slice(a3, p0, p4, p1) zf = Slice(a3, p4, p8, p1) zj = Slice(a3, p8, p12, p1) zo = Slice(a3, p12, top, p1)
        {GATES} {MIX}""",
    "LSTM, activated before it is split": f"""a1 = MatMul(x, K) a2 = MatMul(h, R) a3 = Add(a1, a2) a4 = Add(a3, b)
        all = Sigmoid(a4) i, f, o, n1 = Split<axis = 1>(all) n2, n3, n4, zj = Split<axis = 1>(a4) j = Tanh(zj) {MIX}""",
    "GRU, reset after": f"""a1 = MatMul(x, k) a2 = Add(a1, g) a3 = MatMul(h, r) a4 = Add(a3, q)
        xz, xr, xn = Split<axis = 1>(a2) hz, hr, hh = Split<axis = 1>(a4) zz = Add(xz, hz) zr = Add(xr, hr) {GRU}
        sh = Mul(s, hh) zn = Add(xn, sh) n = Tanh(zn) one = Mul(z, h) two = Mul(less, n) hn = Add(one, two)""",
    "GRU, reset before": f"""a1 = MatMul(x, k) a2 = Add(a1, g) xz, xr, xn = Split<axis = 1>(a2) a3 = MatMul(h, S)
        hz, hr = Split<axis = 1>(a3) zz = Add(xz, hz) zr = Add(xr, hr) {GRU}
        sh = Mul(s, h) nh = MatMul(sh, C) zn = Add(xn, nh) n = Tanh(zn) one = Mul(z, h) two = Mul(less, n)
        hn = Add(one, two)""",
    "GRU, by the difference": f"""a1 = Gemm(x, k, g) a4 = Gemm(h, r, q) xr, xz, xn = Split<axis = 1>(a1)
        hr, hz, hh = Split<axis = 1>(a4) zz = Add(hz, xz) zr = Add(hr, xr) {GRU}
        sh = Mul(s, hh) zn = Add(xn, sh) n = Tanh(zn) d = Sub(h, n) w = Mul(d, z) hn = Add(w, n)""",
    "GRU, the gates the other way round": f"""x1 = MatMul(x, k1) h1 = MatMul(h, r1) zz = Add(x1, h1) x2 = MatMul(x, k2)
        h2 = MatMul(h, r2) zr = Add(x2, h2) {GRU} x3 = MatMul(x, k3) x4 = Add(x3, a) h3 = MatMul(h, r3) h4 = Mul(s, h3)
        zn = Add(x4, h4) n = Tanh(zn) one = Mul(less, h) two = Mul(z, n) hn = Add(one, two)""",
    "RNN": "a1 = MatMul(x, A) a2 = MatMul(h, C) a3 = Add(a1, a2) a4 = Add(a3, a) hn = Tanh(a4)",
    "RNN, a difference": "a1 = MatMul(x, A) a2 = Gemm(h, C, a) a3 = Sub(a2, a1) hn = Tanh(a3)",
    "RNN, rows that are multiplied already": "a1 = MatMul(h, C) p = Slice(wide, p0, p4, p1) a2 = Add(p, a1) hn = Tanh(a2)",
}


def loop(body: str, *, row: str = "y = Identity(hn)", more: str = "") -> str:
    """A Loop over the rows of xs, with the carries that the body has."""
    states = "hc" if " cn = " in body else "h"
    ports, results = (", ".join(f"float[B,{H}] {s}{end}" for s in states) for end in ("", "n"))
    weights = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in SHAPES.items())
    produced = ", ".join(f"float[B,{H}] {s}T" for s in states)
    return f"""agraph (float[T,B,{WIDTH}] xs, float[T,B,8] ws, {", ".join(f"float[B,{H}] {s}0" for s in states)}, {weights})
      => ({produced}, float[T,B,{H}] ys) {{
      length = Shape<end = 1>(xs) count = Squeeze(length) unit = Constant<value_float = 1.0>()
      p0 = Constant<value_ints = [0]>() p1 = Constant<value_ints = [1]>() p4 = Constant<value_ints = [4]>()
      p8 = Constant<value_ints = [8]>() p12 = Constant<value_ints = [12]>()
      top = Constant<value_ints = [9223372036854775807]>()
      {", ".join(f"{s}T" for s in states)}, ys = Loop (count, "", {", ".join(f"{s}0" for s in states)})
        <body = step (int64 t, bool go, {ports}) => (bool on, {results}, float[B,{H}] y) {{
          x = Gather(xs, t) wide = Gather(ws, t) {more} {body} {row} on = Identity(go)
      }}>
    }}"""


def written(text: str):
    return given(text, **{name: drawn(*shape) for name, shape in SHAPES.items()})


def feeds(subject, steps: int, batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(steps + 10 * batch)
    shapes = {"xs": (steps, batch, WIDTH), "ws": (steps, batch, 8), "h0": (batch, H), "c0": (batch, H)}
    return {value.name: random.standard_normal(shapes[value.name]).astype("f") for value in subject.graph.inputs}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_out(name):
    before = written(loop(WRITTEN[name]))
    op = name.split(",")[0]
    after, (finding,) = run_pipeline(before, exact=False, target="standard")
    assert finding.lifted, finding
    assert ops(after.graph).count(op) == 1
    assert not {"Loop", "Scan"} & set(ops(after.graph))
    for steps, batch in [(0, 2), (1, 1), (3, 2), (40, 1)]:
        inputs = feeds(before, steps, batch)
        for left, right in zip(run_ort(before, inputs), run_ort(after, inputs), strict=True):
            assert left.shape == right.shape or not left.size + right.size
            assert left.size == 0 or np.allclose(left, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["LSTM, Gemm", "GRU, reset after", "RNN"])
def test_nothing_of_the_kind_where_bits_are_asked_for(name):
    after, (finding,) = run_pipeline(written(loop(WRITTEN[name])), target="standard")
    assert not finding.lifted
    assert not {"LSTM", "GRU", "RNN"} & set(ops(after.graph))


@pytest.mark.parametrize("name", ["LSTM, Gemm", "GRU, by the difference", "RNN"])
def test_the_interpreter_agrees(name):
    before = written(loop(WRITTEN[name]))
    after, _ = run_pipeline(before, exact=False)
    inputs = feeds(before, 30, 2)
    results = [looplift.Session(subject, device="numpy").run(None, inputs) for subject in (before, after)]
    for left, right in zip(*results, strict=True):
        assert np.allclose(left, right, rtol=1e-4, atol=1e-5)


KEPT = {
    "c is read in each iteration": loop(WRITTEN["LSTM, Gemm"], row="y = Neg(cn)"),
    "the c before, too": loop(WRITTEN["LSTM, Gemm"], row="y = Add(hn, c)"),
    "a peephole": loop(WRITTEN["LSTM, Gemm"].replace("Sigmoid(zi)", "Sigmoid(zp)"), more="").replace(
        "i = Sigmoid(zp)", "zc = Mul(c, a) zp = Add(zi, zc) i = Sigmoid(zp)"
    ),
    "weights that change": loop(
        WRITTEN["RNN"].replace("(h, C)", "(h, C2)"), more="tf = Cast<to = 1>(t) C2 = Mul(C, tf)"
    ),
    "what is read depends on the state": loop(
        WRITTEN["RNN"].replace("(x, A)", "(x2, A)"), more="m = ReduceSum(h) x2 = Mul(x, m)"
    ),
    "a clipped state": loop(
        WRITTEN["RNN"].replace("hn = Tanh(a4)", "u = Tanh(a4) hn = Clip(u, a0)"),
        more="a0 = Constant<value_float = -0.5>()",
    ),
    "another gate that is less": loop(WRITTEN["GRU, reset before"].replace("Sub(unit, z)", "Sub(unit, s)")),
    "not one less the gate": loop(
        WRITTEN["GRU, reset before"].replace("Sub(unit, z)", "Sub(two_, z)"),
        more="two_ = Constant<value_float = 2.0>()",
    ),
    "a row for every entry of the batch": loop(
        WRITTEN["RNN"].replace("(x, A)", "(x1, A)"), more="x1 = ReduceMean<axes = [0]>(x)"
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    before = written(KEPT[name])
    after, (finding,) = run_pipeline(before, exact=False, target="standard")
    assert not finding.lifted
    assert not {"LSTM", "GRU", "RNN"} & set(ops(after.graph))

"""Loops in loops: inner recurrences of their own become a batch, those that carry on become one long recurrence."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from helpers import run_ort
from hypothesis import given, settings
from hypothesis import strategies as st
from lifting import assert_equal, lift, loops_left, nodes, parse, same_bits

NEST = """
agraph (float[N,T,3] x, float[N,3] g, float[3] s, int64 n, int64 m, float[3] v0) => (float[3] v, rows, ends, starts) {{
  shape = Shape(x) one = Constant<value_int = 1>() zero = Constant<value_int = 0>()
  outer = {outer} inner = {inner}
  v, rows, ends, starts = Loop (outer, "", v0)
    <body = b (int64 i, bool ci, float[3] p) => (bool co, float[3] q, float[A,3] r, float[3] e, float[3] t) {{
    co = Identity(ci) xi = Gather(x, i) gi = Gather(g, i) t = Identity(p)
    begin = {begin}
    q0, r = Loop (inner, "", begin)
      <body = d (int64 j, bool cj, float[3] w) => (bool cq, float[3] z, float[3] y) {{
      cq = Identity(cj) xj = Gather(xi, j) sj = Gather(s, j) {step} {row} }}>
    q = {end}
    e = Identity(q0) }}>
}}"""
STEPS = {
    "add-step": "z = Add(w, s)",
    "own step": "z = Add(w, gi)",
    "prefix sum": "z = Add(w, xj)",
    "prefix sum of scalars": "z = Add(w, sj)",
    "linear": "h = Mul(w, s) z = Add(h, xj)",
    "linear, own factor": "h = Mul(w, gi) z = Add(h, xj)",
    "linear, own addend": "h = Mul(w, xj) z = Add(h, gi)",
    "decay": "h = Mul(w, gi) z = Sub(h, s)",
}
STATIC = {"x": "float[4,3,3] x, float[4,3] g", "T": "float[4,3,3] x, float[4,3] g"}


def nest(step, *, begin="Identity(v0)", end="Identity(p)", row="y = Identity(z)", inner="Gather(shape, one)", **sizes):
    outer = "Gather(shape, zero)"
    text = NEST.format(step=STEPS[step], begin=begin, end=end, row=row, inner=inner, outer=outer)
    if sizes:
        text = text.replace("N,T,3", "{n},{t},3".format(**sizes)).replace("float[N,3]", f"float[{sizes['n']},3]")
    return text


def feed(n=4, t=3, m=2):
    draw = np.random.default_rng(n * 7 + t).standard_normal
    arrays = {"x": draw((n, t, 3)), "g": draw((n, 3)), "s": draw(3), "v0": draw(3)}
    return {k: a.astype(np.float32) for k, a in arrays.items()} | {"n": np.array(n), "m": np.array(m)}


def without(text: str, *names: str) -> str:
    """The text with these outputs left out of the graph's."""
    head, tail = text.split("=> (", 1)
    signature, body = tail.split(") {", 1)
    kept = [output for output in signature.split(", ") if output.split()[-1] not in names]
    return f"{head}=> ({', '.join(kept)}) {{{body}"


# Reading s for T steps can fail, so it may not leave a loop that perhaps does not run.
SAME = [("Identity(v0)", step) for step in STEPS if step not in ("add-step", "prefix sum of scalars")]


@pytest.mark.parametrize(
    ("begin", "step"), [*SAME, *(("Add(gi, v0)", step) for step in STEPS if step != "prefix sum of scalars")]
)
def test_each_on_its_own(begin, step):
    text = nest(step, begin=begin)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert len(nodes(model)) == 1
    assert_equal(text, model, feed(), feed(1, 3), feed(4, 1))


CONTINUED = [step for step in STEPS if step != "own step"]


@pytest.mark.parametrize("row", ["y = Identity(z)", "y = Identity(w)", "y = Exp(z)"], ids=["after", "before", "mapped"])
@pytest.mark.parametrize("step", CONTINUED)
def test_one_after_the_other(step, row):
    text = nest(step, begin="Identity(p)", end="Identity(q0)", row=row, n=4, t=3)
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert_equal(text, model, feed())


@pytest.mark.parametrize("step", [step for step in CONTINUED if step != "prefix sum of scalars"])
def test_lengths_that_are_not_known(step):
    """The states between the outer iterations can't be told where an inner loop may take no step; the rest can."""
    text = nest(step, begin="Identity(p)", end="Identity(q0)")
    assert loops_left(lift(text)[0]) == 1
    text = without(text, "ends", "starts")
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert len(nodes(model)) == 1
    assert_equal(text, model, feed(), feed(1, 1), feed(4, 0), feed(2, 1))


@pytest.mark.parametrize(("n", "m"), [(0, 2), (2, 0), (-1, 2), (2, -1), (-1, -1), (3, 2)])
def test_steps_counted_by_hand(n, m):
    text = without(nest("add-step", begin="Identity(p)", end="Identity(q0)", inner="Identity(m)"), "ends", "starts")
    text = text.replace("Gather(shape, zero)", "Identity(n)")
    # Of no outer iterations, how long the inner rows would be is anybody's guess.
    text = without(text, *(["rows"] if n <= 0 else []))
    model, findings = lift(text)
    assert loops_left(model) == 0, findings
    assert_equal(text, model, feed() | {"n": np.array(n), "m": np.array(m)})


@pytest.mark.parametrize(
    "end", ["Exp(q0)", "Add(q0, p)", "Identity(begin)"], ids=["changed on the way", "read twice", "not the end"]
)
def test_states_that_do_not_go_straight_on(end):
    text = nest("prefix sum", begin="Tanh(p)", end=end, n=4, t=3)
    model, _ = lift(text)
    assert loops_left(model) == 1
    assert_equal(text, model, feed())


def test_inner_steps_that_read_the_outer_state():
    text = nest("prefix sum", begin="Identity(p)", end="Identity(q0)", n=4, t=3).replace(
        "z = Add(w, xj)", "xp = Mul(xj, p) z = Add(w, xp)"
    )
    model, _ = lift(text)
    assert loops_left(model) == 1
    assert_equal(text, model, feed())


@settings(max_examples=25, deadline=None)
@given(
    step=st.sampled_from(list(STEPS)),
    begin=st.sampled_from(["Identity(p)", "Identity(v0)", "Neg(p)"]),
    end=st.sampled_from(["Identity(p)", "Identity(q0)", "Identity(xi0)"]),
    row=st.sampled_from(["y = Identity(w)", "y = Exp(z)"]),
    n=st.integers(0, 4),
    t=st.integers(0, 4),
    static=st.booleans(),
)
def test_any_nest(step, begin, end, row, n, t, static):
    text = nest(step, begin=begin, end=end, row=row, **({"n": n, "t": t} if static else {}))
    text = text.replace("xi0", "gi").replace("float[3] s,", "float[S] s,").replace("Gather(s, j)", "Gather(s, zero)")
    model, _ = lift(text)
    given_ = feed(n, t)
    if n:  # of no outer iterations, how long the inner rows would be is anybody's guess
        assert_equal(text, model, given_)
    want, got = run_ort(parse(text), given_), run_ort(ir.from_proto(ir.to_proto(model)), given_)
    if want is not None and n and t:
        assert got is not None
        assert all(same_bits(a, b) for a, b in zip(want, got, strict=True))

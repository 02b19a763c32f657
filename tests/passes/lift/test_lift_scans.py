"""Scans whose body is a recurrence, along any axes and in any directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifting import assert_equal, lift, loops_left

SCANS = """
agraph (float[2] v0, {x} x, {y} y) => (float[2] v, float[R,S] r) {{
  v, r = Scan <num_scan_inputs = 2, scan_input_axes = [{a}, {b}], scan_input_directions = [{d}, {e}],
               scan_output_axes = [{f}], scan_output_directions = [{g}],
    body = b (float[2] vp, float[2] xt, float[2] yt) => (float[2] vn, float[2] so) {{
      p = Mul(vp, xt)
      vn = Add(p, yt)
      so = Identity(vn)
  }}> (v0, x, y)
}}"""


@settings(max_examples=40, deadline=None)
@given(
    axes=st.tuples(*[st.sampled_from([0, 1, -1, -2])] * 3),
    directions=st.tuples(*[st.sampled_from([0, 1])] * 3),
    length=st.integers(0, 5),
)
def test_scans_along_any_axes_and_directions(axes, directions, length):
    a, b, f = axes
    shape = {0: "float[T,2]", -2: "float[T,2]", 1: "float[2,T]", -1: "float[2,T]"}
    text = SCANS.format(x=shape[a], y=shape[b], a=a, b=b, f=f, d=directions[0], e=directions[1], g=directions[2])
    lifted, (finding,) = lift(text)
    assert finding.lifted, finding.reason
    random = np.random.default_rng(length)

    def series(axis: int) -> np.ndarray:
        rows = random.standard_normal((length, 2)).astype("f")
        return rows if axis in (0, -2) else np.ascontiguousarray(rows.T)

    assert_equal(text, lifted, {"v0": np.ones(2, "f"), "x": series(a), "y": series(b)})


def test_scan_8_with_its_batch():
    text = """
    agraph (float[B,2] v0, float[B,T,2] x) => (float[B,2] v, float[B,T,2] r) {
      v, r = Scan <num_scan_inputs = 1, directions = [1], body = b (float[2] vp, float[2] xt) => (float[2] vn, float[2] so) {
        vn = Add(vp, xt)
        so = Identity(vn)
      }> ("", v0, x)
    }"""
    lifted, (finding,) = lift(text, 8)
    assert finding.lifted, finding.reason
    random = np.random.default_rng(0)
    for batch, time in ((1, 3), (2, 5), (3, 1)):
        feed = {
            "v0": random.standard_normal((batch, 2)).astype("f"),
            "x": random.standard_normal((batch, time, 2)).astype("f"),
        }
        assert_equal(text, lifted, feed, opset=8)


@pytest.mark.parametrize("directions", [[0, 0], [0, 1], [1, 1]])
def test_a_part_of_scan_8(directions):
    """What stays of it keeps its batch, its sequence_lens and its directions."""
    text = f"""
    agraph (float[2,3] v0, float[2,3] u0, float[2,7,3] x, float[2,7,3] y) => (float[2,3] v, float[2,3] u, float[2,7,3] r) {{
      v, u, r = Scan <num_scan_inputs = 2, directions = {directions},
        body = b (float[3] vp, float[3] up, float[3] xt, float[3] yt) => (float[3] vn, float[3] un, float[3] so) {{
          vn = Add(vp, xt) h = Mul(up, up) un = Sub(h, yt) so = Identity(un)
      }}> ("", v0, u0, x, y)
    }}"""
    lifted, (finding,) = lift(text, 8)
    assert finding.actions == ("lifted into PrefixSum",)
    assert loops_left(lifted) == 1
    random = np.random.default_rng(0)
    shapes = {"v0": (2, 3), "u0": (2, 3), "x": (2, 7, 3), "y": (2, 7, 3)}
    feed = {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    assert_equal(text, lifted, feed, opset=8)


def test_an_empty_state():
    text = """
    agraph (float[D] v0, float[T,D] x, float[T,D] y) => (float[D] v, float[T,D] r) {
      v, r = Scan <num_scan_inputs = 2, body = b (float[D] p, float[D] a, float[D] e) => (float[D] n, float[D] o) {
        m = Mul(p, a) n = Add(m, e) o = Identity(n)
      }> (v0, x, y)
    }"""
    lifted, (finding,) = lift(text)
    assert finding.lifted, finding.reason
    for length, width in ((3, 0), (0, 0), (0, 3), (1, 1)):
        feed = {"v0": np.ones(width, "f"), "x": np.ones((length, width), "f"), "y": np.ones((length, width), "f")}
        assert_equal(text, lifted, feed)


def test_reversed_twice():
    scan = """{out} = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [{written}],
        body = b{k} (float[2] p{k}, float[2] a{k}) => (float[2] n{k}, float[2] o{k})
          {{ n{k} = Add(p{k}, a{k}) o{k} = Identity(n{k}) }}> (v0, {read})"""
    first = scan.format(out="v, r", written=0, k=1, read="x")
    second = scan.format(out="w, q", written=1, k=2, read="r")
    text = f"agraph (float[2] v0, float[T,2] x) => (float[2] w, float[T,2] q) {{ {first} {second} }}"
    lifted, findings = lift(text)
    assert all(finding.lifted for finding in findings)
    random = np.random.default_rng(0)
    for length in (0, 1, 6):
        assert_equal(text, lifted, {"v0": np.ones(2, "f"), "x": random.standard_normal((length, 2)).astype("f")})

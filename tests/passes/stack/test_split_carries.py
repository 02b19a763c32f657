"""A carry joined of parts, and read in parts, becomes a carry for each."""

from __future__ import annotations

import numpy as np
import pytest

from looplift.passes.stack.split_carries import SplitCarries
from looplift.patterns.graph.view import view_of
from tests.helpers import apply, assert_same, find, model, ops

CONSTANTS = """p0 = Constant<value_ints = [0]>() p1 = Constant<value_ints = [1]>() p2 = Constant<value_ints = [2]>()
  p3 = Constant<value_ints = [3]>() s0 = Constant<value_int = 0>() s1 = Constant<value_int = 1>()
  m1 = Constant<value_int = -1>() top = Constant<value_ints = [9223372036854775807]>() yes = Constant<value_int = 1>()"""


def loop(body: str, state: str = "float[2,B]", rows: str = "y", opset: int = 17):
    """v is joined anew from what the body makes of its parts."""
    return model(
        f"""agraph (int64 M, {state} v0) => ({state} last, float[k,B] rows) {{ {CONSTANTS}
      last, rows = Loop (M, "", v0) <body = b (int64 i, bool c, {state} v) => (bool d, {state} w, float[B] y) {{
        d = Identity(c) {body}
      }}> }}""",
        opset,
    )


STEP = "u = Tanh(a) n = Add(b, u)"
SPLIT = {
    "Slices": f"a = Slice(v, p0, p1, p0) b = Slice(v, p1, p2, p0) {STEP} w = Concat<axis = 0>(u, n) y = Squeeze(n, p0)",
    "Gathers": f"""a = Gather(v, s0) b = Gather(v, m1) {STEP} au = Unsqueeze(u, p0) nu = Unsqueeze(n, p0)
        w = Concat<axis = 0>(au, nu) y = Identity(n)""",
    "Gathers of one entry": f"a = Gather(v, p0) b = Gather(v, p1) {STEP} w = Concat<axis = -2>(u, n) y = Squeeze(n, p0)",
    "Split": f"a, b = Split<axis = 0>(v) {STEP} w = Concat<axis = 0>(u, n) y = Squeeze(n, p0)",
    "only one part is read": "b = Slice(v, p1, top, p0) n = Tanh(b) w = Concat<axis = 0>(n, b) y = Squeeze(n, p0)",
    "parts that the body does not make": """a = Slice(v, p0, p1, p0) n = Tanh(a) e = Sub(a, a)
        w0 = Concat<axis = 0>(a, n) w = Identity(w0) y = Squeeze(n, p0)""",
}


@pytest.mark.parametrize("name", SPLIT)
def test_split(name):
    before = loop(SPLIT[name])
    after = apply(before, SplitCarries())
    node = find(after, "Loop")
    view = view_of(node, 17)
    assert len(view.carries) == 2
    assert "Concat" not in ops(view.body)
    assert after.graph.meta["findings"][0].actions == ("split the carry 'v' into its 2 parts",)
    for trips in (-1, 0, 1, 2, 9):
        for batch in (0, 1, 3):
            state = np.linspace(-1, 2, 2 * batch, dtype=np.float32).reshape(2, batch)
            assert_same(before, after, {"M": np.array(trips), "v0": state}, empty_shapes=False)


def test_parts_of_several_entries():
    body = """a = Slice(v, p0, p1, p0) b = Slice(v, p1, p3, p0) two = Slice(v, p2, p3, p0) t = Add(b, a) n = Tanh(two)
        w = Concat<axis = 0>(t, n) y = Squeeze(n, p0)"""
    before = loop(body.replace("Concat<axis = 0>(t, n)", "Concat<axis = 0>(n, t)"), "float[3,B]")
    after = apply(before, SplitCarries())
    for trips in (0, 1, 5):
        state = np.arange(6, dtype=np.float32).reshape(3, 2) / 7
        assert_same(before, after, {"M": np.array(trips), "v0": state}, empty_shapes=False)


def test_read_in_a_branch():
    body = """t = Equal(i, s1) a = If (t) <then_branch = p () => (o) { o = Gather(v, s0) },
        else_branch = q () => (r) { r = Gather(v, s1) }>
        n = Tanh(a) nu = Unsqueeze(n, p0) au = Unsqueeze(a, p0) w = Concat<axis = 0>(nu, au) y = Identity(n)"""
    before = loop(body)
    after = apply(before, SplitCarries())
    for trips in (0, 1, 5):
        assert_same(
            before, after, {"M": np.array(trips), "v0": np.array([[1, 2], [3, -4]], np.float32)}, empty_shapes=False
        )


SCAN = """agraph (float[T,B] x, float[2,B] v0) => (float[2,B] last, float[T,B] rows) {{ {constants}
  last, rows = Scan <num_scan_inputs = 1, body = b (float[2,B] v, float[B] xt) => (float[2,B] w, float[B] y) {{
    a = Gather(v, s0) b = Gather(v, s1) n = Add(b, xt) t = Tanh(a) nu = Unsqueeze(n, p0) tu = Unsqueeze(t, p0)
    w = Concat<axis = 0>(nu, tu) y = Identity(n)
  }}> (v0, x) }}"""


def test_scan():
    before = model(SCAN.format(constants=CONSTANTS))
    after = apply(before, SplitCarries())
    assert len(view_of(find(after, "Scan"), 17).carries) == 2
    feeds = {"x": np.random.default_rng(0).standard_normal((5, 3)).astype("f"), "v0": np.ones((2, 3), np.float32)}
    assert_same(before, after, feeds)


KEPT = {
    "read as a whole": loop(SPLIT["Slices"] + " e = Mul(v, v)"),
    "read across parts": loop(
        "a = Slice(v, p1, p3, p0) b = Slice(v, p0, p1, p0) n = Tanh(b) w = Concat<axis = 0>(a, n) y = Squeeze(n, p0)",
        "float[3,B]",
    ),
    "read along another axis": loop(SPLIT["Slices"].replace("(v, p0, p1, p0)", "(v, p0, p1, p1)")),
    "parts of unknown extents": loop(SPLIT["Slices"], "float[N,B]"),
    "no part is read": loop("a = Gather(v0, s0) au = Unsqueeze(a, p0) w = Concat<axis = 0>(au, au) y = Identity(a)"),
    "at a place that varies": loop(SPLIT["Gathers"].replace("Gather(v, s0)", "Gather(v, i)")),
    "backwards": loop(
        "back = Constant<value_ints = [-9]>() step = Constant<value_ints = [-1]>() "
        + SPLIT["Slices"].replace("(v, p0, p1, p0)", "(v, p0, back, p0, step)")
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    apply(KEPT[name], SplitCarries(), expect=False)

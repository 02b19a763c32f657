"""Rows written by ScatterElements: before and after, or left."""

from __future__ import annotations

import numpy as np
import pytest
from lifting import assert_equal, count, lift

TEXT = """
agraph (int64 n, float[4] x, float[4] s, float[N,4] out0) => (float[4] v, float[N,4] out) {{
  v, out = Loop (n, "", x, out0) <body = b (int64 i, bool ci, float[4] p, float[N,4] o) => (bool co, float[4] u, float[N,4] w) {{
    co = Identity(ci)
    u = Add(p, s)
    z = Constant<value_ints = [0]>()
    d = Constant<value_ints = [1, {width}]>()
    k = {number}
    indices = Expand(k, d)
    row = {row}
    w = ScatterElements{attributes}(o, indices, row)
  }}>
}}"""


def text(number="Identity(i)", row="Unsqueeze(u, z)", width="4", attributes=""):
    return TEXT.format(number=number, row=row, width=width, attributes=attributes)


@pytest.mark.parametrize("number", ["Identity(i)", "Unsqueeze(i, z)"])
def test_whole_rows_are_stacked(number):
    lifted, (finding,) = lift(text(number))
    assert finding.lifted, finding.reason
    assert "ScatterElements" not in count(lifted)
    values = {"x": np.ones(4, "f"), "s": np.full(4, 0.1, "f"), "out0": np.zeros((5, 4), "f")}
    assert_equal(text(number), lifted, *({**values, "n": np.array(n)} for n in (-1, 0, 1, 3, 5)))


@pytest.mark.parametrize(
    "case",
    [
        text("Neg(i)"),  # row -1 is the last
        text(
            width="2",
            row="Slice(q, z, h, f) h = Constant<value_ints = [2]>() f = Constant<value_ints = [1]>() q = Unsqueeze(u, z)",
        ),
        text(attributes='<reduction = "add">'),
        text(attributes="<axis = 1>"),
    ],
    ids=["negative", "part of a row", "adds", "another axis"],
)
def test_anything_else_stays(case):
    if "q = " in case:
        head, tail = case.split("row = ")
        parts = tail.split("\n", 1)
        lines = parts[0].replace(") ", ")\n    ").split("\n    ")
        case = head + "\n    ".join(reversed(lines[1:])) + "\n    row = " + lines[0] + "\n" + parts[1]
    lifted, _ = lift(case, 18)
    assert count(lifted)["ScatterElements"] == 1


EMPTY = """
agraph (int64 n, float[D] x, float[N,D] out0) => (float[N,D] out) {
  v, out = Loop (n, "", x, out0) <body = b (int64 i, bool ci, float[D] p, float[N,D] o) => (bool co, float[D] u, float[N,D] w) {
    co = Identity(ci)
    u = Add(p, p)
    z = Constant<value_ints = [0]>()
    row = Unsqueeze(u, z)
    d = Shape(row)
    k = Expand(i, d)
    w = ScatterElements(o, k, row)
  }>
}"""


def test_a_row_without_elements_is_written_nowhere():
    """There the loop looks at no index, in range or not, so that it may run more often than there are rows."""
    lifted, _ = lift(EMPTY)
    for n, width in ((0, 2), (2, 2), (3, 0), (1, 0)):
        values = {"x": np.ones(width, "f"), "out0": np.zeros((2, width), "f"), "n": np.array(n)}
        assert_equal(EMPTY, lifted, values)

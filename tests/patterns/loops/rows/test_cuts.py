"""Slices that cut one row per iteration, and those that may not."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import view_of
from looplift.patterns.loops.rows.cuts import row_cuts
from looplift.patterns.loops.trip import trip_of

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (int64 n, float[1] x, float[{rows}] series) => (float[K] v, float[R,S] s) {{
  five = Constant<value_int = 5>()
  zero = Constant<value_int = 0>()
  size = Shape(series)
  all = Gather(size, zero)
  v, s = Loop ({limit}, "", x) <body = b (int64 i, bool ci, p) => (bool co, u, so) {{
    co = Identity(ci)
    z = Constant<value_ints = [0]>()
    one = Constant<value_int = 1>()
    e = Add(i, one)
    start = Unsqueeze(i, z)
    end = Unsqueeze(e, z)
    {body}
  }}>
}}"""


def cuts(body: str, limit: str = "n", rows: str = "5", *, certain: bool = False) -> int:
    model = ir.from_onnx_text(LOOP.format(body=body, limit=limit, rows=rows))
    (node,) = [node for node in model.graph if node.op_type == "Loop"]
    view = view_of(node, 17)
    found, types = row_cuts(view, Types(), trip_of(view, Types()), certain=certain)
    for cut in found.values():
        assert types[cut.cut].shape == (1,)
    return len(found)


KEPT = "c = Slice(series, start, end) u = Add(p, c) "


@pytest.mark.parametrize(
    ("body", "limit", "rows", "count"),
    [
        (KEPT + "so = Identity(u)", "n", "5", 1),  # past the end, the stack's element would change its shape
        (KEPT + "so = Identity(one)", "n", "5", 0),  # past the end, the state is empty and nobody minds
        (KEPT + "so = Identity(one)", "five", "5", 1),  # never past the end
        (KEPT + "so = Identity(one)", "five", "4", 0),
        (KEPT + "so = Identity(u)", "n", "N", 0),  # no row at all would make every element empty
        ("c = Slice(series, start, end) d = Squeeze(c, z) u = Add(p, d) so = Identity(u)", "n", "N", 1),
        ("c = Slice(series, start, end) d = Squeeze(c) u = Add(p, d) so = Identity(u)", "n", "N", 0),
        (
            "k = Constant<value_ints = [1000]>() c = Slice(series, start, k, z, k) d = Squeeze(c, z) u = Add(p, d) so = Identity(u)",
            "n",
            "N",
            1,
        ),
        ("k = Neg(start) c = Slice(series, k, end) d = Squeeze(c, z) u = Add(p, d) so = Identity(u)", "n", "N", 0),
        ("c = Slice(series, z, end) d = ReduceSum(c) u = Add(p, d) so = Identity(u)", "n", "5", 0),
    ],
)
def test_row_cuts(body, limit, rows, count):
    assert cuts(body, limit, rows) == count


@pytest.mark.parametrize(
    ("body", "limit", "rows", "count"),
    [
        (KEPT + "so = Identity(one)", "five", "5", 1),
        (KEPT + "so = Identity(one)", "all", "N", 1),  # as many iterations as rows
        (KEPT + "so = Identity(u)", "n", "5", 0),  # past the end the loop fails, but only if all of it stays
        ("c = Slice(series, start, end) d = Squeeze(c, z) u = Add(p, d) so = Identity(u)", "n", "N", 0),
    ],
)
def test_certain_row_cuts(body, limit, rows, count):
    assert cuts(body, limit, rows, certain=True) == count

"""What may be held for all iterations at once."""

from __future__ import annotations

import pytest
from lifting import lift

TEXT = """
agraph (int64 n, float[{size}] x, float[{size}] a) => (float[{size}] v) {{
  k = Constant<value_int = {trip}>()
  v = Loop ({limit}, "", x) <body = b (int64 i, bool ci, float[{size}] p) => (bool co, float[{size}] u) {{
    co = Identity(ci)
    f = Cast<to = 1>(i)
    d = Mul(a, f)
    u = Add(p, d)
  }}>
}}"""


@pytest.mark.parametrize(
    ("size", "limit", "trip", "lifted"),
    [
        (4, "n", 0, True),  # a few numbers per iteration
        (4096, "n", 0, False),  # the loop holds 16 kB, all iterations at once who knows how much
        (4096, "k", 1000, True),  # 16 MB
        (4096, "k", 10**6, False),  # 16 GB
    ],
)
def test_values_of_all_iterations_at_once(size, limit, trip, lifted):
    _, (finding,) = lift(TEXT.format(size=size, limit=limit, trip=trip))
    assert finding.lifted == lifted, finding.reason
    assert lifted or "held for every iteration" in finding.reason

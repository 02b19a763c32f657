"""What planning promises: work is done once, values are released, memory stays bounded."""

import tracemalloc

import numpy as np
import pytest
from sessions import assert_same, f32, i64, model

from looplift.runtime import LoopliftError, Session

LOOP = """g (int64 M, float[N] v, float[N] s) => (float[N] y) {{
    on = Constant <value = bool {{1}}> ()
    y = Loop <body = b (int64 i, bool c, float[N] p) => (bool c, float[N] q) {{ {body} }}> (M, on, v)
}}"""


def session(body: str) -> Session:
    return Session(model(LOOP.format(body=body)), "numpy")


def inside_the_loop(source: str) -> str:
    function = source[source.index("def loop_body") : source.index("def main")]
    return function[function.index("    for k") :]


def test_identity_and_constants_cost_nothing():
    planned = session("a = Identity(p) two = Constant <value_float = 2.0> () b = Mul(a, two) q = Identity(b)")
    assert inside_the_loop(planned.source).count(" * ") == 1
    assert len(inside_the_loop(planned.source).splitlines()) <= 5


def test_invariant_parts_are_computed_once_and_only_if_the_loop_runs():
    planned = session("one = Constant <value_ints = [1]> () two = Add(one, one) t = Tile(s, two) q = Add(p, t)")
    assert "Tile" in planned.source
    assert "Tile" not in inside_the_loop(planned.source)
    feeds = {"v": f32([1, 2]), "s": f32([5])}
    assert_same(planned.run(None, {"M": i64(0), **feeds}), [f32([1, 2])])
    assert_same(planned.run(None, {"M": i64(2), **feeds}), [f32([11, 12])])


def test_an_invariant_part_that_fails_does_so_only_if_the_loop_runs():
    planned = session("three = Constant <value_ints = [3]> () r = Reshape(s, three) q = Add(p, r)")
    feeds = {"v": f32([1]), "s": f32([1, 2])}
    assert_same(planned.run(None, {"M": i64(0), **feeds}), [f32([1])])
    with pytest.raises(LoopliftError, match="Reshape 'r' at /y:body"):
        planned.run(None, {"M": i64(1), **feeds})


def test_random_values_are_drawn_in_every_iteration():
    text = """g (int64 M, float[N] v) => (float[R, N] z) {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, float[N] p) => (bool c, float[N] p, float[N] r) {
            r = RandomNormalLike(v)
        }> (M, on, v)
    }"""
    (z,) = Session(model(text), "numpy").run(None, {"M": i64(5), "v": f32([0, 0, 0])})
    assert len(np.unique(z)) == z.size


def test_a_long_loop_holds_one_iterations_values():
    planned = session("a = Add(p, s) b = Mul(a, s) d = Tanh(b) q = Add(d, s)")
    size = 1_000_000
    feeds = {"M": i64(20), "v": np.ones(size, np.float32), "s": np.ones(size, np.float32)}
    planned.run(None, feeds)
    tracemalloc.start()
    planned.run(None, feeds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4.5 * 4 * size  # at most three values of the body, and the state


def test_values_of_the_main_graph_are_released_after_their_last_use():
    chain = " ".join(f"t{n + 1} = Tanh(t{n})" for n in range(20))
    planned = Session(model(f"g (float[N] t0) => (float[N] t20) {{ {chain} }}"), "numpy")
    size = 1_000_000
    tracemalloc.start()
    planned.run(None, {"t0": np.ones(size, np.float32)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.5 * 4 * size


def test_what_nothing_reads_is_not_computed():
    planned = session("unread = Exp(p) q = Add(p, s)")
    assert "exp" not in planned.source

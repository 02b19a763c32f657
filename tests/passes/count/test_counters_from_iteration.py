"""Counters that a loop carries are computed from its iteration number."""

import numpy as np
import pytest

from looplift.passes.count.count_while_loops import CountWhileLoops
from looplift.passes.count.counters_from_iteration import CountersFromIteration
from tests.helpers import apply, assert_same, find, model, ops, run_ort
from tests.passes.places import TRIPS, assert_same_everywhen, everywhere


def text(update: str, *, dtype="int64", start="a", cond="c", co="Identity(ci)", max_trip="M", shape="", m_type="int64"):
    """A Loop over a counter k (before) and k1 (after), both stacked, beside a state."""
    stack = f"{dtype}[n]" if not shape else f"{dtype}[n,{shape[1:-1]}]"
    state = "float[2]" if not shape else f"float{shape}"
    return f"""main ({m_type} M, bool c, {dtype}{shape} a, {state} v)
               => ({dtype}{shape} last, {state} y, {stack} before, {stack} after) {{
      zero = Constant<value = {dtype} {{0}}>()
      one = Constant<value = {dtype} {{1}}>()
      three = Constant<value = {dtype} {{3}}>()
      true = Constant<value = bool {{1}}>()
      last, y, before, after = Loop ({max_trip}, {cond}, {start}, v) <
        body = b (int64 i, bool ci, {dtype}{shape} k, {state} p)
               => (bool co, {dtype}{shape} k1, {state} w, {dtype}{shape} e, {dtype}{shape} e1) {{
          co = {co}
          {update}
          f = Cast<to = 1>(k)
          w = Add(p, f)
          e = Identity(k)
          e1 = Identity(k1)
        }}
      >
    }}"""


def assert_same_for(before, after, *, dtype=np.int64, shape=(), m_shape=()):
    for trips in TRIPS:
        for c in (True, False):
            for a in (0, 5, np.iinfo(dtype).max - 1):
                values = np.asarray((np.arange(int(np.prod(shape))).reshape(shape) + a).astype(dtype))
                feeds = {
                    "M": np.full(m_shape, trips),
                    "c": np.array(c),
                    "v": np.ones(shape or 2, np.float32),
                    "a": values,
                }
                assert run_ort(before, feeds) is not None
                assert_same(before, after, feeds)


@pytest.mark.parametrize(
    ("update", "options"),
    [
        ("k1 = Add(k, one)", {}),
        ("k1 = Add(k, one)", {"start": "zero"}),
        ("k1 = Add(k, three)", {"start": "zero", "cond": ""}),
        ("k1 = Sub(k, three)", {"cond": "true"}),
        ("x = Add(k, one)\nk1 = Add(three, x)", {"co": "Identity(true)"}),
        ("k1 = Add(k, three)", {"dtype": "int32"}),
        ("k1 = Add(k, one)", {"dtype": "int32", "start": "zero"}),
        (
            "x = Cast<to = 7>(k)\nz = Constant<value = int64 {2}>()\nu = Add(x, z)\nk1 = Cast<to = 6>(u)",
            {"dtype": "int32"},
        ),
        ("k1 = Add(k, one)", {"shape": "[3]"}),
        ("k1 = Add(k, one)", {"m_type": "int64[1]"}),
    ],
)
def test_spellings(update, options):
    before = model(text(update, **options))
    after = apply(before, CountersFromIteration())
    loop = find(after, "Loop")
    assert len(loop.inputs) == 3
    assert len(loop.outputs) == 3
    assert_same_for(
        before,
        after,
        dtype={"int64": np.int64, "int32": np.int32}[options.get("dtype", "int64")],
        shape=(3,) if "shape" in options else (),
        m_shape=(1,) if "m_type" in options else (),
    )


@pytest.mark.parametrize(
    ("update", "options"),
    [
        ("k1 = Add(k, k)", {}),
        ("k1 = Add(k, i)", {}),
        ("k1 = Add(k, a)", {}),
        ("k1 = Add(k, one)", {"dtype": "float"}),
        ("k1 = Add(k, one)", {"max_trip": "", "cond": ""}),
        ("k1 = Add(k, one)", {"co": "Not(ci)"}),
        ("s = Constant<value = int64[3] {1,1,1}>()\nk1 = Add(k, s)", {"shape": "[3]"}),
    ],
)
def test_what_stays(update, options):
    before = model(text(update, **options))
    apply(before, CountersFromIteration(), expect=False)


COUNTED = """
  zero = Constant<value = int32 {0}>()
  y, k, t = Loop (M, c, v, zero) <
    body = b (int64 i, bool ci, float[2] p, int32 k0) => (bool co, float[2] w, int32 k1, float[2] e) {
      one = Constant<value = int32 {1}>()
      co = Identity(ci)
      k1 = Add(k0, one)
      f = Cast<to = 1>(k0)
      x = Mul(s, f)
      w = Add(p, x)
      e = Identity(w)
    }
  >"""


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body", "function"])
def test_in_every_place(place):
    before = everywhere(COUNTED)[place]
    after = apply(before, CountersFromIteration())
    assert_same_everywhen(before, after)


def test_a_swapped_pair_with_a_counter_read_by_another_carry():
    before = model("""main (int64 M, int64 a, float[2] v) => (int64 last, int64 held) {
      last, held = Loop (M, , a, a) <
        body = b (int64 i, bool ci, int64 k, int64 h) => (bool co, int64 k1, int64 k) {
          co = Identity(ci)
          one = Constant<value = int64 {1}>()
          k1 = Add(k, one)
        }
      >
    }""")
    after = apply(before, CountersFromIteration())
    for trips in TRIPS:
        assert_same(before, after, {"M": np.array(trips), "a": np.array(4), "v": np.zeros(2, np.float32)})


def test_rank_one_iteration_numbers_do_not_change_a_shape():
    before = model(text("k1 = Add(k, one)").replace("int64 i,", "int64[1] i,"))
    apply(before, CountersFromIteration(), expect=False)
    before = model(text("k1 = Add(k, one)", shape="[1]").replace("int64 i,", "int64[1] i,"))
    after = apply(before, CountersFromIteration())
    assert_same_for(before, after, shape=(1,))


@pytest.mark.parametrize("opset", [9, 11, 17])
def test_a_loop_that_only_counts_is_gone(opset):
    before = model(
        """main (int64 M, int32 a) => (int32 last) {
          last = Loop (M, , a) <
            body = b (int64 i, bool ci, int32 k) => (bool co, int32 k1) {
              co = Identity(ci)
              one = Constant<value = int32 {1}>()
              k1 = Add(k, one)
            }
          >
        }""",
        opset,
    )
    after = apply(before, CountersFromIteration())
    assert "Loop" not in ops(after.graph)
    for trips in TRIPS:
        for a in (0, 7, 2**31 - 3):
            assert_same(before, after, {"M": np.array(trips), "a": np.array(a, np.int32)})


def test_before_opset_11_one_carry_stays():
    loop = """main (int64 M, int64 a) => (int64[n] seen) {
      last, seen = Loop (M, , a) <
        body = b (int64 i, bool ci, int64 k) => (bool co, int64 k1, int64 e) {
          co = Identity(ci)
          one = Constant<value = int64 {1}>()
          k1 = Add(k, one)
          e = Identity(k)
        }
      >
    }"""
    apply(model(loop, opset=10), CountersFromIteration(), expect=False)
    after = apply(model(loop, opset=11), CountersFromIteration())
    assert len(find(after, "Loop").inputs) == 2


def test_after_counting_a_while_loop_nothing_but_the_state_is_carried():
    before = model("""main (int32 n, float[2] v) => (int32 k, float[2] y) {
      zero = Constant<value = int32 {0}>()
      go = Less(zero, n)
      k, y = Loop (, go, zero, v) <
        body = b (int64 i, bool ci, int32 c, float[2] p) => (bool co, int32 c1, float[2] w) {
          one = Constant<value = int32 {1}>()
          c1 = Add(c, one)
          co = Less(c1, n)
          f = Cast<to = 1>(c1)
          w = Add(p, f)
        }
      >
    }""")
    after = apply(before, CountWhileLoops(), CountersFromIteration())
    loop = find(after, "Loop")
    assert len(loop.inputs) == 3
    assert "Less" not in ops(loop.attributes["body"].as_graph())
    for n in TRIPS:
        assert_same(before, after, {"n": np.array(n, np.int32), "v": np.ones(2, np.float32)})

"""Carries that never change are read from outside."""

import numpy as np
import pytest

from looplift.passes.clean.forward_invariant_carries import ForwardInvariantCarries
from tests.helpers import apply, assert_same, find, model, ops
from tests.passes.places import assert_same_everywhen, everywhere

STEP_CARRIED = """
  y, s2, t = Loop (M, c, v, s) <
    body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] w, float[2] q2, float[2] e) {
      co = Identity(ci)
      w = Add(p, q)
      q2 = Identity(q)
      e = Identity(w)
    }
  >
"""


def forwarded(text, opset=17, **options):
    before = model(text, opset)
    return before, apply(before, ForwardInvariantCarries(), **options)


def one_loop(updates: str, initial: str = "v, s", opset: int = 17):
    """A Loop with the carries p and q, updated to p2 and q2, with finals y and z and the stacked p in t."""
    return f"""main (int64 M, bool c, float[2] v, float[2] s) => (float[2] y, float[2] z, float[k,2] t) {{
      one = Constant<value = float[2] {{1, 1}}>()
      one_again = Constant<value = float[2] {{1, 1}}>()
      minus_zero = Constant<value = float[2] {{-0.0, -0.0}}>()
      zero = Constant<value = float[2] {{0, 0}}>()
      y, z, t = Loop (M, c, {initial}) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] p2, float[2] q2, float[2] e) {{
          co = Identity(ci)
          e = Identity(p)
          {updates}
        }}
      >
    }}"""


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body", "function"])
def test_in_every_place(place):
    before = everywhere(STEP_CARRIED)[place]
    after = apply(before, ForwardInvariantCarries())
    assert_same_everywhen(before, after)
    loops = [n for g in [after.graph, *after.functions.values()] for n in g.all_nodes() if n.op_type == "Loop"]
    assert len(loops[-1].inputs) == 3
    if place == "main graph":
        add = next(n for n in loops[-1].attributes["body"].as_graph() if n.op_type == "Add")
        assert add.inputs[1] is after.graph.inputs[3]


@pytest.mark.parametrize(
    ("updates", "initial"),
    [
        ("p2 = Add(p, q) q2 = Cast<to=1>(q)", "v, s"),
        ("p2 = Add(p, q) a = Identity(q) b = Cast<to=1>(a) q2 = Identity(b)", "v, s"),
        ("p2 = Add(p, q) q2 = CastLike(q, p)", "v, s"),
        ("p2 = Add(p, q) q2 = Identity(s)", "v, s"),
        ("p2 = Add(p, q) q2 = Identity(one)", "v, one_again"),
        ("p2 = Add(p, q) q2 = Constant<value = float[2] {1, 1}>()", "v, one"),
        ("p2 = Add(q, q) q2 = Identity(q)", "v, s"),
    ],
)
def test_ways_to_stay_the_same(updates, initial):
    before, after = forwarded(one_loop(updates, initial))
    assert len(find(after, "Loop").inputs) == 3
    assert_same_everywhen(before, after)


@pytest.mark.parametrize(
    ("updates", "initial"),
    [
        ("p2 = Identity(q) q2 = Identity(p)", "v, s"),  # swapped
        ("p2 = Add(p, q) a = Cast<to=10>(q) q2 = Cast<to=1>(a)", "v, s"),  # rounds
        ("p2 = Add(p, q) q2 = Identity(v)", "v, s"),  # another value than the initial one
        ("p2 = Add(p, q) q2 = Identity(minus_zero)", "v, zero"),  # equal, but not the same bits
        ("p2 = Add(p, q) q2 = Neg(q)", "v, s"),
    ],
)
def test_refuses(updates, initial):
    forwarded(one_loop(updates, initial), expect=False)


def test_final_value_is_the_initial_one_whatever_the_body_declares():
    text = """main (int64 M, float[2,3] v, float[1] s) => (float[r,d] y, float[n] z) {
      y, z = Loop (M, , v, s) <
        body = b (int64 i, bool ci, float[a,b] p, float[7] q) => (bool co, float[a,b] p2, float[7] q) {
          co = Identity(ci)
          p2 = Add(p, q)
        }
      >
    }"""
    before, after = forwarded(text)
    assert len(find(after, "Loop").inputs) == 3
    for trips in (-1, 0, 1, 3):
        feeds = {"M": np.array(trips), "v": np.ones((2, 3), np.float32), "s": np.array([0.1], np.float32)}
        assert_same(before, after, feeds)


def test_read_by_a_nested_body_another_carry_and_a_scan_output():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y, float[2] z, float[k,2] t) {
      y, z, u, t = Loop (M, , v, s, s) <
        body = b (int64 i, bool ci, float[2] p, float[2] q, float[2] r)
            => (bool co, float[2] p2, float[2] q, float[2] q, float[2] q) {
          co = Identity(ci)
          p2 = Loop (M, , p) <body = inner (int64 j, bool di, float[2] a) => (bool do, float[2] a2) {
            do = Identity(di)
            a2 = Add(a, q)
          }>
        }
      >
    }"""
    before, after = forwarded(text)
    outer = after.graph.node(0)
    assert len(outer.inputs) == 3  # r is updated by q, which is the initial value of both
    for trips in (-1, 0, 1, 2, 5):
        feeds = {"M": np.array(trips), "v": np.zeros(2, np.float32), "s": np.array([0.1, 3], np.float32)}
        assert_same(before, after, feeds)


def test_from_an_inner_loop_through_an_outer_one():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y) {
      y, z = Loop (M, , v, s) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] p2, float[2] q2) {
          co = Identity(ci)
          p2, q2 = Loop (M, , p, q) <
            body = inner (int64 j, bool di, float[2] a, float[2] k) => (bool do, float[2] a2, float[2] k2) {
              do = Identity(di)
              a2 = Add(a, k)
              k2 = Identity(k)
            }
          >
        }
      >
    }"""
    before, after = forwarded(text)
    assert [len(n.inputs) for n in after.graph.all_nodes() if n.op_type == "Loop"] == [3, 3]
    for trips in (-1, 0, 1, 2, 5):
        feeds = {"M": np.array(trips), "v": np.zeros(2, np.float32), "s": np.array([0.1, 3], np.float32)}
        assert_same(before, after, feeds)


def test_names_of_the_body_do_not_shadow_the_forwarded_value():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y) {
      y, z = Loop (M, , v, s) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] s2, float[2] q2) {
          co = Identity(ci)
          s = Neg(p)
          s2 = Add(s, q)
          q2 = Identity(q)
        }
      >
    }"""
    before = model(text)
    after = apply(before, ForwardInvariantCarries())
    body = find(after, "Loop").attributes["body"].as_graph()
    names = [value.name for value in body.inputs] + [value.name for node in body for value in node.outputs]
    assert "s" not in names


@pytest.mark.parametrize(("opset", "inputs"), [(8, 3), (10, 3), (11, 2)])
def test_a_loop_that_must_carry_something_keeps_a_carry(opset, inputs):
    text = """main (int64 M, bool c, float[2] s) => (float[k,2] t, float[2] z) {
      z, t = Loop (M, c, s) <
        body = b (int64 i, bool ci, float[2] q) => (bool co, float[2] q2, float[2] e) {
          co = Identity(ci)
          q2 = Identity(q)
          e = Add(q, q)
        }
      >
    }"""
    before, after = forwarded(text, opset)
    loop = find(after, "Loop")
    assert len(loop.inputs) == inputs
    add = next(n for n in loop.attributes["body"].as_graph() if n.op_type == "Add")
    assert add.inputs[0] is after.graph.inputs[2]
    for trips in (-1, 0, 1, 2):
        assert_same(before, after, {"M": np.array(trips), "c": np.array(True), "s": np.ones(2, np.float32)})


def test_a_loop_of_invariant_carries_only_keeps_a_dead_one():
    text = """main (int64 M, float[2] s, float r) => (float[2] y, float z) {
      y, z = Loop (M, , s, r) <body = b (int64 i, bool ci, float[2] q, float p) => (bool co, float[2] q, float p) {
        co = Identity(ci)
      }>
    }"""
    before, after = forwarded(text)
    assert not any(output.uses() or output.is_graph_output() for output in find(after, "Loop").outputs)
    assert_same(before, after, {"M": np.array(3), "s": np.ones(2, np.float32), "r": np.array(2, np.float32)})


def test_scan():
    text = """main (float[2] v, float[2] s, float[n,2] x) => (float[2] y, float[2] z, float[n,2] t) {
      y, z, t = Scan <num_scan_inputs=1,
        body = b (float[2] p, float[2] q, float[2] e) => (float[2] p2, float[2] q2, float[2] o) {
          m = Mul(e, q)
          p2 = Add(p, m)
          q2 = Identity(q)
          o = Identity(p2)
        }
      > (v, s, x)
    }"""
    before, after = forwarded(text)
    assert ops(after.graph).count("Mul") == 1
    assert len(find(after, "Scan").inputs) == 2
    for n in (1, 2, 5):
        feeds = {"v": np.ones(2, np.float32), "s": np.array([0.3, 2], np.float32)}
        assert_same(before, after, {**feeds, "x": np.arange(2 * n, dtype=np.float32).reshape(n, 2)})


def test_leaves_a_batched_scan():
    text = """main (float[b,2] v, float[b,2] s, float[b,n,2] x) => (float[b,2] y, float[b,2] z) {
      y, z = Scan <num_scan_inputs=1,
        body = b (float[2] p, float[2] q, float[2] e) => (float[2] p2, float[2] q2) {
          m = Mul(e, q)
          p2 = Add(p, m)
          q2 = Identity(q)
        }
      > (, v, s, x)
    }"""
    forwarded(text, 8, expect=False)


@pytest.mark.parametrize(("opset", "changes"), [(13, False), (14, True)])
def test_a_sequence_is_copied_only_where_identity_takes_it(opset, changes):
    text = """main (int64 M, float[2] v, seq(float[2]) s) => (float[2] y, seq(float[2]) z) {
      y, z = Loop (M, , v, s) <
        body = b (int64 i, bool ci, float[2] p, seq(float[2]) q) => (bool co, float[2] p2, seq(float[2]) q) {
          co = Identity(ci)
          zero = Constant<value = int64 {0}>()
          a = SequenceAt(q, zero)
          p2 = Add(p, a)
        }
      >
    }"""
    _, after = forwarded(text, opset, expect=changes)
    assert len(find(after, "Loop").inputs) == (3 if changes else 4)

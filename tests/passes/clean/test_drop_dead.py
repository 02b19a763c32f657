"""What nothing observable depends on goes."""

import numpy as np
import onnx_ir as ir
import pytest

from looplift.passes.clean.drop_dead import DropDead
from tests.helpers import apply, assert_same, find, model, ops
from tests.passes.places import assert_same_everywhen, everywhere

DEAD_CARRY_AND_SCAN_OUTPUT = """
  y, count, junk, t, unread_stack = Loop (M, c, v, M, s) <
    body = b (int64 i, bool ci, float[2] p, int64 n, float[2] d)
        => (bool co, float[2] w, int64 n2, float[2] d2, float[2] e, float[2] unread) {
      co = Identity(ci)
      w = Add(p, s)
      n2 = Add(n, i)
      d2 = Mul(d, w)
      e = Identity(w)
      unread = Neg(d)
    }
  >
"""


def dropped(text, opset=17, **options):
    before = model(text, opset)
    return before, apply(before, DropDead(), **options)


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body", "function"])
def test_in_every_place(place):
    before = everywhere(DEAD_CARRY_AND_SCAN_OUTPUT)[place]
    after = apply(before, DropDead())
    assert_same_everywhen(before, after)
    graphs = [after.graph, *after.functions.values()]
    kinds = [node.op_type for graph in graphs for node in graph.all_nodes()]
    assert "Mul" not in kinds
    assert "Neg" not in kinds
    inner = [n for g in graphs for n in g.all_nodes() if n.op_type == "Loop"][-1]
    assert (len(inner.inputs), len(inner.outputs)) == (3, 2)


def loop(body: str, carries: str = "v, s", outputs: str = "y, z, t", graph_outputs: str = "float[2] y") -> str:
    """A Loop over p and q whose body makes co, p2, q2 and stacks e; of its outputs, the graph returns some."""
    return f"""main (int64 M, bool c, float[2] v, float[2] s) => ({graph_outputs}) {{
      {outputs} = Loop (M, c, {carries}) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] p2, float[2] q2, float[2] e) {{
          {body}
        }}
      >
    }}"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        # p reads q: q stays, e goes
        ("co = Identity(ci) p2 = Add(p, q) q2 = Neg(q) e = Neg(p)", 2),
        # q reads p, nothing else: q goes
        ("co = Identity(ci) p2 = Neg(p) q2 = Add(p, q) e = Neg(q)", 1),
        # the exit test reads q
        ("z0 = ReduceSum<keepdims=0>(q) h = CastLike(z0, ci) co = And(ci, h) p2 = Neg(p) q2 = Sub(q, q) e = Neg(q)", 2),
        # p reads q only for its shape, but reads it
        ("co = Identity(ci) n = Size(q) f = CastLike(n, p) p2 = Add(p, f) q2 = Neg(q) e = Neg(q)", 2),
    ],
)
def test_liveness(body, left):
    before, after = dropped(loop(body))
    assert len(find(after, "Loop").inputs) == 2 + left
    assert len(find(after, "Loop").outputs) == left
    for trips in (-1, 0, 1, 2, 17):
        feeds = {"M": np.array(trips), "c": np.array(True), "v": np.array([1, 2], np.float32)}
        assert_same(before, after, {**feeds, "s": np.array([-0.5, 1], np.float32)})


def test_a_cycle_of_dead_carries_goes_at_once():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y) {
      y, a, b = Loop (M, , v, s, v) <
        body = b (int64 i, bool ci, float[2] p, float[2] q, float[2] r)
            => (bool co, float[2] p2, float[2] r, float[2] x) {
          co = Identity(ci)
          p2 = Add(p, s)
          x = Add(q, p)
        }
      >
    }"""
    _, after = dropped(text)
    assert len(find(after, "Loop").inputs) == 3


def test_a_nested_body_keeps_what_it_reads():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y) {
      y, a = Loop (M, , v, s) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] p2, float[2] q2) {
          co = Identity(ci)
          q2 = Neg(q)
          p2 = Loop (M, , p) <body = inner (int64 j, bool di, float[2] k) => (bool do, float[2] k2) {
            do = Identity(di)
            k2 = Add(k, q)
          }>
        }
      >
    }"""
    dropped(text, expect=False)


def test_what_an_inner_loop_frees_goes_from_the_outer_one():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y) {
      double = Add(s, s)
      y, a = Loop (M, , v, double) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] p2, float[2] q2) {
          co = Identity(ci)
          p2, q2 = Loop (M, , p, q) <
            body = inner (int64 j, bool di, float[2] k, float[2] r) => (bool do, float[2] k2, float[2] r2) {
              do = Identity(di)
              k2 = Neg(k)
              r2 = Add(k, r)
            }
          >
        }
      >
    }"""
    before, after = dropped(text)
    assert "Add" not in ops(after.graph)
    assert [len(n.inputs) for n in after.graph.all_nodes() if n.op_type == "Loop"] == [3, 3]
    for trips in (-1, 0, 1, 2):
        feeds = {"M": np.array(trips), "v": np.ones(2, np.float32), "s": np.zeros(2, np.float32)}
        assert_same(before, after, feeds)


def test_dead_loops_go_with_what_fed_them():
    text = """main (int64 M, float[2] v) => (float[2] y)
      <float[2] kept = {1, 2}, float[2] gone = {3, 4}> {
      h = Add(v, gone)
      a = Loop (M, , h) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2) {
        co = Identity(ci)
        p2 = Neg(p)
      }>
      z = Loop (M, , a) <body = b2 (int64 i2, bool ci2, float[2] q) => (bool co2, float[2] q2) {
        co2 = Identity(ci2)
        q2 = Neg(q)
      }>
      unrelated = Neg(v)
      y = Add(v, kept)
    }"""
    before, after = dropped(text)
    assert ops(after.graph) == ["Neg", "Add"]  # what fed no loop is none of this pass's business
    assert list(after.graph.initializers) == ["kept"]
    assert_same(before, after, {"M": np.array(2), "v": np.ones(2, np.float32)})


def test_a_dead_loop_goes_with_the_loops_inside():
    text = """main (int64 M, float[2] v) => (float[2] y) {
      y = Neg(v)
      z = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2) {
        co = Identity(ci)
        q = Loop (M, , p) <body = inner (int64 j, bool di, float[2] k) => (bool do, float[2] k2) {
          do = Identity(di)
          k2 = Neg(k)
        }>
        p2 = Abs(q)
      }>
    }"""
    _, after = dropped(text)
    assert ops(after.graph) == ["Neg"]


def test_what_a_removed_loop_read_is_free():
    """The IR goes on counting the nodes of a removed loop's body as readers, unless they let go."""
    text = """main (int64 M, float[2] v) => (float[2] y) {
      y, z = Loop (M, , v, v) <body = b (int64 i, bool ci, float[2] p, float[2] q)
          => (bool co, float[2] p2, float[2] q2) {
        co = Identity(ci)
        p2 = Neg(p)
        q2 = Neg(q)
        captured = Add(p, q)
        unread = Loop (M, , v) <body = inner (int64 j, bool di, float[2] k) => (bool do, float[2] k2) {
          do = Identity(di)
          k2 = Add(k, captured)
        }>
      }>
    }"""
    _, after = dropped(text)
    assert ops(after.graph) == ["Loop", "Identity", "Neg"]


def test_a_branch_keeps_what_it_returns_even_if_nobody_reads_it():
    text = """main (int64 M, bool c, float[2] v) => (float[2] y) {
      y = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2) {
        co = Identity(ci)
        p2, unread = If (c) <
          then_branch = then () => (float[2] a, float[2] b) {
            a, b, dead = Loop (M, , p, p, p) <
              body = inner (int64 j, bool di, float[2] k, float[2] l, float[2] m)
                  => (bool do, float[2] k2, float[2] l2, float[2] m2) {
                do = Identity(di)
                k2 = Neg(k)
                l2 = Add(l, l)
                m2 = Abs(m)
              }
            >
          },
          else_branch = else () => (float[2] a1, float[2] b1) { a1 = Abs(p) b1 = Neg(p) }
        >
      }>
    }"""
    before, after = dropped(text)
    assert [len(n.outputs) for n in after.graph.all_nodes() if n.op_type == "Loop"] == [1, 2]
    for trips in (0, 1, 3):
        for c in (True, False):
            feeds = {"M": np.array(trips), "c": np.array(c), "v": np.array([1, -2], np.float32)}
            assert_same(before, after, feeds)


def test_a_model_without_loops_is_left_alone():
    dropped("main (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { z = Neg(x) y = Abs(x) }", expect=False)


def test_body_nodes_and_initializers():
    text = """main (int64 M, float[2] v) => (float[2] y) {
      y = Loop (M, , v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2)
          <float[2] read = {1, 2}, float[2] unread = {3, 4}> {
          co = Identity(ci)
          dead = Add(p, unread)
          p2 = Add(p, read)
        }
      >
    }"""
    before, after = dropped(text)
    body = find(after, "Loop").attributes["body"].as_graph()
    assert list(body.initializers) == ["read"]
    assert [node.op_type for node in body] == ["Identity", "Add"]
    assert_same(before, after, {"M": np.array(3), "v": np.ones(2, np.float32)})


@pytest.mark.parametrize(("opset", "inputs"), [(9, 3), (10, 3), (11, 2)])
def test_a_loop_that_must_carry_something_keeps_a_carry(opset, inputs):
    text = """main (int64 M, float[2] s) => (float[k,2] t) {
      z, u, t = Loop (M, , s, s) <
        body = b (int64 i, bool ci, float[2] q, float[2] r) => (bool co, float[2] q2, float[2] r2, float[2] e) {
          co = Identity(ci)
          q2 = Add(q, r)
          r2 = Neg(r)
          e = Neg(s)
        }
      >
    }"""
    if inputs == 3:
        text = text.replace("Add(q, r)", "Neg(q)")
    before, after = dropped(text, opset)
    assert len(find(after, "Loop").inputs) == inputs
    for trips in (-1, 0, 1, 2):
        assert_same(before, after, {"M": np.array(trips), "s": np.ones(2, np.float32)})


def test_outputs_left_out():
    before = model(loop("co = Identity(ci) p2 = Add(p, s) q2 = Add(q, p) e = Neg(p)", graph_outputs="float[2] y"))
    for unread in find(before, "Loop").outputs[1:]:
        unread.name = ""
    after = apply(before, DropDead())
    assert len(find(after, "Loop").outputs) == 1
    middle = model(loop("co = Identity(ci) p2 = Add(q, p) q2 = Add(q, q) e = Neg(p)", graph_outputs="float[k,2] t"))
    for unread in find(middle, "Loop").outputs[:2]:
        unread.name = ""
    apply(middle, DropDead(), expect=False)  # both carries feed the stacked e


def test_scan_inputs():
    text = """main (float[2] v, float[n,2] x, float[n,2] w, float[n,2] u) => (float[2] y) {
      y, t = Scan <num_scan_inputs=3, scan_input_axes=[0, 0, 0], scan_input_directions=[0, 1, 0],
        body = b (float[2] p, float[2] e, float[2] f, float[2] g) => (float[2] p2, float[2] o) {
          p2 = Sub(f, p)
          o = Add(e, g)
        }
      > (v, x, w, u)
    }"""
    before, after = dropped(text)
    scan = find(after, "Scan")
    assert [value.name for value in scan.inputs] == ["v", "w"]
    assert list(scan.attributes["scan_input_directions"].as_ints()) == [1]
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert_same(before, after, {"v": np.ones(2, np.float32), "x": rows, "w": rows * rows, "u": rows})


def test_the_last_scan_input_stays_for_its_length():
    text = """main (float[2] v, float[n,2] x, float[n,2] w) => (float[2] y) {
      y = Scan <num_scan_inputs=2, body = b (float[2] p, float[2] e, float[2] f) => (float[2] p2) { p2 = Add(p, p) }>
        (v, x, w)
    }"""
    before, after = dropped(text)
    assert [value.name for value in find(after, "Scan").inputs] == ["v", "x"]
    rows = np.zeros((5, 2), np.float32)
    assert_same(before, after, {"v": np.ones(2, np.float32), "x": rows, "w": rows})


def test_a_batched_scan_keeps_its_ports():
    text = """main (float[b,2] v, float[b,n,2] x) => (float[b,2] y) {
      y, t = Scan <num_scan_inputs=1,
        body = b (float[2] p, float[2] e) => (float[2] p2, float[2] o) {
          p2 = Add(p, e)
          o = Neg(e)
          dead = Abs(p)
        }
      > (, v, x)
    }"""
    _, after = dropped(text, 8)
    scan = find(after, "Scan")
    assert len(scan.outputs) == 2
    assert [node.op_type for node in scan.attributes["body"].as_graph()] == ["Add", "Neg"]


def test_says_what_it_did():
    _, after = dropped(loop("co = Identity(ci) p2 = Neg(p) q2 = Add(p, q) e = Neg(q)"))
    (finding,) = after.graph.meta["findings"]
    assert finding.actions == ("dropped carry 'q', scan output 'e', on which nothing depends",)
    assert isinstance(after, ir.Model)

"""A stack without rows has the rank in ONNX Runtime that it had before, though the body was rewritten."""

from __future__ import annotations

import numpy as np
import pytest

from looplift.passes import run_pipeline
from looplift.runtime import Session
from tests.helpers import assert_same, find, model, ops, run_ort
from tests.passes.places import everywhere, feeds

STAYS = """
  y, t = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q, r) {
    co = Identity(ci) a = Tanh(p) e = Identity(a) q = Mul(e, s) r = Identity(q)
  }>
"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("place", everywhere(STAYS))
def test_rows_of_a_loop_that_stays_are_declared(place, target):
    before = everywhere(STAYS)[place]
    after, _ = run_pipeline(before, target=target)
    for trips in (-1, 0, 3):
        assert_same(before, after, feeds(before, trips))


UNPROVEN = """
agraph (int64 n, float[2] v, int64[r] shape) => (float[2] y, float[k,j] t) {
  y, t = Loop (n, "", v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q, r) {
    co = Identity(ci) one = Constant<value_float = 1.0>() w = Mul(p, one) x = Tanh(w) q = Reshape(x, shape) r = Identity(p)
  }>
}"""


@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_where_nothing_is_proven_the_rows_stay_what_engines_inferred(target):
    before = model(UNPROVEN)
    after, _ = run_pipeline(before, target=target)
    assert "Mul" not in ops(after.graph)
    element = find(after, "Loop").attributes["body"].as_graph().outputs[2]
    assert element.shape == [2]
    assert not element.metadata_props
    feed = {"n": np.array(0), "v": np.ones(2, np.float32), "shape": np.array([2])}
    assert_same(before, after, feed)
    assert_same(before, after, {**feed, "n": np.array(2)})


BARE = """agraph (double[] x, double[3] z, int64 n) => (double[?,?] t) {
  t = Loop (n, "") <body = b (int64 i, bool ci) => (bool co, r) {
    co = Identity(ci) r = Scan (x, z) <num_scan_inputs = 1, body = s (p, double e) => (double[SHAPE] q) { q = Add(z, p) }>
  }>
}"""


@pytest.mark.parametrize(("shape", "found"), [("3", (0, 3)), ("", (0,))])
def test_rows_of_no_iteration_have_what_an_engine_inferred_of_them(shape, found):
    """Of a Scan's body declared, or nowhere: then not even a rank, though it is known that the series has one."""
    before = model(BARE.replace("[SHAPE]", f"[{shape}]"))
    after, _ = run_pipeline(before)
    feed = {"x": np.ones(3), "z": np.ones(3), "n": np.array(0)}
    assert run_ort(before, feed)[0].shape == run_ort(after, feed)[0].shape == found


OUTSIDE = """agraph (float[] x, float[?] v, int64 n) => (float[?] y, float[?,?] t) {
  axes = Constant<value_ints = [0]>()
  y, t = Loop (n, "", x) <body = b (int64 i, bool ci, float[?] p) => (bool co, float[?] q, r) {
    co = Identity(ci) q = Identity(x) s = ReduceSum<keepdims = 1>(p, axes) r = Identity(s)
  }>
}"""


def test_engines_infer_by_constants_from_outside():
    before = model(OUTSIDE)
    after, _ = run_pipeline(before)
    feed = {"x": np.ones(3, np.float32), "v": np.ones(3, np.float32), "n": np.array(0)}
    assert run_ort(before, feed)[1].shape == run_ort(after, feed)[1].shape == (0, 1)


GROWS = """
agraph (int64 n, float[1,3] x) => (float[k,3] y, float[m,a,b] t) {
  y, t = Loop (n, "", x) <body = b (int64 i, bool ci, float[1,3] p) => (bool co, float[?,3] q, r) {
    co = Identity(ci) e = Identity(p) f = Tanh(e) q = Concat<axis = 0>(f, x) r = ReduceSum<keepdims = 1>(q)
  }>
}"""


def test_what_is_declared_is_proven():
    """The rows are [1, 1] whatever the state grows to, and the state's rank is all that is known of it."""
    before = model(GROWS.replace("r = ReduceSum<keepdims = 1>(q)", "r = Identity(q)"))
    after, _ = run_pipeline(before)
    assert list(find(after, "Loop").attributes["body"].as_graph().outputs[2].shape) != [1, 3]
    before = model(GROWS)
    after, _ = run_pipeline(before)
    assert list(find(after, "Loop").attributes["body"].as_graph().outputs[2].shape) == [1, 1]
    x = np.ones((1, 3), np.float32)
    assert run_ort(after, {"n": np.array(0), "x": x})[1].shape == (0, 1, 1)
    assert_same(before, after, {"n": np.array(2), "x": x})


COPIED = [
    """
agraph (int64 n, float[a] v, bool[] y) => (bool[k,i,j] t) {
  one = Constant<value_ints = [1]>()
  t = Scan <num_scan_inputs = 1, body = b (float x) => (r) {
    e, s = Loop (one, "", y) <body = inner (int64 i, bool ci, bool[?] p) => (bool co, q, w) {
      co = Identity(ci) q = Identity(p) w = Identity(p)
    }>
    r = Identity(s)
  }> (v)
}""",
    """
agraph (float[a] v, int64 n, int64[] z, int64[r] shape) => (int64[k,i] t, float[k,?,?] u) {
  t, u = Scan <num_scan_inputs = 1, body = b (float x) => (int64[?] r, float[?,3] w) {
    one = Constant<value_int = 1>() r = Add(z, one) w = Reshape(v, shape)
  }> (v)
}""",
    """
agraph (int64 n, float[a] v, int64[r] shape) => (float[k,i,3] t) {
  t = Loop (n, "") <body = b (int64 i, bool ci) => (bool co, float[?,3] r) {
    co = Identity(ci) e = Exp(v) q = Reshape(e, shape) r = Identity(q)
  }>
}""",
    """
agraph (int64 n, float[a] v, int64[r] shape) => (int64[k,i,3] t) {
  t = Scan <num_scan_inputs = 1, body = b (float x) => (int64[?,3] r) {
    q = ConstantOfShape<value = int64[1] {7}>(shape) r = Identity(q)
  }> (v)
}""",
]
"""The row's shape is declared of a copy, and can't be proven: ONNX Runtime runs no Scan without, in a body."""


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("text", COPIED)
def test_a_declared_row_stays_declared_where_its_copy_goes(text, target):
    before = model(text)
    after, _ = run_pipeline(before, target=target)
    feed = {
        "n": np.array(0),
        "v": np.ones(3, np.float32),
        "shape": np.array([1, 3]),
        "y": np.ones(2, bool),
        "z": np.arange(2),
    }
    assert ops(after.graph) != ops(before.graph)
    for trips in (0, 2):
        given = {v.name: {**feed, "n": np.array(trips)}[v.name] for v in before.graph.inputs}
        assert run_ort(before, given) is not None
        assert_same(before, after, given)
        wanted, got = (Session(each, "numpy").run(None, given) for each in (before, after))
        assert [each.shape for each in got] == [each.shape for each in wanted]

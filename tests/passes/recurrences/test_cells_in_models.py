"""Loops around a cell that collect lists, hold several cells, and stand in any graph; what runs zero times; last bits."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import looplift
from looplift.passes import run_pipeline
from tests.engine_bits import drawn, given
from tests.helpers import model, ops, run_ort
from tests.passes.cell_loops import GATES, HEAD, SIZES, agree, feeds, loop, weights

LIST = """agraph (float[T,B,3] x, float[B,4] h0, float[B,4] c0, float[1,16,3] W, float[1,16,4] R, float[1,32] D)
    => (float[T,B,4] ys, float[B,4] cT) {
  zero = Constant<value_ints = [0]>() null = Constant<value_int = 0>() s1 = Constant<value_int = 1>()
  yes = Constant<value = bool {1}>()
  shape = Shape(x) n = Gather(shape, null)
  none = SequenceEmpty<dtype = 1>()
  hT, cT, all = Loop (n, yes, h0, c0, none) <body = b (int64 i, bool k, float[B,4] h, float[B,4] c, seq(float[?,?]) l)
      => (bool go, float[B,4] hn, float[B,4] cn, seq(float[?,?]) more) {
    {read}
    xs = Unsqueeze(xt, zero) hs = Unsqueeze(h, zero) cs = Unsqueeze(c, zero)
    Y, Yh, Yc = LSTM<hidden_size = 4>(xs, W, R, D, "", hs, cs)
    hn = Squeeze(Yh, zero) cn = Squeeze(Yc, zero)
    more = SequenceInsert(l, {insert})
    go = Identity(yes)
  }>
  ys = ConcatFromSequence<axis = 0, new_axis = 1>(all)
}"""


@pytest.mark.parametrize("insert", ["hn", "hn, null"])
@pytest.mark.parametrize("read", ["xt = Gather(x, i)", "m = Sub(n, s1) j = Sub(m, i) xt = Gather(x, j)"])
def test_lists(read, insert):
    before = given(LIST.replace("{read}", read).replace("{insert}", insert), **weights())
    after, (finding,) = run_pipeline(before, target="standard")
    assert finding.lifted, finding
    for steps, batch in SIZES[1:]:
        agree(before, after, feeds(before, steps, batch))
    none = feeds(before, 0, 2)
    assert run_ort(after, none)[1].tobytes() == none["c0"].tobytes()  # the list is empty, and joining it an error


TWO_LAYERS = """agraph (float[T,B,3] x, float[B,4] h0, float[B,4] c0, float[B,4] g0, float[B,4] d0,
    float[1,16,3] W, float[1,16,4] R, float[1,32] D, float[1,12,4] V, float[1,12,4] S)
    => (float[B,4] hT, float[B,4] gT, float[T,B,2] out) {
  zero = Constant<value_ints = [0]>() length = Shape<end = 1>(x) n = Squeeze(length)
  P = Constant<value = float[4,2] {1, 0, 0, 2, 1, 1, 0, -1}>()
  hT, cT, gT, out = Loop (n, "", h0, c0, g0) <body = b (int64 i, bool k, float[B,4] h, float[B,4] c, float[B,4] g)
      => (bool go, float[B,4] hn, float[B,4] cn, float[B,4] gn, float[B,2] o) {
    xt = Gather(x, i) xs = Unsqueeze(xt, zero) hs = Unsqueeze(h, zero) cs = Unsqueeze(c, zero)
    Y, Yh, Yc = LSTM<hidden_size = 4>(xs, W, R, D, "", hs, cs)
    hn = Squeeze(Yh, zero) cn = Squeeze(Yc, zero)
    u = {between}
    us = Unsqueeze(u, zero) gs = Unsqueeze(g, zero)
    Z, Zg = GRU<hidden_size = 4>(us, V, S, "", "", gs)
    gn = Squeeze(Zg, zero)
    o = MatMul(gn, P)
    go = Identity(k)
  }>
}"""


@pytest.mark.parametrize("between", ["Identity(hn)", "Relu(hn)", "Add(hn, h)"])
def test_the_second_layer_reads_the_first(between):
    extra = {"V": drawn(1, 12, 4), "S": drawn(1, 12, 4, 1)[..., 0]}
    before = given(TWO_LAYERS.replace("{between}", between), **weights(), **extra)
    after, (finding,) = run_pipeline(before, target="standard")
    assert finding.lifted, finding
    assert sorted(each for each in ops(after.graph) if each in ("Loop", "Scan", *GATES)) == ["GRU", "LSTM"]
    for steps, batch in SIZES:
        agree(before, after, feeds(before, steps, batch))


STACKED = """agraph (float[T,B,4] x, float[2,B,4] h0, float[1,12,4] W, float[1,12,4] R, float[1,24] D)
    => (float[2,B,4] hT, float[T,B,4] ys) {
  zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
  length = Shape<end = 1>(x) n = Squeeze(length)
  hT, ys = Loop (n, "", h0) <body = b (int64 i, bool k, float[2,B,4] h) => (bool go, float[2,B,4] hn, float[B,4] y) {
    xt = Gather(x, i) xs = Unsqueeze(xt, zero)
    a = Slice(h, zero, one, zero) b = Slice(h, one, two, zero)
    Y, Ya = GRU<hidden_size = 4>(xs, W, R, D, "", a)
    seq = Squeeze(Y, one)
    Z, Zb = GRU<hidden_size = 4>(seq, W, R, D, "", b)
    hn = Concat<axis = 0>(Ya, Zb)
    y = Squeeze(Zb, zero)
    go = Identity(k)
  }>
}"""


def test_the_states_of_layers_in_one_tensor():
    before = given(STACKED, **weights("GRU") | {"W": drawn(1, 12, 4)})
    after, (finding,) = run_pipeline(before, target="standard")
    assert finding.lifted, finding
    assert ops(after.graph).count("GRU") == 2
    for steps, batch in SIZES:
        inputs = feeds(before, steps, batch, (2, None, 4))
        inputs["x"] = np.concatenate([inputs["x"], inputs["x"][..., :1]], -1)
        agree(before, after, inputs)


SCAN = """agraph (float[T,B,3] x, float[B,4] h0, float[1,12,3] W, float[1,12,4] R, float[1,24] D)
    => (float[B,4] hT, float[T,B,4] ys) {
  zero = Constant<value_ints = [0]>()
  hT, ys = Scan <num_scan_inputs = 1, scan_input_directions = [{backwards}], scan_output_directions = [{backwards}],
    body = b (float[B,4] h, float[B,3] xt) => (float[B,4] hn, float[B,4] y) {
      xs = Unsqueeze(xt, zero) hs = Unsqueeze(h, zero)
      Y, Yh = GRU<hidden_size = 4>(xs, W, R, D, "", hs)
      hn = Squeeze(Yh, zero)
      y = Identity(hn)
  }> (h0, x)
}"""


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan(backwards):
    before = given(SCAN.replace("{backwards}", str(backwards)), **weights("GRU"))
    after, (finding,) = run_pipeline(before, target="standard")
    assert finding.lifted, finding
    for steps, batch in SIZES[1:]:
        agree(before, after, feeds(before, steps, batch))


PLACES = {
    "If branch": """{head} => (float[B,4] hT, float[B,4] cT, float[T,B,4] ys) {
      yes = Constant<value = bool {1}>() two = Equal(flag, yes)
      hT, cT, ys = If (two) <then_branch = t () => (float[B,4] hT, float[B,4] cT, float[T,B,4] ys) {{loop}},
        else_branch = e () => (float[B,4] p, float[B,4] q, float[T,B,4] r) {
          p = Identity(c0) q = Identity(h0) to = Constant<value = float[3,4] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}>() r = MatMul(x, to) }>
    }""",
    "Loop body": """{head} => (float[B,4] last, float[B,4] lastc, float[2,T,B,4] all) {
      two = Constant<value_int = 2>()
      last, lastc, all = Loop (two, "", h0, c0) <body = o (int64 r, bool w, float[B,4] h0_, float[B,4] c0_)
        => (bool z, float[B,4] hT, float[B,4] cT, float[T,B,4] ys) { z = Identity(w) {loop} }>
    }""",
    "function": """{head} => (float[B,4] hT, float[B,4] cT, float[T,B,4] ys) {
      hT, cT, ys = local.f (x, h0, c0, W, R, D)
    }
    <domain: "local", opset_import: ["": 17]> f (x, h0, c0, W, R, D) => (hT, cT, ys) {{loop}}""",
}


@pytest.mark.parametrize("place", PLACES)
def test_places(place):
    text = loop()
    body = text[text.index("{") + 1 : text.rindex("}")]
    head = f"agraph {HEAD.format(states='float[B,4] h0, float[B,4] c0', g=16, b=32)}"[:-1] + ", bool flag)"
    if place == "Loop body":
        body = body.replace("h0", "h0_").replace("c0", "c0_")
    whole = PLACES[place].replace("{head}", head).replace("{loop}", body)
    before = given('<ir_version: 8, opset_import: ["": 17, "local": 1]>' + whole, **weights())
    after, findings = run_pipeline(before, target="standard")
    assert all(finding.lifted for finding in findings if finding.node != "last"), findings
    assert ops(after.graph).count("LSTM") == 1
    for steps, batch in SIZES:
        agree(before, after, feeds(before, steps, batch))


ONLY_LAST = """agraph (float[T,B,3] x, float[B,4] h0, float[1,12,3] W, float[1,12,4] R, float[1,24] D)
    => (float[B,4] hT) {
  zero = Constant<value_ints = [0]>() length = Shape<end = 1>(x) n = Squeeze(length)
  hT = Loop (n, "", h0) <body = b (int64 i, bool k, float[B,4] h) => (bool go, float[B,4] hn) {
    xt = Gather(x, i) xs = Unsqueeze(xt, zero) hs = Unsqueeze(h, zero)
    Y, Yh = GRU<hidden_size = 4>(xs, W, R, D, "", hs)
    hn = Squeeze(Yh, zero) go = Identity(k)
  }>
}"""


def test_rows_that_nobody_reads_are_left_out():
    before = given(ONLY_LAST, **weights("GRU"))
    after, _ = run_pipeline(before)
    (cell,) = (node for node in ir.traversal.RecursiveGraphIterator(after.graph) if node.op_type == "GRU")
    assert [output.name != "" for output in cell.outputs] == [False, True]
    (choice,) = (node for node in after.graph if node.op_type == "If")
    assert len(choice.outputs) == 1
    for steps, batch in SIZES:
        agree(before, after, feeds(before, steps, batch))


def test_no_if_where_there_is_a_step():
    before = given(loop("GRU").replace("[T,", "[5,"), **weights("GRU"))
    after, (finding,) = run_pipeline(before)
    assert finding.lifted
    assert "If" not in ops(after.graph)
    agree(before, after, feeds(before, 5, 2))


@pytest.mark.parametrize("trips", [-3, 0, 1, 4])
@pytest.mark.parametrize("flag", [True, False])
def test_trip_count_and_cond(trips, flag):
    text = loop("GRU", trips="M").replace('Loop (M, ""', "Loop (M, flag").replace("[T,B,4] ys", "[K,B,4] ys")
    before = given(text.replace("float[T,B,3] x", "int64 M, bool flag, float[T,B,3] x"), **weights("GRU"))
    after, (finding,) = run_pipeline(before, target="standard")
    assert finding.lifted
    agree(before, after, feeds(before, 4, 2) | {"M": np.array(trips), "flag": np.array(flag)})


LAST_BITS = "GRU LSTM RNN".split()


@pytest.mark.parametrize("op", LAST_BITS)
def test_last_bits_are_the_engine_s_and_said_to_be(op):
    """Weights that are not known when the model is loaded, and one batch entry: rows are multiplied all at once."""
    before = model(loop(op))
    after, (finding,) = run_pipeline(before)
    assert f"{op} of all iterations at once: an engine may add in another order (last bits)" in finding.actions
    inputs = feeds_with_weights(before, op, 37, 1)
    for left, right in zip(run_ort(before, inputs), run_ort(after, inputs), strict=True):
        assert np.allclose(left, right, rtol=1e-4, atol=1e-5)
    assert looplift.verify(before, after, seconds=10)


def feeds_with_weights(subject: ir.Model, op: str, steps: int, batch: int) -> dict[str, np.ndarray]:
    known = weights(op)
    found = {value.name: known.get(value.name) for value in subject.graph.inputs}
    rest = given(loop(op), **known)
    return {name: array for name, array in found.items() if array is not None} | feeds(rest, steps, batch)

"""A loop around one step of LSTM, GRU or RNN becomes one node of the whole series: spellings, and refusals."""

from __future__ import annotations

import pytest

from looplift.passes import run_pipeline
from tests.engine_bits import drawn, given
from tests.helpers import model, ops
from tests.passes.cell_loops import BACKWARD, FORWARD, GATES, HIDDEN, SIZES, agree, feeds, loop, weights

SPELLINGS: dict[str, tuple[str, str]] = {
    "LSTM": ("LSTM", loop()),
    "GRU": ("GRU", loop("GRU")),
    "RNN": ("RNN", loop("RNN")),
    "GRU, linear before reset": ("GRU", loop("GRU", attributes=", linear_before_reset = 1")),
    "clip": ("LSTM", loop(attributes=", clip = 0.5")),
    "activations": (
        "RNN",
        loop("RNN", attributes=', activations = ["Affine"], activation_alpha = [0.25], activation_beta = [0.5]'),
    ),
    "one step backward": ("GRU", loop("GRU", attributes=', direction = "reverse"')),
    "rows from the end": ("LSTM", loop(read=BACKWARD)),
    "a row by Slice": ("LSTM", loop(read="i0 = Unsqueeze(i, zero) i1 = Add(i0, one) xs = Slice(x, i0, i1, zero)")),
    "rows that are computed": ("GRU", loop("GRU", read=FORWARD.replace("xs =", "u =") + " xs = Tanh(u)")),
    "h of the rows": (
        "LSTM",
        loop(
            ways=("{s}s = Unsqueeze({s}p, zero)", "{s}n = Squeeze(Y{s}, zero)"),
            row="q = Squeeze(Y, zero) y = Squeeze(q, zero)",
        ),
    ),
    "carried as it comes": (
        "LSTM",
        loop(ways=("{s}s = Identity({s}p)", "{s}n = Identity(Y{s})"), state="float[1,B,4]", rows="float[T,1,B,4] ys"),
    ),
    "through Reshape": (
        "GRU",
        loop(
            "GRU",
            ways=(
                "to = Constant<value_ints = [1, -1, 4]>() {s}s = Reshape({s}p, to)",
                "off = Constant<value_ints = [-1, 4]>() {s}n = Reshape(Y{s}, off)",
            ),
        ),
    ),
    "through Gather": (
        "GRU",
        loop(
            "GRU", ways=("{s}s = Unsqueeze({s}p, zero)", "null = Constant<value_int = 0>() {s}n = Gather(Y{s}, null)")
        ),
    ),
    "batch in front": (
        "GRU",
        loop(
            "GRU",
            state="float[B,1,4]",
            rows="float[T,B,1,4] ys",
            ways=("{s}s = Transpose<perm = [1, 0, 2]>({s}p)", "{s}n = Transpose<perm = [1, 0, 2]>(Y{s})"),
        ),
    ),
    "what follows": (
        "LSTM",
        loop(row="e = Tanh(hn) t = Mul(e, hn) y = Add(t, x0)", more="x0 = Constant<value_float = 1.5>()"),
    ),
    "the state before": ("LSTM", loop(row="y = Sub(hn, hp)")),
    "lengths of 1": (
        "GRU",
        loop("GRU", inputs="ones", more="ones = Constant<value = int32[2] {1, 1}>()")
        .replace("[T,B,", "[T,2,")
        .replace("[B,", "[2,"),
    ),
    "fewer trips than rows": (
        "LSTM",
        loop(trips="M").replace("float[T,B,3] x", "int64 M, float[T,B,3] x").replace("[T,B,4] ys", "[K,B,4] ys"),
    ),
    "peepholes": (
        "LSTM",
        loop().replace("hs, cs)", "hs, cs, P)").replace("float[1,16,3] W", "float[1,12] P, float[1,16,3] W"),
    ),
}
STATES = {"carried as it comes": (1, None, HIDDEN), "batch in front": (None, 1, HIDDEN)}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("target", ["kernel", "standard"])
def test_spellings(name, target):
    op, text = SPELLINGS[name]
    constants = weights(op) | ({"P": drawn(1, 12)} if name == "peepholes" else {})
    before = given(text, **constants)
    after, (finding,) = run_pipeline(before, target=target)
    assert finding.lifted, finding
    assert [each for each in ops(after.graph) if each in ("Loop", "Scan", *GATES)] == [op]
    for steps, batch in SIZES:
        if name != "lengths of 1" or batch == 2:
            agree(before, after, feeds(before, steps, batch, STATES.get(name, (None, HIDDEN))))


TWICE = """agraph (float[T,B,4] x, float[B,4] h0, float[1,12,4] W, float[1,12,4] R) => (float[B,4] hT, float[B,4] gT) {
  zero = Constant<value_ints = [0]>() length = Shape<end = 1>(x) n = Squeeze(length)
  hT, gT = Loop (n, "", h0, h0) <body = b (int64 i, bool k, float[B,4] h, float[B,4] g)
      => (bool go, float[B,4] hn, float[B,4] gn) {
    xt = Gather(x, i) u = Add(xt, g) xs = Unsqueeze(u, zero) hs = Unsqueeze(h, zero)
    Y, Yh = GRU<hidden_size = 4>(xs, W, R, "", "", hs)
    hn = Squeeze(Yh, zero) gn = Squeeze(Yh, zero) go = Identity(k)
  }>
}"""
OF_STATE = "r = Gather(x, i) s = ReduceSum<keepdims = 0>(hp) xt = Mul(r, s) xs = Unsqueeze(xt, zero)"
REFUSED = {
    "what LSTM reads depends on its own state": loop(read=OF_STATE),
    "the carried value goes through Relu": loop(
        "GRU", ways=("{s}s = Unsqueeze({s}p, zero)", "q = Squeeze(Y{s}, zero) {s}n = Relu(q)")
    ),
    "c of LSTM is changed before it is carried on": loop(
        ways=("{s}s = Unsqueeze({s}p, zero)", "{s}q = Squeeze(Y{s}, zero) {s}n = Identity({s}q)")
    ).replace("cn = Identity(cq)", "cn = Relu(cq)"),
    "h of RNN is computed from more than a carried value": loop(
        "RNN", ways=("q = Mul({s}p, {s}p) {s}s = Unsqueeze(q, zero)", "{s}n = Squeeze(Y{s}, zero)")
    ),
    "LSTM hands out c after its last step only, but it is read in each": loop(row="y = Add(hn, cn)"),
    "the weights of GRU change from one iteration to the next": loop(
        "GRU", more="f = Cast<to = 1>(i) V = Mul(W, f)"
    ).replace("(xs, W,", "(xs, V,"),
    "sequence_lens of RNN may be other than 1": loop("RNN", inputs="L").replace(
        "float[T,B,3] x", "int32[B] L, float[T,B,3] x"
    ),
    "GRU may take more than one step an iteration": loop(
        "GRU", read="r = Gather(x, i) to = Constant<value_ints = [3, -1, 3]>() xs = Reshape(r, to)"
    ),
    "the state of GRU goes on as another carried value": TWICE,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason):
    before = model(REFUSED[reason])
    after, (finding,) = run_pipeline(before, target="standard")
    assert not finding.lifted
    assert reason in finding.reason
    assert sum(ops(after.graph).count(op) for op in ("Loop", "Scan")) == 1

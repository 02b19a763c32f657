"""Loops whose body is a recurrence, before and after, or before and the reason why it stays."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import run_ort
from lifting import assert_equal, count, lift, loops_left, nodes, parse

from looplift.passes import run_pipeline

LOOP = """
agraph (int64 n, bool c, float[4] x, float[4] step, float[N,4] series) => (float[K] v, float[R,S] s) {{
  {outside}
  v, s = Loop ({limit}, {condition}, x) <body = b (int64 i, bool ci, vp) => (bool co, vn, so) {{
    {body}
  }}>
}}"""


def loop(body: str, outside: str = "", limit: str = "n", condition: str = "c") -> str:
    return LOOP.format(body=body, outside=outside, limit=limit, condition=condition)


def feeds(trip: int, condition: bool = True, seed: int = 0) -> dict:
    random = np.random.default_rng(seed)
    return {
        "n": np.array(trip),
        "c": np.array(condition),
        "x": random.standard_normal(4).astype("f"),
        "step": random.standard_normal(4).astype("f"),
        "series": random.standard_normal((17, 4)).astype("f"),
    }


TRIPS = [feeds(-1), feeds(0), feeds(1), feeds(2), feeds(17), feeds(5, False)]

PASS = "co = Identity(ci) "
LIFTED = {
    "add": (PASS + "vn = Add(vp, step) so = Identity(vn)", ["AddStep"]),
    "commuted": (PASS + "vn = Add(step, vp) so = Identity(vn)", ["AddStep"]),
    "subtract": (PASS + "vn = Sub(vp, step) so = Identity(vn)", ["AddStep"]),
    "previous stacked": (PASS + "vn = Add(vp, step) so = Identity(vp)", ["AddStep"]),
    "identity chain": (
        PASS + "a = Identity(vp) d = Add(a, step) e = Identity(d) vn = Identity(e) so = Identity(d)",
        ["AddStep"],
    ),
    "constant step": (PASS + "k = Constant<value_float = 0.1>() vn = Add(vp, k) so = Identity(vn)", ["AddStep"]),
    "step computed in the body": (PASS + "k = Mul(step, step) vn = Add(vp, k) so = Identity(vn)", ["AddStep"]),
    "no-op cast": (PASS + "a = Add(vp, step) vn = Cast<to = 1>(a) so = Identity(vn)", ["AddStep"]),
    "sum op": (PASS + "vn = Sum(vp, step) so = Identity(vn)", ["AddStep"]),
    "condition constant true": (
        "k = Constant<value_int = 1>() co = Cast<to = 9>(k) vn = Add(vp, step) so = Identity(vn)",
        ["AddStep"],
    ),
    "map of the states": (PASS + "vn = Add(vp, step) so = Exp(vn)", ["AddStep"]),
    "both states read": (PASS + "vn = Add(vp, step) so = Mul(vp, vn)", ["AddStep", "AddStep"]),
    "running sum": (PASS + "r = Gather(series, i) vn = Add(vp, r) so = Identity(vn)", ["PrefixSum"]),
    "running difference": (PASS + "r = Gather(series, i) vn = Sub(vp, r) so = Identity(vn)", ["PrefixSum"]),
    "sum of iteration numbers": (PASS + "r = Cast<to = 1>(i) vn = Add(vp, r) so = Identity(vn)", ["PrefixSum"]),
    "decay": (PASS + "vn = Mul(vp, step) so = Identity(vn)", ["LinearRecurrence"]),
    "moving average": (
        PASS + "r = Gather(series, i) a = Mul(vp, step) vn = Add(a, r) so = Identity(vn)",
        ["LinearRecurrence"],
    ),
    "factor varies": (
        PASS + "r = Gather(series, i) a = Mul(r, vp) vn = Sub(a, step) so = Identity(vn)",
        ["LinearRecurrence"],
    ),
    "subtracted from": (PASS + "vn = Sub(step, vp) so = Identity(vn)", ["LinearRecurrence"]),
    "subtracted from, negated": (PASS + "a = Neg(vp) vn = Sub(step, a) so = Identity(vn)", ["AddStep"]),
    "negated": (PASS + "vn = Neg(vp) so = Identity(vn)", ["LinearRecurrence"]),
    "negated product": (
        PASS + "a = Mul(vp, step) d = Neg(a) vn = Add(d, step) so = Identity(vn)",
        ["LinearRecurrence"],
    ),
    "overwritten": (PASS + "vn = Gather(series, i) so = Identity(vp)", []),
    "a map alone": (PASS + "vn = Identity(vp) r = Gather(series, i) so = Mul(r, step)", []),
}


@pytest.mark.parametrize(("body", "expected"), LIFTED.values(), ids=LIFTED.keys())
def test_lifted(body, expected):
    lifted, (finding,) = lift(loop(body))
    assert finding.lifted, finding.reason
    assert not loops_left(lifted)
    assert nodes(lifted) == expected
    assert_equal(loop(body), lifted, *TRIPS)


STAYS = {
    "is multiplied with itself": PASS + "vn = Mul(vp, vp) so = Identity(vn)",
    "both sides of the sum": PASS + "vn = Add(vp, vp) so = Identity(vn)",
    "two additions in a row": PASS
    + "m = Mul(vp, step) a = Add(m, step) k = Neg(step) d = Exp(k) vn = Add(a, d) so = Identity(vn)",
    "a sum is multiplied": PASS + "a = Add(vp, step) vn = Mul(a, step) so = Identity(vn)",
    "two products in a row": PASS + "a = Mul(vp, step) k = Exp(step) vn = Mul(a, k) so = Identity(vn)",
    "a negated sum": PASS + "a = Add(vp, step) vn = Neg(a) so = Identity(vn)",
    "goes through Tanh": PASS + "vn = Tanh(vp) so = Identity(vn)",
    "changes its type": PASS + "a = Cast<to = 10>(vp) d = Cast<to = 1>(a) vn = Add(d, step) so = Identity(vn)",
    "RandomNormalLike": PASS + "k = RandomNormalLike(step) vn = Add(vp, k) so = Identity(vn)",
}


@pytest.mark.parametrize("reason", STAYS)
def test_what_is_no_recurrence_stays(reason):
    lifted, (finding,) = lift(loop(STAYS[reason]))
    assert not finding.lifted
    assert reason in finding.reason
    assert nodes(lifted) == []


def test_exit_on_the_state_stays():
    lifted, (finding,) = lift(
        loop("vn = Add(vp, step) so = Identity(vn) m = ReduceMax<keepdims=0>(vn) z = Sub(m, m) co = Less(z, m)")
    )
    assert not finding.lifted
    assert "the exit test reads 'vp', which the loop changes in floating point" in finding.reason


def test_endless_loop_stays():
    lifted, (finding,) = lift(loop(PASS + "vn = Add(vp, step) so = Identity(vn)", limit='""', condition='""'))
    assert not finding.lifted


def test_step_wider_than_the_state_grows_it_as_the_loop_does():
    text = """
    agraph (int64 n, float[1] x, float[3] step) => (float[K] v, float[R,S] s) {
      v, s = Loop (n, "", x) <body = b (int64 i, bool ci, vp) => (bool co, vn, so) {
        co = Identity(ci) vn = Add(vp, step) so = Identity(vn)
      }>
    }"""
    lifted, (finding,) = lift(text)
    assert finding.lifted
    values = {"x": np.ones(1, "f"), "step": np.arange(3, dtype="f")}
    assert_equal(text, lifted, *({**values, "n": np.array(n)} for n in (-1, 0, 1, 2, 5)))


@pytest.mark.parametrize("element", ["Mul(vp, w)", "Add(vp, step)"])
def test_states_of_two_shapes_are_no_stack(element):
    text = f"""
    agraph (int64 n, float[1] x, float[3] step, float[3] w) => (float[K] v, float[R,S] s) {{
      v, s = Loop (n, "", x) <body = b (int64 i, bool ci, vp) => (bool co, vn, so) {{
        co = Identity(ci) vn = Add(vp, step) so = {element}
      }}>
    }}"""
    lifted, (finding,) = lift(text)
    assert not finding.lifted
    assert "may change its shape in the first iteration" in finding.reason
    values = {"x": np.ones(1, "f"), "step": np.arange(3, dtype="f"), "w": np.full(3, 0.5, "f")}
    assert_equal(text, lifted, *({**values, "n": np.array(n)} for n in (-1, 0, 1, 2, 5)))


def test_a_sum_that_may_change_shape_stays():
    text = """
    agraph (int64 n, float[K] x, float[T,D] series) => (float[L] v) {
      v = Loop (n, "", x) <body = b (int64 i, bool ci, vp) => (bool co, vn) {
        co = Identity(ci) r = Gather(series, i) vn = Add(vp, r)
      }>
    }"""
    lifted, (finding,) = lift(text)
    assert not finding.lifted
    assert "keeps its shape" in finding.reason


CHAIN = """
agraph (int64 n, float[4] x, float[4] v0, float[N,4] f) => (float[4] p_end, float[4] v_end, float[K,4] ps) {
  p_end, v_end, ps = Loop (n, "", x, v0) <body = b (int64 i, bool ci, float[4] p, float[4] v) => (bool co, float[4] pn, float[4] vn, float[4] so) {
    co = Identity(ci)
    dt = Constant<value_float = 0.1>()
    ft = Gather(f, i)
    dv = Mul(ft, dt)
    vn = Add(v, dv)
    dp = Mul(vn, dt)
    pn = Add(p, dp)
    so = Identity(pn)
  }>
}"""


def test_recurrence_of_a_recurrence():
    lifted, (finding,) = lift(CHAIN)
    assert finding.lifted, finding.reason
    assert nodes(lifted) == ["PrefixSum", "PrefixSum"]
    random = np.random.default_rng(1)
    values = {k: random.standard_normal(4).astype("f") for k in ("x", "v0")}
    values["f"] = random.standard_normal((9, 4)).astype("f")
    assert_equal(CHAIN, lifted, *({**values, "n": np.array(n)} for n in (0, 1, 9)))


def test_carries_that_need_each_other_stay():
    lifted, (finding,) = lift("""
    agraph (int64 n, float[4] x, float[4] y) => (float[4] a, float[4] d) {
      a, d = Loop (n, "", x, y) <body = b (int64 i, bool ci, float[4] p, float[4] q) => (bool co, float[4] pn, float[4] qn) {
        co = Identity(ci) pn = Add(p, q) qn = Sub(q, p)
      }>
    }""")
    assert not finding.lifted
    assert "depend on each other" in finding.reason


def test_the_rest_of_a_loop_stays_smaller():
    text = """
    agraph (int64 n, float[4] x, float[4] step, float[4] z) => (float[4] v, float[4] w, float[K,4] s, float[K,4] q) {
      v, w, s, q = Loop (n, "", x, z) <body = b (int64 i, bool ci, float[4] vp, float[4] wp) => (bool co, float[4] vn, float[4] wn, float[4] so, float[4] qo) {
        co = Identity(ci) vn = Add(vp, step) so = Identity(vn) wn = Tanh(wp) qo = Mul(wn, wn)
      }>
    }"""
    lifted, (finding,) = lift(text)
    assert not finding.lifted
    assert "Tanh" in finding.reason
    assert "add-step" in finding.recurrence
    assert nodes(lifted) == ["AddStep"]
    assert "Add" not in count(lifted)
    values = {k: np.linspace(-1, 1, 4, dtype="f") for k in ("x", "step", "z")}
    assert_equal(text, lifted, *({**values, "n": np.array(n)} for n in (-1, 0, 1, 2, 17)))


def test_a_state_that_the_rest_reads_stays_in_the_loop():
    lifted, _ = lift("""
    agraph (int64 n, float[4] x, float[4] step, float[4] z) => (float[4] v, float[4] w) {
      v, w = Loop (n, "", x, z) <body = b (int64 i, bool ci, float[4] vp, float[4] wp) => (bool co, float[4] vn, float[4] wn) {
        co = Identity(ci) vn = Add(vp, step) u = Mul(wp, vn) wn = Tanh(u)
      }>
    }""")
    assert nodes(lifted) == []


IN_A_BRANCH = """
agraph (bool flag, int64 n, float[4] x, float[4] step) => (float[4] v) {
  v = If (flag) <
    then_branch = t () => (float[4] a) {
      a = Loop (n, "", x) <body = b (int64 i, bool ci, float[4] vp) => (bool co, float[4] vn) { co = Identity(ci) vn = Add(vp, step) }>
    },
    else_branch = e () => (float[4] d) { d = Identity(x) }
  >
}"""
IN_A_BODY = """
agraph (int64 n, float[4] x, float[4] step) => (float[4] v) {
  v = Loop (n, "", x) <body = o (int64 i, bool ci, float[4] vp) => (bool co, float[4] vn) {
    co = Identity(ci)
    w = Loop (n, "", vp) <body = b (int64 j, bool cj, float[4] wp) => (bool ck, float[4] wn) { ck = Identity(cj) wn = Add(wp, step) }>
    vn = Tanh(w)
  }>
}"""
IN_A_FUNCTION = """
<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
agraph (int64 n, float[4] x, float[4] step) => (float[4] v) { v = mine.grow(n, x, step) }
<domain: "mine", opset_import: ["" : 17]>
grow (n, x, step) => (v) {
  v = Loop (n, "", x) <body = b (int64 i, bool ci, vp) => (bool co, vn) { co = Identity(ci) vn = Add(vp, step) }>
}"""


@pytest.mark.parametrize(
    ("text", "path"),
    [(IN_A_BRANCH, "/v:then_branch"), (IN_A_BODY, "/v:body"), (IN_A_FUNCTION, "function mine::grow")],
    ids=["branch", "body", "function"],
)
def test_wherever_the_loop_stands(text, path):
    lifted, findings = lift(text)
    (finding,) = [f for f in findings if f.path == path]
    assert finding.lifted
    assert nodes(lifted) == ["AddStep"]
    values = {"x": np.ones(4, "f"), "step": np.full(4, 0.1, "f"), "flag": np.array(True)}
    names = {value.name for value in parse(text).graph.inputs}
    assert_equal(
        text, lifted, *({k: v for k, v in {**values, "n": np.array(n)}.items() if k in names} for n in (0, 1, 5))
    )


def test_a_lifted_node_says_where_it_comes_from():
    lifted, _ = lift(IN_A_BRANCH)
    (node,) = [n for n in lifted.graph.all_nodes() if n.domain == "ai.looplift"]
    assert node.metadata_props["looplift.lifted_from"] == "/v:then_branch/a"
    assert node.metadata_props["looplift.recurrence"] == "add-step by 'step'"
    proof = node.metadata_props["looplift.proof"]
    for obligation in ("trip count is known", "each iteration adds once", "step is the same in every iteration"):
        assert obligation in proof


@pytest.mark.parametrize("update", ["a = Add(p, e) n = Add(a, w)", "a = Mul(p, e) d = Sub(a, w) n = Add(d, e)"])
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_joined_addends_of_different_ranks_broadcast_in_each_iteration(update, rows):
    text = f"""
    agraph (int64[2,3] v, int64[T,3] x, int64[2,3] w) => (int64[2,3] y, int64[R,2,3] ys) {{
      y, ys = Scan <num_scan_inputs = 1, body = b (p, e) => (n, s) {{
        {update} s = Identity(n)
      }}> (v, x)
    }}"""
    lifted, _ = lift(text)
    assert not loops_left(lifted)
    random = np.random.default_rng(0)
    assert_equal(
        text,
        lifted,
        {"v": random.integers(0, 9, (2, 3)), "x": random.integers(0, 9, (rows, 3)), "w": random.integers(0, 9, (2, 3))},
    )


def test_integers_join_their_additions():
    text = """
    agraph (int64 n, int32[2] x, int32[2] p, int32[2] q) => (int32[2] v) {
      v = Loop (n, "", x) <body = b (int64 i, bool ci, int32[2] vp) => (bool co, int32[2] vn) {
        co = Identity(ci) a = Add(vp, p) d = Sub(a, q) vn = Add(p, d)
      }>
    }"""
    lifted, (finding,) = lift(text)
    assert nodes(lifted) == ["AddStep"], finding.reason
    extreme = np.array([2**31 - 1, -(2**31)], np.int32)
    values = {"x": extreme, "p": extreme[::-1].copy(), "q": np.array([3, -5], np.int32)}
    assert_equal(text, lifted, *({**values, "n": np.array(n)} for n in (0, 1, 1000)))


def test_control_comes_out_unchanged():
    model = parse("agraph (float[4] x) => (float[4] y) { y = Exp(x) }")
    lifted, findings = lift("agraph (float[4] x) => (float[4] y) { y = Exp(x) }")
    assert findings == ()
    import onnx_ir as ir

    assert ir.to_proto(lifted) == ir.to_proto(model)


def test_what_reads_the_rest_of_a_loop_stays_with_it():
    text = """
    agraph (int64 n, float[4] x, float[4] y, float[4] z, float[4] s) => (float[4] a, float[4] d, float[4] e, float[K,4] q) {
      a, d, e, q = Loop (n, "", x, y, z) <body = b (int64 i, bool ci, float[4] p, float[4] r, float[4] t) =>
          (bool co, float[4] pn, float[4] rn, float[4] tn, float[4] o) {
        co = Identity(ci) pn = Tanh(p) rn = Identity(p) tn = Add(t, s) o = Identity(tn)
      }>
    }"""
    lifted, (finding,) = lift(text)
    assert nodes(lifted) == ["AddStep"]
    values = {k: np.linspace(-1, 1, 4, dtype="f") for k in ("x", "y", "z", "s")}
    assert_equal(text, lifted, *({**values, "n": np.array(n)} for n in (-1, 0, 1, 2, 17)))


def test_a_cond_of_one_element_is_handed_over_as_a_scalar():
    text = """
    agraph (int64[1] n, bool[1] c, float[4] x, float[4] s) => (float[4] v, float[K,4] q) {
      v, q = Loop (n, c, x) <body = b (int64 i, bool[1] ci, float[4] p) => (bool[1] co, float[4] u, float[4] o) {
        co = Identity(ci) u = Add(p, s) o = Identity(u)
      }>
    }"""
    lifted, (finding,) = lift(text)
    assert finding.lifted
    values = {k: np.linspace(-1, 1, 4, dtype="f") for k in ("x", "s")}
    for n, c in ((0, True), (3, True), (3, False)):
        feed = {**values, "n": np.array([n]), "c": np.array([c])}
        assert_equal(text, lifted, feed)
        for want, got in zip(run_ort(parse(text), feed), run_ort(lifted, feed), strict=True):
            assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize("rank", ["", "[1]"])
def test_the_cond_of_an_iteration_that_runs_is_true(rank):
    text = f"""
    agraph (int64 n, bool{rank} c, float[4] x, float[4] s) => (float[4] v, float[K,4] q) {{
      v, q = Loop (n, c, x) <body = b (int64 i, bool{rank} ci, float[4] p) => (bool{rank} co, float[4] u, float[4] o) {{
        co = Identity(ci) u = Add(p, s) o = Where(ci, u, s)
      }}>
    }}"""
    lifted, (finding,) = lift(text)
    assert finding.lifted, finding.reason
    values = {k: np.linspace(-1, 1, 4, dtype="f") for k in ("x", "s")}
    for n, c in ((0, True), (3, True), (3, False)):
        assert_equal(text, lifted, {**values, "n": np.array(n), "c": np.full([1] if rank else [], c)})


def test_a_lowered_loop_is_not_lowered_again():
    text = loop(PASS + "r = Gather(series, i) a = Mul(vp, step) vn = Add(a, r) so = Identity(vn)")
    once, _ = lift(text, target="standard")
    assert nodes(once) == []
    twice, findings = run_pipeline(once, target="standard")
    assert count(twice) == count(once)
    assert all("target's own form" in f.reason for f in findings)

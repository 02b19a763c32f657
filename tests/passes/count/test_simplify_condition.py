"""Exit tests that are the same in every iteration move into the trip count."""

import numpy as np
import pytest

from looplift.passes.count.simplify_condition import SimplifyCondition
from tests.helpers import apply, assert_same, find, model, ops
from tests.passes.places import TRIPS, assert_same_everywhen, everywhere


def text(test: str, *, max_trip: str = "M", cond: str = "c", m_type: str = "int64", d: str = "bool") -> str:
    """A Loop whose body makes its cond output, co, by `test` from ci, the captured d, true and false."""
    return f"""main ({m_type} M, bool c, {d} d, float[2] v, float[2] s) => (float[2] y, float[k,2] t) {{
      true = Constant<value = bool {{1}}>()
      false = Constant<value = bool {{0}}>()
      one = Constant<value = int64 {{1}}>()
      minus = Constant<value = int64 {{-3}}>()
      many = Constant<value = int64 {{5}}>()
      y, t = Loop ({max_trip}, {cond}, v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] w, float[2] e) {{
          {test}
          w = Add(p, s)
          e = Identity(w)
        }}
      >
    }}"""


def feeds(trips, c, d, shape=(), d_shape=()):
    arrays = {"v": np.array([0.1, 2], np.float32), "s": np.array([0.3, -7], np.float32)}
    return {"M": np.full(shape, trips, np.int64), "c": np.array(c), "d": np.full(d_shape, d), **arrays}


def assert_same_for_all(before, after, **shapes):
    for trips in TRIPS:
        for c in (True, False):
            for d in (True, False):
                assert_same(before, after, feeds(trips, c, d, **shapes))


def passes_condition_through(after) -> bool:
    body = find(after, "Loop").attributes["body"].as_graph()
    end = body.outputs[0].producer()
    return end.op_type == "Identity" and end.inputs[0] is body.inputs[1]


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body", "function"])
def test_in_every_place(place):
    loop = """
      yes = Constant<value = bool {1}>()
      y, t = Loop (M, yes, v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] w, float[2] e) {
          stop = Constant<value = bool {0}>()
          co = Identity(stop)
          w = Add(p, s)
          e = Identity(w)
        }
      >"""
    before = everywhere(loop)[place]
    after = apply(before, SimplifyCondition())
    assert_same_everywhen(before, after)
    kinds = [n.op_type for g in [after.graph, *after.functions.values()] for n in g.all_nodes()]
    assert "Min" in kinds


@pytest.mark.parametrize(
    "test",
    [
        "co = Identity(true)",
        "co = Constant<value = bool {1}>()",
        "one_ = Constant<value = int64 {1}>() co = Cast<to=9>(one_)",
        "a = Identity(ci) co = Identity(a)",
        "co = And(ci, true)",
        "a = Identity(true) b = And(a, ci) co = And(b, ci)",
        "co = Not(false)",
    ],
)
def test_always_true_is_passed_through(test):
    before = model(text(test))
    after = apply(before, SimplifyCondition())
    assert passes_condition_through(after)
    assert [value.name for value in find(after, "Loop").inputs[:2]] == ["M", "c"]
    assert_same_for_all(before, after)


def test_the_body_input_itself():
    before = model(text("").replace("bool co, float[2] w", "bool ci, float[2] w"))
    after = apply(before, SimplifyCondition())
    assert passes_condition_through(after)
    assert_same_for_all(before, after)


@pytest.mark.parametrize("cond", ["true", ""])
def test_a_true_cond_is_left_out(cond):
    before = model(text("co = Identity(ci)", cond=cond))
    after = apply(before, SimplifyCondition(), expect=cond != "")
    assert find(after, "Loop").inputs[1] is None
    assert_same_for_all(before, after)


def test_a_true_cond_stays_where_nothing_else_is_there():
    apply(model(text("co = Identity(ci)", max_trip="", cond="true")), SimplifyCondition(), expect=False)


@pytest.mark.parametrize(
    "test",
    [
        "n = Cast<to=9>(i) co = Not(n)",
        "z = ReduceSum<keepdims=0>(p) co = Cast<to=9>(z)",
        "n = Cast<to=9>(i) co = And(n, d)",
    ],
)
@pytest.mark.parametrize("cond", ["c", "true", ""])
def test_leaves_a_test_that_changes(test, cond):
    apply(model(text(test, cond=cond)), SimplifyCondition(), expect=False)


@pytest.mark.parametrize("cond", ["c", "true", ""])
@pytest.mark.parametrize("max_trip", ["M", "one", "minus", "many", ""])
@pytest.mark.parametrize(("test", "opset"), [("co = Identity(false)", 9), ("co = And(false, ci)", 12)])
def test_always_false_runs_at_most_once(test, max_trip, cond, opset):
    before = model(text(test, max_trip=max_trip, cond=cond), opset)
    after = apply(before, SimplifyCondition())
    assert passes_condition_through(after)
    assert (find(after, "Loop").inputs[1] is None) == (cond != "c")
    assert_same_for_all(before, after)


@pytest.mark.parametrize("cond", ["c", "true", "", "d"])
@pytest.mark.parametrize("max_trip", ["M", "one", "minus", "many"])
@pytest.mark.parametrize(("test", "opset"), [("co = Identity(d)", 12), ("a = Identity(d) co = And(ci, a)", 11)])
def test_a_captured_test_decides_after_the_first_iteration(test, max_trip, cond, opset):
    before = model(text(test, max_trip=max_trip, cond=cond), opset)
    after = apply(before, SimplifyCondition())
    assert passes_condition_through(after)
    assert ("Where" in ops(after.graph)) == (cond != "d")  # with the same value as cond, nothing is left to decide
    assert_same_for_all(before, after)


@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize(("shape", "d_shape"), [((), (1,)), ((1,), ()), ((1,), (1,))])
@pytest.mark.parametrize("test", ["co = Identity(d)", "co = Identity(false)"])
def test_shapes_of_one_element(test, shape, d_shape, opset):
    m_type, d = (f"{kind}[1]" if extent else kind for kind, extent in (("int64", shape), ("bool", d_shape)))
    before = model(text(test, m_type=m_type, d=d), opset)
    after = apply(before, SimplifyCondition())
    assert passes_condition_through(after)
    assert_same_for_all(before, after, shape=shape, d_shape=d_shape)


def test_refuses_a_captured_test_of_unknown_shape_and_one_without_a_limit():
    unknown = text("co = Identity(d)", d="bool[n]").replace("bool co", "bool[m] co")
    apply(model(unknown), SimplifyCondition(), expect=False)
    apply(model(text("co = Identity(d)", max_trip="")), SimplifyCondition(), expect=False)


def test_refuses_where_the_opset_compares_no_integers():
    loop = """main (int64 M, bool d, float[2] v) => (float[2] y) <bool false = {0}> {
      y = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] w) {
        co = Identity(TEST)
        w = Neg(p)
      }>
    }"""
    for test in ("d", "false"):
        apply(model(loop.replace("TEST", test), 8), SimplifyCondition(), expect=False)


def test_says_which_reading_of_an_absent_cond_it_takes():
    after = apply(model(text("co = Identity(false)", cond="")), SimplifyCondition())
    (finding,) = after.graph.meta["findings"]
    assert finding.actions == (
        "moved the exit test, the same in every iteration, into the trip count"
        " (cond is left out: the body's cond is obeyed)",
    )

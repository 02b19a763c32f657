"""While loops that end when a counter passes a bound become counted ones, with the right count for every input."""

import warnings

import numpy as np
import onnx_ir as ir
import pytest

from looplift.passes.count.count_while_loops import FEASIBLE, CountWhileLoops
from looplift.passes.journal import Journal
from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError
from tests.helpers import apply, assert_same, find, model, ops
from tests.passes.places import assert_same_everywhen, everywhere

CAP = 600
"""Iterations after which the simulation gives up: more than an 8-bit counter has states."""


def counter_loop(
    test: str,
    *,
    update: str = "cu = Add(cp, one)",
    start: str = "zero",
    dtype: str = "int64",
    bound: str = "int64",
    cond: str = "c",
    max_trip: str = "",
    before: str = "",
    step: int = 1,
    opset: int = 17,
) -> ir.Model:
    """A Loop over a counter (cp before, cu after the iteration) whose body makes its cond output, co, by `test`.

    Inputs: the bound n, an initial counter a, the limit M and the cond c. Outputs: the counter, and a state.
    """
    return model(
        f"""main ({dtype} a, {bound} n, int64 M, bool c, float[2] v) => ({dtype} last, float[2] y) {{
          zero = Constant<value = {dtype} {{0}}>()
          one = Constant<value = {dtype} {{{step}}}>()
          true = Constant<value = bool {{1}}>()
          {before}
          last, y = Loop ({max_trip}, {cond}, {start}, v) <
            body = b (int64 i, bool ci, {dtype} cp, float[2] p) => (bool co, {dtype} cu, float[2] w) {{
              {update}
              {test}
              w = Add(p, p)
            }}
          >
        }}""",
        opset,
    )


def feeds(subject, *, a=0, n=5, m=7, c=True):
    values = {"a": a, "n": n, "M": m, "c": c, "v": [0.5, 3]}
    return {x.name: np.array(values[x.name], x.dtype.numpy()) for x in subject.graph.inputs}


def assert_same_for(before, after, *, bounds=(-1, 0, 1, 2, 17), flags=(True, False), limits=(7,), starts=(0,)):
    for n in bounds:
        for c in flags:
            for m in limits:
                for a in starts:
                    assert_same(before, after, feeds(before, a=a, n=n, m=m, c=c))


def count_alone(after: ir.Model) -> Session:
    """A model that computes only what the Loop is told: M, and the cond if it has one."""
    copy = after.clone()
    loop = find(copy, "Loop")
    told = [value for value in loop.inputs[:2] if value is not None]
    copy.graph.outputs.clear()
    for value in told:
        node = ir.node("Identity", [value])
        node.outputs[0].name, node.outputs[0].type = f"told_{len(copy.graph.outputs)}", value.type
        loop.append(node)
        copy.graph.outputs.append(node.outputs[0])
    copy.graph.remove(loop, safe=True)
    return Session(copy, device="numpy")


def trips(session: Session, values: dict[str, np.ndarray]) -> int:
    """How often the counted loop runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # casts of infinities, overflows on purpose
        told = session.run(None, values)
    runs = told[1].item() if len(told) > 1 else True
    return max(told[0].item(), 0) if runs else 0


WHILE = """
  zero = Constant<value = int64 {0}>()
  starts = Less(zero, M)
  y0, count, t = Loop (, starts, v, zero) <
    body = b (int64 i, bool ci, float[2] p, int64 k) => (bool co, float[2] w, int64 next, float[2] e) {
      one = Constant<value = int64 {1}>()
      next = Add(k, one)
      co = Less(next, M)
      w = Add(p, s)
      e = Identity(w)
    }
  >
  y = Identity(y0)"""


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body", "function"])
def test_in_every_place(place):
    before = everywhere(WHILE)[place]
    after = apply(before, CountWhileLoops())
    assert_same_everywhen(before, after)
    assert ops(after.graph).count("Less") + sum(ops(f).count("Less") for f in after.functions.values()) <= 1


def test_a_counter_from_zero_gives_its_bound():
    before = counter_loop("co = Less(cu, n)", cond="go", before="go = Less(zero, n)")
    after = apply(before, CountWhileLoops())
    loop = find(after, "Loop")
    assert loop.inputs[0] is after.graph.inputs[1]
    assert loop.inputs[1] is None
    assert ops(loop.attributes["body"].as_graph()) == ["Add", "Add", "Identity"]
    assert_same_for(before, after)


@pytest.mark.parametrize(
    ("test", "options"),
    [
        ("co = Less(cu, n)", {}),
        ("co = Less(cp, n)", {}),
        ("co = LessOrEqual(cu, n)", {}),
        ("co = Greater(n, cu)", {"cond": ""}),
        ("co = GreaterOrEqual(n, cp)", {"cond": "true"}),
        ("s = GreaterOrEqual(cu, n)\nco = Not(s)", {}),
        ("s = Equal(cu, n)\nco = Not(s)", {"max_trip": "M"}),
        ("x = Less(cu, n)\nco = And(x, ci)", {}),
        ("x = Less(cu, n)\nz = Less(cp, M)\nco = And(x, z)", {"max_trip": "M"}),
        ("x = GreaterOrEqual(cu, n)\nz = Less(M, cp)\nu = Or(x, z)\nco = Not(u)", {}),
        ("x = Less(cu, n)\nco = And(x, c)", {"cond": ""}),
        ("x = Less(cu, n)\nz = Not(c)\nco = And(x, z)", {"cond": ""}),
        ("x = Less(i, n)\nz = Less(cu, n)\nco = And(x, z)", {}),
        ("k = Add(i, one)\nco = Less(k, n)", {}),
        ("k = Add(cu, M)\nco = Less(k, n)", {"start": "a"}),
        ("k = Add(i, cu)\nco = Less(k, n)", {"start": "a"}),
        ("k = Mul(cu, one)\nco = Less(k, n)", {"step": 3}),
        ("k = Neg(cu)\nco = Greater(k, n)", {}),
        ("b = Add(n, one)\nb2 = Mul(b, b)\nco = Less(cu, b2)", {}),
        ("co = Greater(cu, n)", {"update": "cu = Sub(cp, one)", "start": "a"}),
        ("co = Less(cu, n)", {"update": "x = Add(cp, one)\ncu = Add(one, x)", "start": "a"}),
        ("co = Less(cu, n)", {"update": "k = CastLike(one, cp)\nx = Add(cp, k)\ncu = Cast<to = 7>(x)"}),
        ("x = Cast<to = 6>(cu)\nb = Cast<to = 6>(n)\nco = Less(x, b)", {}),
        ("x = Cast<to = 1>(cu)\nb = Cast<to = 1>(n)\nco = Less(x, b)", {}),
        ("x = Cast<to = 11>(cu)\nb = Cast<to = 11>(n)\nco = LessOrEqual(x, b)", {}),
        ("x = Cast<to = 1>(cu)\nco = Less(x, n)", {"bound": "float"}),
        ("x = Cast<to = 1>(cu)\ns = GreaterOrEqual(x, n)\nco = Less(x, n)", {"bound": "float", "cond": ""}),
    ],
)
def test_spellings(test, options):
    before = counter_loop(test, **options)
    after = apply(before, CountWhileLoops())
    starts = (0, 20) if options.get("start") == "a" else (0,)
    assert_same_for(before, after, bounds=(-1, 0, 1, 2, 4, 17), limits=(-1, 0, 1, 2, 7), starts=starts)


PADDLE = """
  f = Cast<to = 1>(cp)
  one1 = Constant<value_float = 1.0>()
  m = Mul(f, one1)
  s = Add(m, one1)
  cu = Cast<to = 7>(s)"""


def test_a_counter_borne_in_floating_point():
    before = counter_loop("co = Less(cu, n)", update=PADDLE, cond="go", before="go = Less(zero, n)")
    after = apply(before, CountWhileLoops())
    assert_same_for(before, after)
    session = count_alone(after)
    assert trips(session, feeds(before, n=2**24)) == 2**24
    # At 2^24 the counter sticks: the loop never ends.
    assert trips(session, feeds(before, n=2**24 + 1)) >= FEASIBLE


def test_bound_and_constant_handed_round_as_carries():
    before = model("""main (float[4] x, float[4] step, int32 n) => (float[4] y) {
      zero = Constant<value = int32 {0}>()
      one0 = Constant<value = int32 {1}>()
      fzero = Constant<value = float {0}>()
      fn = Cast<to = 1>(n)
      go = Less(fzero, fn)
      k, y, n1, o1 = Loop (, go, zero, x, n, one0) <
        body = b (int64 i, bool ci, int32 c, float[4] v, int32 n0, int32 o)
                 => (bool co, int32 c1, float[4] v1, int32 n0, int32 o) {
          v1 = Add(v, step)
          c1 = Add(c, o)
          l = Cast<to = 1>(c1)
          r = Cast<to = 1>(n0)
          co = Less(l, r)
        }
      >
    }""")
    after = apply(before, CountWhileLoops())
    assert find(after, "Loop").inputs[1] is None
    for n in (-1, 0, 1, 2, 17):
        x = np.arange(4, dtype=np.float32)
        assert_same(before, after, {"x": x, "step": x * 0.1, "n": np.array(n, np.int32)})


def test_known_bound_gives_a_constant():
    before = counter_loop("co = Less(cu, ten)", step=3, cond="true", before="ten = Constant<value = int64 {10}>()")
    after = apply(before, CountWhileLoops())
    assert ir.convenience.get_const_tensor(find(after, "Loop").inputs[0]).numpy() == 4
    assert_same_for(before, after)


def test_one_element_counters_and_bounds():
    before = model("""main (int64[1] n, float[2] v) => (int64[1] k, float[2] y) {
      zero = Constant<value = int64[1] {0}>()
      go = Less(zero, n)
      k, y = Loop (, go, zero, v) <
        body = b (int64[1] i, bool[1] ci, int64[1] c, float[2] p) => (bool[1] co, int64[1] c1, float[2] w) {
          one = Constant<value = int64 {1}>()
          c1 = Add(c, one)
          co = Less(c1, n)
          w = Add(p, p)
        }
      >
    }""")
    after = apply(before, CountWhileLoops())
    for n in (-1, 0, 1, 2, 17):
        assert_same(before, after, {"n": np.array([n]), "v": np.ones(2, np.float32)})


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 15, 18, 21, 23, 25])
@pytest.mark.parametrize("spelling", ["int", "float", "equal", "stride"])
def test_opsets(opset, spelling):
    test, options = {
        "int": ("co = Less(cu, n)", {"max_trip": "M"}),
        "float": ("x = Cast<to = 1>(cu)\nb = Cast<to = 1>(n)\nco = Less(x, b)", {"max_trip": "M", "dtype": "int32"}),
        "equal": ("s = Equal(cu, n)\nco = Not(s)", {"max_trip": "M", "start": "a"}),
        "stride": ("co = Less(cu, n)", {"start": "a", "step": 2}),
    }[spelling]
    before = counter_loop(test, opset=opset, **({"bound": options.get("dtype", "int64")} | options))
    if opset < 10 and spelling == "stride":
        apply(before, CountWhileLoops(), expect=False)
        return
    after = apply(before, CountWhileLoops())
    assert_same_for(before, after, limits=(0, 7), starts=(-3, 4) if "start" in options else (0,))


def test_a_test_that_decides_beside_an_absent_cond_is_told():
    after = apply(counter_loop("co = Less(cu, n)", cond=""), CountWhileLoops())
    (finding,) = after.graph.meta["findings"]
    assert "the node has none" in finding.actions[0]


def refusal(before: ir.Model) -> str:
    after = apply(before, CountWhileLoops(), expect=False)
    return after.graph.meta["findings"][0].reason


@pytest.mark.parametrize(
    ("test", "options", "reason"),
    [
        ("co = Less(cu, n)", {"dtype": "float", "bound": "float"}, "'cp', which the loop changes in floating point"),
        ("s = ReduceSum<keepdims = 0>(p)\nq = Cast<to = 7>(s)\nco = Less(q, n)", {}, "'p', which the loop changes"),
        ("co = Less(cu, n)", {"update": "cu = Mul(cp, cp)"}, "'cp', which the loop changes"),
        ("co = Less(cu, n)", {"update": "cu = Add(cp, i)"}, "'cp', which the loop changes"),
        ("co = Less(cu, n)", {"update": "cu = Sub(one, cp)"}, "'cp', which the loop changes"),
        ("co = Less(cu, n)", {"update": "cu = Add(cp, M)"}, "'cp', which the loop changes"),
        ("co = Greater(cu, n)", {}, "does not move towards its bound"),
        ("co = Equal(cu, n)", {}, "does not move towards its bound"),
        ("x = Less(cu, n)\nz = Less(cp, M)\nco = Or(x, z)", {}, "goes on while one of two tests holds"),
        ("k = Add(cu, cu)\nco = Less(cu, k)", {}, "two values that both change"),
        ("b = Div(M, n)\nco = Less(cu, b)", {}, "Div in the exit test might fail"),
        ("co = Less(cu, n)", {"start": "a", "step": 3}, "may wrap around"),
        ("s = Equal(cu, n)\nco = Not(s)", {"step": 2}, "step over the bound"),
        ("x = Cast<to = 1>(cu)\ns = GreaterOrEqual(x, n)\nco = Not(s)", {"bound": "float"}, "may be NaN"),
        ("x = Cast<to = 1>(cu)\nb = Cast<to = 1>(n)\nco = Less(x, b)", {"start": "a"}, "starts anywhere"),
        ("co = Less(cu, n)", {"update": PADDLE, "start": "a"}, "'cp', which the loop changes"),
        (
            "co = Less(cu, n)",
            {"update": PADDLE, "start": "far", "before": "far = Constant<value = int64 {16777220}>()"},
            "'cp', which the loop changes",
        ),
        (
            "co = Less(cu, n)",
            {"update": "x = Cast<to = 6>(cp)\no = Cast<to = 6>(one)\ny = Add(x, o)\ncu = Cast<to = 7>(y)"},
            "'cp', which the loop changes",
        ),
        (
            "r = RandomUniform<shape = [1], dtype = 1>()\nm = ReduceMax<keepdims = 0>(r)\nq = Cast<to = 7>(m)\n"
            "co = Less(cu, q)",
            {},
            "a result of ReduceMax that changes with the loop",
        ),
    ],
)
def test_refusals(test, options, reason):
    assert reason in refusal(counter_loop(test, **options))


def reason_for(before: ir.Model) -> str:
    """As `refusal`, without onnx.checker, which sees that such a cond is none; the model is changed in place."""
    journal = Journal.begin(before)
    CountWhileLoops()(before, journal)
    return journal.end(before)[0].reason


@pytest.mark.parametrize("shape", ["[N]", "[0]", "[2]", "[1,N]", "[?]"])
@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("co = Less(cu, n)", "n"),
        ("below = Less(cu, M)\nsmall = Less(n, one)\nco = And(below, small)", "small"),
        ("below = Less(cu, M)\nsmall = Less(n, one)\nlarge = Not(small)\nco = And(large, below)", "large"),
        ("below = GreaterOrEqual(cu, M)\nsmall = Less(n, one)\nend = Or(small, below)\nco = Not(end)", "small"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"cond": ""}, {"cond": "", "max_trip": "M", "opset": 12}], ids=str)
def test_an_exit_test_that_may_hold_no_element_or_several_is_no_count(test, named, options, shape):
    before = counter_loop(test, bound=f"int64{shape}", **options)
    assert f"'{named}' in the exit test is not known to hold one element" in reason_for(before)


def function(cond: str) -> ir.Model:
    """A counting loop in a function, whose inputs have no types; M is handed in as one element in a vector."""
    return model(f"""<ir_version: 8, opset_import: ["": 17, "local": 1]>
      main (int64[N] M, int64[1] v) => (int64[1] y) {{ y = local.f (M, v) }}
      <domain: "local", opset_import: ["": 17]>
      f (M, v) => (y) {{
        zero = Constant<value = int64 {{0}}>()
        one = Constant<value = int64 {{1}}>()
        starts = Less(zero, M)
        k, y = Loop (, {cond}, zero, v) <
          body = b (int64 i, bool ci, int64 k, int64[1] p) => (bool co, int64 next, int64[1] q) {{
            next = Add(k, one)
            co = Less(next, M)
            q = Add(p, M)
          }}
        >
      }}""")


def test_a_bound_of_unknown_rank_counts_only_where_the_cond_asks_it_first():
    assert "'M' in the exit test is not known to hold one element" in reason_for(function(cond=""))
    counted = function(cond="starts")
    assert CountWhileLoops()(counted, Journal.begin(counted))
    after = Session(counted, device="numpy")
    assert after.run(None, {"M": np.array([3]), "v": np.array([0])})[0] == [9]
    for wrong in ([], [3, 5], [5, 3]):
        with pytest.raises(LoopliftError):
            after.run(None, {"M": np.array(wrong, np.int64), "v": np.array([0])})


def test_what_is_already_counted_is_left_alone():
    for test in ("co = Identity(ci)", "co = Identity(true)", "co = Identity(c)"):
        assert refusal(counter_loop(test, max_trip="M")) == "no rule applies"

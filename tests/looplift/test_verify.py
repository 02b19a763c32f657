"""`verify` finds what differs, and only that."""

import time

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import looplift
from looplift.verification.cases.made_up import Case
from looplift.verification.check import verify
from looplift.verification.engines import Interpreter, OnnxRuntime, Outcome, Pair
from looplift.verification.tally import Tally

HEAD = '<ir_version: 10, opset_import: ["" : 21]> '

ADD_LOOP = """g (int64 n, float[D] x, float[D] s) => (float[D] y, float[N, D] ys) {
  y, ys = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w, float[D] e) {
    co = Identity(c) w = Add(v, s) %s
  }> (n, , x) }"""

ADD = onnx.parser.parse_model(HEAD + ADD_LOOP % "e = Identity(w)")
ADD_PREVIOUS = onnx.parser.parse_model(HEAD + ADD_LOOP % "e = Identity(v)")

# The same as ADD, as a neighbour might write it: by multiplication, which rounds differently.
MULTIPLIED = onnx.parser.parse_model(
    HEAD
    + """g (int64 n, float[D] x, float[D] s) => (float[D] y, float[N, D] ys) {
  y0, ys = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w, float[D] e) {
    co = Identity(c) w = Add(v, s) e = Identity(w) }> (n, , x)
  zero = Constant <value_int = 0> () m = Max(n, zero) k = Cast <to = 1> (m) p = Mul(k, s) y = Add(x, p) }"""
)


def test_a_model_equals_itself() -> None:
    check = verify(ADD, ADD, cases=20)
    assert check
    assert check.outcome == "tested"
    assert check.cases == check.started == check.asked == 20
    assert check.max_ulp == 0
    assert check.counterexample is None
    assert check.ulps == {"float32": 0}
    assert check.engines == ("interpreter", "ONNX Runtime")
    assert check.notes == ()
    assert "equal, bit for bit, in 20 of 20 cases (interpreter, ONNX Runtime)" in str(check)


def test_finds_the_state_before_instead_of_after() -> None:
    check = verify(ADD, ADD_PREVIOUS, cases=20)
    assert not check
    assert check.outcome == "different"
    assert check.counterexample is not None
    assert check.counterexample.output == "ys"
    assert check.max_ulp > 0
    assert "output 'ys'" in str(check)


def test_finds_a_rounding_difference_and_measures_it() -> None:
    check = verify(ADD, MULTIPLIED, cases=20)
    assert not check
    assert check.counterexample is not None
    assert check.counterexample.output == "y"


def test_a_tolerance_accepts_small_distances() -> None:
    inputs = {"n": np.array(10), "x": np.array([0.1], np.float32), "s": np.array([0.1], np.float32)}
    check = verify(ADD, MULTIPLIED, inputs, cases=0)
    assert not check
    assert 0 < check.max_ulp < 10
    accepted = verify(ADD, MULTIPLIED, inputs, cases=0, ulp=check.max_ulp)
    assert accepted
    assert accepted.max_ulp == check.max_ulp


def test_a_counterexample_is_saved_and_replayed(tmp_path) -> None:
    check = verify(ADD, ADD_PREVIOUS, cases=10)
    check.counterexample.save(tmp_path / "c.npz")
    feeds = dict(np.load(tmp_path / "c.npz"))
    again = verify(ADD, ADD_PREVIOUS, feeds, cases=0)
    assert again.counterexample.message == check.counterexample.message
    assert looplift.Session(ADD).run(None, feeds)[1].tobytes() == check.counterexample.expected.tobytes()


def test_works_without_onnxruntime() -> None:
    check = verify(ADD, ADD, cases=5, onnxruntime=False)
    assert check
    assert check.engines == ("interpreter",)


FOREIGN = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (int64 n, float[4] x, float[4] s) => (float[4] y) {
  h = com.microsoft.QuickGelu(x)
  y = Loop (n, "", h) <body = b (int64 i, bool ci, float[4] p) => (bool co, float[4] q) { co = Identity(ci) q = %s(p, s) }>
}"""


def test_a_model_that_only_onnxruntime_knows_runs_there_alone() -> None:
    model = onnx.parser.parse_model(FOREIGN % "Add")
    check = verify(model, looplift.optimize(model), cases=8)
    assert check
    assert check.engines == ("ONNX Runtime",)
    assert "not run in the interpreter: QuickGelu" in str(check)
    assert not verify(model, onnx.parser.parse_model(FOREIGN % "Sub"), cases=8)
    with pytest.raises(looplift.LoopliftError, match=r"there is no op com\.microsoft::QuickGelu"):
        verify(model, model, onnxruntime=False)


GATHER = """g (float[4] x, int64 k) => (float y) { y = Gather(x, k) }"""
CLAMPED = """g (float[4] x, int64 k) => (float y) {
  three = Constant <value_int = 3> () low = Constant <value_int = -4> ()
  a = Min(k, three) b = Max(a, low) y = Gather(x, b) }"""


def test_both_failing_is_agreement_and_is_counted_apart() -> None:
    gather = onnx.parser.parse_model(HEAD + GATHER)
    check = verify(gather, gather, {"x": np.zeros(4, np.float32), "k": np.array(9)}, cases=10)
    assert check
    assert check.failures >= 1
    assert check.cases + check.failures == 11


def test_an_error_that_goes_away_is_noted_and_one_that_comes_is_a_difference() -> None:
    gather, clamped = (onnx.parser.parse_model(HEAD + text) for text in (GATHER, CLAMPED))
    bad = {"x": np.zeros(4, np.float32), "k": np.array(9)}
    good = {"x": np.zeros(4, np.float32), "k": np.array(1)}
    check = verify(gather, clamped, [bad, good], cases=0)
    assert check
    assert check.skipped == 1
    assert "the original fails where the rewritten model gives a result" in check.notes[0]
    back = verify(clamped, gather, [bad, good], cases=0)
    assert not back
    assert "the rewritten model fails" in back.counterexample.message


def test_nothing_compared_is_not_equal() -> None:
    gather = onnx.parser.parse_model(HEAD + GATHER)
    check = verify(gather, gather, {"x": np.zeros(4, np.float32), "k": np.array(9)}, cases=0)
    assert not check
    assert check.counterexample is None
    assert check.outcome == "hardly tested"
    assert "nothing compared" in str(check)
    assert not verify(gather, gather, {"x": np.zeros(4, np.float32), "k": np.array(9)}, cases=0, allow_few=True)


def test_models_with_other_inputs_can_not_be_compared() -> None:
    with pytest.raises(looplift.LoopliftError, match="different inputs"):
        verify(ADD, onnx.parser.parse_model(HEAD + GATHER))


def test_what_onnxruntime_refuses_after_the_rewrite_is_a_difference() -> None:
    text = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
    fine = onnx.parser.parse_model(HEAD + text)
    broken = onnx.parser.parse_model(HEAD + text)
    broken.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    check = verify(fine, broken, cases=3)
    assert not check
    assert "ONNX Runtime does not load the model" in verify(broken, broken, cases=3).notes[0]


LONG = """g (float[2] t) => (float[2] y) {
  m = Constant <value_int = 90000> ()
  y = Loop <body = outer (int64 i, bool c, float[2] v) => (bool co, float[2] w) {
    co = Identity(c)
    w = Loop <body = inner (int64 j, bool d, float[2] u) => (bool do, float[2] s) {
      do = Identity(d) s = Add(u, u)
    }> (m, , v)
  }> (m, , t) }"""


def test_ends_before_its_time_where_the_original_never_ends_and_gives_up_runs_that_take_too_long() -> None:
    """A busy machine may need a small budget to start with: then a larger one shows the same."""
    model = onnx.parser.parse_model(HEAD + LONG)
    for seconds in (2.0, 8.0, 32.0):
        started = time.monotonic()
        check = verify(model, model, cases=1000, seconds=seconds)
        took = time.monotonic() - started
        assert not check
        assert check.outcome == "hardly tested"
        assert check.started < 1000
        assert "give more --seconds, or --inputs" in check.advice
        ended = f"stopped after {check.started} of 1000 cases: the original ran out of time in all of the first"
        if took < 0.75 * seconds + 1 and f"no answer in {seconds / 4:.3g} s" in str(check) and ended in str(check):
            break
    else:
        pytest.fail(f"{took} s, {check}")
    run = Interpreter(ir.from_proto(model), seconds=0.2).run({"t": np.zeros(2, np.float32)})
    assert run.timed_out
    assert run.error.startswith("no answer")


HEAVY = """g (int64 n) => (int64 y) {
  s = Constant <value_ints = [1500, 1500]> ()
  a = Expand(n, s) b = MatMul(a, a) y = ReduceMax <keepdims = 0> (b) }"""


def test_ends_in_its_time_inside_a_single_long_op() -> None:
    """numpy multiplies integers for seconds, and nothing in it asks what time it is."""
    model = onnx.parser.parse_model(HEAD + HEAVY)
    started = time.monotonic()
    check = verify(model, model, cases=1000, seconds=0.5, onnxruntime=False)
    assert time.monotonic() - started < 2.5
    assert check.outcome == "hardly tested"
    assert "stopped after 1 of 1000 cases" in str(check)


def test_what_the_original_can_not_do_in_time_is_no_difference() -> None:
    """A rewritten model that is a little slower does not differ; one that never ends does."""
    slow, slower, never = (
        Outcome(None if late else [], timed_out=late, seconds=seconds)
        for late, seconds in ((False, 9.0), (True, 10.0), (True, 1000.0))
    )
    case = Case("case", {})
    for got, agrees in ((slower, True), (never, False)):
        tally = Tally()
        tally.add(Pair("e", _Fixed(slow), (("e", _Fixed(got)),), strict=True), case, slow, [])
        assert tally.agrees == agrees


def test_a_check_goes_on_where_one_case_had_an_answer() -> None:
    late, fine = Outcome(None, timed_out=True), Outcome([])
    tally = Tally()
    for number, outcome, out_of in ((0, late, "time"), (1, late, "time"), (2, fine, None), (3, late, None)):
        case = Case(f"case {number}", {})
        tally.start(case)
        tally.add(Pair("e", _Fixed(outcome), (("e", _Fixed(outcome)),), strict=True), case, outcome, [])
        assert tally.out_of == out_of


class _Fixed:
    """An engine with one answer."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def run(self, _feeds: object) -> Outcome:
        return self.outcome

    def close(self) -> None:
        pass


MOSTLY_REFUSED = """g (float[4] x, int64 k) => (float y) {
  t = Constant <value_int = 50> () i = Mul(k, t) y = Gather(x, i) }"""


def test_a_check_says_in_how_many_cases_the_original_failed_and_why() -> None:
    model = onnx.parser.parse_model(HEAD + MOSTLY_REFUSED)
    good, bad = ({"x": np.zeros(4, np.float32), "k": np.array(k)} for k in (0, 1))
    check = verify(model, model, [good, bad, bad, bad], cases=0)
    assert check.outcome == "hardly tested"
    assert not check
    assert check.headline == "hardly tested: equal, bit for bit, in 1 of 4 cases (interpreter, ONNX Runtime)"
    assert sum(check.reasons.values()) == 3
    assert "the original failed in 3 cases; 3 times: Gather" in str(check)
    assert "out of bounds" in str(check)
    assert check.advice == "give --inputs that the original accepts, or --allow-few if this is enough"
    assert verify(model, model, [good, bad, bad, bad], cases=0, allow_few=True)


REFUSES_WHAT_IS_MADE_UP = """g (float[4] x, int64 k) => (float y) {
  t = Constant <value_int = 987654321> () i = Sub(k, t) y = Gather(x, i) }"""


def test_inputs_that_were_all_compared_are_a_test_even_if_the_original_fails_on_what_is_made_up() -> None:
    model = onnx.parser.parse_model(HEAD + REFUSES_WHAT_IS_MADE_UP)
    good, bad = ({"x": np.zeros(4, np.float32), "k": np.array(987654321 + k)} for k in (0, 9))
    check = verify(model, model, [good, good], cases=20)
    assert check.cases * 3 < check.started
    assert check
    assert check.outcome == "tested"
    assert f"in {check.cases} of 22 cases, all 2 given among them (interpreter" in check.headline
    assert not verify(model, model, [good, bad], cases=20)
    assert not verify(model, model, cases=20)
    enough = verify(model, model, [good, bad, bad], cases=0)
    assert enough
    assert enough.outcome == "tested"
    assert "in 1 of 3 cases" in str(enough)


def test_onnxruntime_is_ended_when_it_does_not_answer(tmp_path) -> None:
    path = tmp_path / "long.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + LONG), path)
    engine = OnnxRuntime(path, seconds=0.5)
    engine.wait_until_loaded()
    feeds = {"t": np.zeros(2, np.float32)}
    assert engine.run(feeds).error.startswith("no answer in")
    assert engine.run(feeds).failed
    engine.close()


def test_the_rewritten_model_runs_by_definitions_too() -> None:
    """A definition that differs from its kernel is found."""
    from looplift.runtime.ops import DOMAIN, all_ops

    lifted = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "ai.looplift" : 1]> '
        "g (int64 n, float[D] x, float[D] s) => (float[D] y, float[N, D] ys) { y, ys = ai.looplift.AddStep(n, , x, s) }"
    )
    lifted.functions.append(all_ops()["AddStep"].definition(21))
    assert verify(ADD, lifted, cases=25)
    wrong = onnx.ModelProto()
    wrong.CopyFrom(lifted)
    for node in wrong.functions[0].node:
        for attribute in node.attribute:
            for inner in attribute.g.node:
                if inner.op_type == "Add":
                    inner.op_type = "Sub"
    check = verify(ADD, wrong, cases=25, onnxruntime=False)
    assert wrong.functions[0].domain == DOMAIN
    assert not check
    assert check.counterexample.engine == "interpreter with definitions"


def test_an_engine_that_is_wrong_about_the_original_is_no_difference() -> None:
    """ONNX Runtime gives zeros where the body of a Scan returns its own input."""
    scan = onnx.parser.parse_model(
        HEAD
        + """g (float[2] v, float[3, 2] x) => (float[2] y, float[3, 2] ys) {
      y, ys = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] s, float[2] w) {
        w = Neg(e) }> (v, x) }"""
    )
    mended = onnx.parser.parse_model(
        HEAD + "g (float[2] v, float[3, 2] x) => (float[2] y, float[3, 2] ys) { y = Identity(v) ys = Neg(x) }"
    )
    check = verify(scan, mended, cases=10)
    assert check
    assert any("as the standard says, the original not" in note for note in check.notes)
    assert not verify(mended, scan, cases=10)


def test_an_extent_that_only_the_rewritten_model_knows_is_no_difference() -> None:
    text = """g (int64 n, float[3] x) => (float[A, B, 3] q) {
      v, q = Loop (n, "", x) <body = b (int64 i, bool c, float[D] p) => (bool d, float[E] u, float[F, E] o) {
        d = Identity(c)
        u = Identity(p)
        m = Constant<value = int64 {2}>()
        w, o = Loop (m, "", p) <body = e (int64 j, bool k, float[G] r) => (bool l, float[H] s, float[I] t) {
          l = Identity(k)
          s = Tanh(r)
          t = Identity(s)
        }>
      }> }"""
    model = onnx.parser.parse_model(HEAD + text)
    known = onnx.parser.parse_model(
        HEAD
        + """g (int64 n, float[3] x) => (float[A, B, 3] q) {
          z = Constant<value = int64[3] {0, 2, 3}>()
          q = ConstantOfShape(z) }"""
    )
    assert verify(model, known, {"n": np.array(0), "x": np.ones(3, np.float32)}, cases=0)
    assert not verify(known, model, {"n": np.array(0), "x": np.ones(3, np.float32)}, cases=0, onnxruntime=False)


def test_progress_is_told() -> None:
    told = []
    verify(ADD, ADD, cases=4, onnxruntime=False, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]

"""Words: the first line says what is left, a reason names what stopped the loop, and what a person can do."""

import pytest

import looplift
from looplift.report import outcome
from tests.helpers import model


def loop(body: str, head: str = "float[T,3] x, float[3] v", state: str = "float[3]", before: str = "") -> str:
    return f"""g ({head}) => ({state} w, float[?,?] z) {{
      l = Shape(x)
      zero = Constant<value = int64 {{0}}>()
      axis = Constant<value = int64[1] {{0}}>()
      n = Gather(l, zero)
      {before}
      w, z = Loop (n, , v) <body = b (int64 i, bool c, {state} p) => (bool d, {state} q, float[?] o) {{
        d = Identity(c)
        r = Gather(x, i)
        {body}
      }}>
    }}"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("u = Unsqueeze(p, axis) m = MatMul(u, k) q = Squeeze(m, axis) o = Identity(q)", "MatMul, which no rule"),
        ("u = Unsqueeze(p, axis) m = MatMul(u, k) s = Squeeze(m, axis) q = Add(s, r) o = Identity(q)", "MatMul, which"),
        ("m = MatMul(p, k) u = Unsqueeze(m, axis) s = Squeeze(u, axis) q = Mul(s, r) o = Identity(q)", "MatMul, which"),
        ("u = Tanh(p) m = Softmax(u) q = Add(m, r) o = Identity(q)", "goes through Tanh, which no rule"),
    ],
)
def test_a_reason_names_what_stops_the_state(body, reason):
    report = looplift.explain(model(loop(body, "float[T,3] x, float[3] v, float[3,3] k")), "standard")
    assert reason in report[0].reason


def test_a_choice_by_if_says_that_where_may_be_followed():
    body = """h = ReduceSum<keepdims = 0>(r)
      y = Constant<value = float {0}>()
      t = Less(h, y)
      q = If (t) <then_branch = a () => (float[3] e) { e1 = Mul(p, r) e2 = Tanh(e1) e = Add(e2, p) },
                  else_branch = b2 () => (float[3] f) { f = Neg(p) }>
      o = Identity(q)"""
    assert (
        "chosen by If, which no rule follows; a choice by Where may be" in looplift.explain(model(loop(body)))[0].reason
    )


def test_rows_that_may_differ_in_length():
    text = """g (float[N] x, int64 n) => (float[?] y) {
      s = SequenceEmpty()
      zero = Constant<value = int64[1] {0}>()
      f = Loop (n, , s) <body = b (int64 i, bool c, seq(float[?]) p) => (bool d, seq(float[?]) q) {
        d = Identity(c)
        one = Constant<value = int64[1] {1}>()
        k = Reshape(i, one)
        r = Slice(x, zero, k)
        q = SequenceInsert(p, r)
      }>
      y = ConcatFromSequence<axis = 0>(f)
    }"""
    finding = looplift.explain(model(text))[0]
    assert finding.reason.startswith("the elements of 'f' may differ in length: each is float[?]")


def test_a_while_loop_says_why_its_iterations_are_not_counted():
    text = """g (float[3] x, float limit) => (float[3] w) {
      t = Constant<value = bool {1}>()
      w = Loop (, t, x) <body = b (int64 i, bool c, float[3] p) => (bool d, float[3] q) {
        q = Add(p, x)
        s = ReduceSum<keepdims = 0>(q)
        d = Less(s, limit)
      }>
    }"""
    report = looplift.explain(model(text))
    assert "computed in the body" not in str(report)
    assert report[0].trip_count == "not known before the loop runs"
    assert "exit test" in report[0].reason


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("float[T,A] x, float[B] v", "'A' and 'B' differ: name these dims alike when exporting, or give --same-dim A=B"),
        ("float[T,?] x, float[?] v", "'v:0' and 'x:1' differ: name these dims alike when exporting, or give --same-dim v:0=x:1"),
        ("float[T,3] x, float[B] v", "or give --dim B=3"),
    ],
)  # fmt: skip
def test_says_which_dims_would_have_to_be_equal(head, words):
    subject = model(loop("q = Add(p, r) o = Identity(q)", head, "float[?]"))
    assert words in looplift.explain(subject)[0].reason
    older = model(loop("q = Add(p, r) o = Identity(q)", head, "float[?]"), 13)
    assert words.replace("differ", "would have to be equal") in looplift.explain(older)[0].reason
    options = words.rpartition(" --")[2].split(" ")
    said = {"dims": {"B": 3}} if options[0] == "dim" else {"same_dims": [tuple(options[1].split("="))]}
    assert looplift.explain(subject, **said)[0].lifted


def test_says_nothing_of_dims_that_nobody_can_name():
    head = "float[T,3] x, float[6] y, bool[6] m, float[?] unused"
    made_up = loop("q = Add(p, r) o = Identity(q)", head, "float[?]", "v = Compress<axis = 0>(y, m)")
    reason = looplift.explain(model(made_up))[0].reason
    assert "where 3 and 'v:0' differ" in reason
    assert "--" not in reason


def test_the_first_line_says_what_is_left():
    """The gate is the same work for all iterations; what it decides is not."""
    gates = "a = Sigmoid(r) b = Tanh(r) g = Mul(a, b) h = Exp(g) m = Mul(h, p) q = Add(m, b) o = Sin(q)"
    report = looplift.explain(model(loop(gates)), "standard")
    assert outcome(report[0]) == "reduced"
    assert report.summary() == "the model: 0 of 1 loop lifted; 1 reduced (an iteration runs 2 of 8 operators)"
    report = looplift.explain(model(loop("e = Cos(v) m = Tanh(p) q = Add(m, e) o = Identity(q)")))
    assert report.summary() == "the model: 0 of 1 loop lifted; 1 left, simplified (an iteration runs 2 of 4 operators)"
    report = looplift.explain(model(loop(gates)))
    assert report.summary() == "the model: 1 of 1 loop lifted"
    assert (report[0].operators, report[0].left) == (8, 0)

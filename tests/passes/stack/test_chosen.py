"""What a loop appends under a condition is stacked in every iteration, and what was chosen is taken out of the stack."""

import numpy as np
import pytest

from looplift.passes.pipeline import run_pipeline
from looplift.passes.stack.stack_concats import StackConcats
from looplift.passes.stack.stack_sequences import StackSequences
from tests.helpers import apply, assert_same, model, ops
from tests.lifting import assert_equal, loops_left

KEEP = "t = Gather(score, i) half = Constant<value_float = 0.5>() keep = Greater(t, half)"
INSERT = "s = If(keep) <then_branch = a () => (s1) { x = Gather(rows, i) s1 = SequenceInsert(p, x) }, {REST}>"
REST = "else_branch = e () => (s2) { s2 = Identity(p) }"


def listing(body: str, start: str = "s0 = SequenceEmpty<dtype=1>()", read: str = "", result: str = "float[k,3] y"):
    """A loop that goes through rows with a score each and keeps some in a list."""
    read = read or "y = ConcatFromSequence<axis=0, new_axis=1>(seq)"
    return model(f"""agraph (float[n,3] rows, float[n] score, float[3] first) => ({result}) {{
        shape = Shape(score) zero = Constant<value_int = 0>() n = Gather(shape, zero)
        {start}
        seq = Loop(n, , s0) <body = b (int64 i, bool c, seq(float[3]) p) => (bool d, seq(float[3]) s) {{
            d = Identity(c) {KEEP} {body.replace("{REST}", REST)}
        }}>
        {read}
    }}""")


BODIES = {
    "then": INSERT,
    "else": """s = If(keep) <then_branch = a () => (s1) { s1 = Identity(p) },
        else_branch = e () => (s2) { x = Gather(rows, i) y = Neg(x) s2 = SequenceInsert(p, y) }>""",
    "in front": INSERT.replace("(p, x)", "(p, x, z)").replace("x = ", "z = Constant<value_int = 0>() x = "),
    "both": """s = If(keep) <then_branch = a () => (s1) { x = Gather(rows, i) s1 = SequenceInsert(p, x) },
        else_branch = e () => (s2) { x2 = Gather(rows, i) y2 = Neg(x2) s2 = SequenceInsert(p, y2) }>""",
    "always and by choice": f"""r = Gather(rows, i) p0 = SequenceInsert(p, r) {INSERT}""".replace(
        "(p, x)", "(p0, x)"
    ).replace("{REST}", "else_branch = e () => (s2) { s2 = Identity(p0) }"),
    "twice": """s = If(keep) <then_branch = a () => (s1) { x = Gather(rows, i) q = SequenceInsert(p, x) y = Abs(x)
        s1 = SequenceInsert(q, y) }, {REST}>""",
    "nested": """s = If(keep) <then_branch = a () => (s1) {
            x = Gather(rows, i) one = Constant<value_int = 0>() m = Gather(x, one) big = Less(m, t)
            s1 = If(big) <then_branch = aa () => (s3) { s3 = SequenceInsert(p, x) },
                else_branch = ee () => (s4) { s4 = Identity(p) }>
        }, {REST}>""",
}


def feeds(score):
    score = np.array(score, np.float32)
    rows = np.arange(3 * len(score), dtype=np.float32).reshape(-1, 3) - 4
    rows[1:2] = np.nan, -0.0, np.inf
    return {"rows": rows, "score": score, "first": np.array([7, -0.0, 8], np.float32)}


SCORES = [[], [0.0], [1.0], [0.1, 0.2, 0.3], [1, 2, 3], [1, 0, 0.7, 0.5, np.nan, 9, 0]]


@pytest.mark.parametrize("name", BODIES)
def test_appending_to_a_list_by_choice(name):
    before = listing(BODIES[name])
    after = apply(before, StackSequences())
    assert "SequenceInsert" not in ops(after.graph)
    for score in SCORES:
        assert_same(before, after, feeds(score), errors_may_vanish=True)


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("name", BODIES)
def test_the_loop_goes(name, target):
    before = listing(BODIES[name], "s0 = SequenceConstruct(first)")  # a list of nothing can't be concatenated
    after, findings = run_pipeline(before, target=target)
    assert loops_left(after) == 0
    assert "some iterations add" in findings[0].carries[0]
    for score in SCORES:
        assert_same(before, after, feeds(score))
    assert_equal(before, after, *map(feeds, SCORES))


@pytest.mark.parametrize(
    ("read", "result"),
    [
        ("y = SequenceLength(seq)", "int64 y"),
        ("at = Constant<value_int = 1>() y = SequenceAt(seq, at)", "float[3] y"),
        ("y = ConcatFromSequence<axis=0>(seq)", "float[k] y"),
        ("y = ConcatFromSequence<axis=1, new_axis=1>(seq)", "float[3,k] y"),
    ],
)
def test_every_reader_of_the_list(read, result):
    before = listing(INSERT, read=read, result=result)
    after = apply(before, StackSequences())
    for score in SCORES:
        assert_same(before, after, feeds(score), errors_may_vanish=True)


def test_collapsing_repeats_and_blanks_of_tokens():
    before = model("""agraph (int64[n] tokens, int64 blank) => (int64[k] y) {
        shape = Shape(tokens) zero = Constant<value_int = 0>() n = Gather(shape, zero)
        s0 = SequenceEmpty<dtype=7>() none = Constant<value_int = -1>()
        seq, last = Loop(n, , s0, none) <body = b (int64 i, bool c, seq(int64) p, int64 previous)
                => (bool d, seq(int64) s, int64 t) {
            d = Identity(c) t = Gather(tokens, i) e1 = Equal(t, previous) n1 = Not(e1)
            s = If(n1) <then_branch = a () => (s1) {
                e2 = Equal(t, blank) n2 = Not(e2)
                s1 = If(n2) <then_branch = aa () => (s3) { s3 = SequenceInsert(p, t) },
                    else_branch = ee () => (s4) { s4 = Identity(p) }>
            }, else_branch = e () => (s2) { s2 = Identity(p) }>
        }>
        y = ConcatFromSequence<axis=0, new_axis=1>(seq)
    }""")
    for target in ("kernel", "standard"):
        after, _ = run_pipeline(before, target=target)
        assert loops_left(after) == 0
        for tokens in ([], [0], [3], [0, 0, 5, 5, 0, 5, 7, 7, 7, 0], [1, 1, 1]):
            given = {"tokens": np.array(tokens, np.int64), "blank": np.array(0)}
            assert_same(before, after, given, errors_may_vanish=True)


GROW = {
    "then": ("a () => (s1) { x = Gather(rows, at) s1 = Concat<axis=0>(p, x) }", "e () => (s2) { s2 = Identity(p) }"),
    "else": ("a () => (s1) { s1 = Identity(p) }", "e () => (s2) { x = Gather(rows, at) s2 = Concat<axis=0>(x, p) }"),
    "two rows": (
        "a () => (s1) { x = Gather(rows, at) y = Neg(x) s1 = Concat<axis=0>(p, x, y) }",
        "e () => (s2) { s2 = Identity(p) }",
    ),
    "nested": (
        """a () => (s1) { x = Gather(rows, at) flat = ReduceSum<keepdims = 0>(x) big = Less(flat, t)
            s1 = If(big) <then_branch = aa () => (s3) { s3 = Concat<axis=0>(p, x) },
                else_branch = ee () => (s4) { s4 = Identity(p) }> }""",
        "e () => (s2) { s2 = Identity(p) }",
    ),
}


@pytest.mark.parametrize("name", GROW)
@pytest.mark.parametrize("where", ["graph", "branch", "body", "function"])
def test_growing_a_tensor_by_choice(name, where):
    taken, other = GROW[name]
    loop = f"""
        shape = Shape(score) zero = Constant<value_int = 0>() n = Gather(shape, zero)
        y = Loop(n, , start) <body = b (int64 i, bool c, float[m,3] p) => (bool d, float[mm,3] s) {{
            d = Identity(c) {KEEP} axes = Constant<value_ints = [0]>() at = Unsqueeze(i, axes)
            s = If(keep) <then_branch = {taken}, else_branch = {other}>
        }}>"""
    head, tail = "agraph (float[n,3] rows, float[n] score, float[q,3] start) => (float[k,3] out) {", "}"
    text = {
        "graph": f"{head} {loop} out = Identity(y) {tail}",
        "branch": f"""{head} yes = Constant<value = bool {{1}}>() rank = Size(score) z = Constant<value_int = -1>()
            go = Greater(rank, z)
            out = If(go) <then_branch = tb () => (y) {{ {loop} }},
                else_branch = eb () => (w) {{ w = Identity(start) }}> {tail}""",
        "body": f"""{head} one = Constant<value_int = 1>()
            out = Loop(one, , start) <body = ob (int64 oi, bool oc, float[v,3] u) => (bool od, float[vv,3] y) {{
                od = Identity(oc) {loop} }}> {tail}""",
        "function": f"""<ir_version: 8, opset_import: ["": 17, "f": 1]> {head} out = f.collect(rows, score, start) {tail}
            <domain: "f", opset_import: ["": 17]> collect (rows, score, start) => (y) {{ {loop} }}""",
    }[where]
    before = model(text)
    after = run_pipeline(before)[0] if where == "function" else apply(before, StackConcats())
    if where != "function":
        assert "If" not in ops(after.graph) or where == "branch"
        assert "Compress" in ops(after.graph)
    for score in SCORES:
        for rows in (0, 2):
            given = {**feeds(score), "start": np.full((rows, 3), -0.0, np.float32)}
            assert_same(before, after, given, empty_shapes=where != "branch")


REFUSED = {
    "could fail where it is not chosen": INSERT.replace(
        "x = Gather(rows, i)", "two = Constant<value_int = 2>() j = Mul(i, two) x = Gather(rows, j)"
    ),
    "appends to by choice": f"len = SequenceLength(p) {INSERT.replace('(p, x)', '(p, x, len)')}",
    "not only appended to": """s = If(keep) <then_branch = a () => (s1) { s1 = SequenceErase(p) }, {REST}>""",
    "different sequences": """e9 = SequenceEmpty<dtype=1>()
        s = If(keep) <then_branch = a () => (s1) { x = Gather(rows, i) s1 = SequenceInsert(e9, x) }, {REST}>""",
    "reads the sequence": f"{INSERT} w = SequenceLength(s)",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_left_alone_with_the_reason(reason):
    body = REFUSED[reason]
    if reason == "reads the sequence":
        body = body.replace("s = If", "s5 = If").replace("SequenceLength(s)", "SequenceLength(s5) s = Identity(s5)")
    before = listing(body)
    after = apply(before, StackSequences(), expect=False)
    (finding,) = after.graph.meta["findings"]
    assert reason in finding.reason


COUNTED = "(s1, u1) { x = Gather(rows, i) s1 = SequenceInsert(p, x) one = Constant<value_int = 1>() u1 = Add(ct, one) }"
BESIDE = {
    "a counter": f"s, cu = If(keep) <then_branch = a () => {COUNTED}, "
    "else_branch = e () => (s2, u2) { s2 = Identity(p) u2 = Identity(ct) }>",
    "a counter that the condition reads": "two = Constant<value_int = 2>() few = Less(ct, two) "
    f"s, cu = If(few) <then_branch = a () => {COUNTED}, "
    "else_branch = e () => (s2, u2) { s2 = Identity(p) u2 = Identity(ct) }>",
    "what is appended too": "one = Constant<value_int = 1>() s0, r = If(keep) <then_branch = a () => (s1, r1) { "
    "x = Gather(rows, i) s1 = SequenceInsert(p, x) r1 = Neg(x) }, else_branch = e () => (s2, r2) { "
    "s2 = Identity(p) r2 = Gather(rows, i) }> s = SequenceInsert(s0, r) cu = Add(ct, one)",
}


@pytest.mark.parametrize("name", BESIDE)
def test_other_results_of_the_choice_stay(name):
    before = model(f"""agraph (float[n,3] rows, float[n] score, float[3] first) => (float[k,3] y, int64 count) {{
        shape = Shape(score) zero = Constant<value_int = 0>() n = Gather(shape, zero)
        start = SequenceConstruct(first) none = Constant<value_int = 0>()
        seq, count = Loop(n, , start, none) <body = b (int64 i, bool c, seq(float[3]) p, int64 ct)
                => (bool d, seq(float[3]) s, int64 cu) {{
            d = Identity(c) {KEEP} {BESIDE[name]}
        }}>
        y = ConcatFromSequence<axis=0, new_axis=1>(seq)
    }}""")
    after = apply(before, StackSequences())
    assert "SequenceInsert" not in ops(after.graph)
    lifted, (finding,) = run_pipeline(before)
    assert "dropped" not in finding.reason
    assert "SequenceInsert" not in ops(lifted.graph)
    for score in SCORES:
        assert_same(before, after, feeds(score))
        assert_same(before, lifted, feeds(score))


def test_other_results_of_a_choice_by_which_a_tensor_grows_stay():
    before = model(f"""agraph (float[n,3] rows, float[n] score, float[q,3] start) => (float[k,3] y, int64 count) {{
        shape = Shape(score) zero = Constant<value_int = 0>() n = Gather(shape, zero)
        y, count = Loop(n, , start, zero) <body = b (int64 i, bool c, float[m,3] p, int64 ct)
                => (bool d, float[mm,3] s, int64 cu) {{
            d = Identity(c) {KEEP} axes = Constant<value_ints = [0]>() at = Unsqueeze(i, axes)
            s, cu = If(keep) <then_branch = a () => (s1, u1) {{ x = Gather(rows, at) s1 = Concat<axis=0>(p, x)
                one = Constant<value_int = 1>() u1 = Add(ct, one) }},
                else_branch = e () => (s2, u2) {{ s2 = Identity(p) u2 = Identity(ct) }}>
        }}>
    }}""")
    after = apply(before, StackConcats())
    assert "Compress" in ops(after.graph)
    for score in SCORES:
        assert_same(before, after, {**feeds(score), "start": np.full((2, 3), -0.0, np.float32)})

"""Sequences grown by a loop become scan outputs."""

import numpy as np
import pytest

from looplift.passes.stack.stack_sequences import StackSequences
from tests.helpers import apply, assert_same, find, model, ops

TRIPS = [-1, 0, 1, 2, 17]


def loop(
    *,
    start: str = "s0 = SequenceEmpty<dtype=1>()",
    body: str = "s = SequenceInsert(p, q)",
    read: str = "y = ConcatFromSequence<axis=0, new_axis=1>(seq)",
    result: str = "float[r,4] y",
    step: str = "float[4] step",
    state: str = "float[4]",
    opset: int = 17,
):
    """x stepped M times, `body` keeps the states in a sequence p -> s, `read` looks at the final sequence."""
    return model(
        f"""agraph ({state} x, {step}, int64 M, int64 at) => ({result}) {{
            {start}
            v, seq = Loop(M, , x, s0) <body = b (int64 i, bool c, {state} u, seq(float) p)
                    => (bool d, {state} q, seq(float) s) {{
                d = Identity(c)
                q = Add(u, step)
                {body}
            }}>
            {read}
        }}""",
        opset,
    )


def feeds(trips: int, at: int = 0):
    return {
        "x": np.array([1, 2, 3, 4], np.float32),
        "step": np.array([0.1, -0.3, 1e9, 7], np.float32),
        "M": np.array(trips, np.int64),
        "at": np.array(at, np.int64),
    }


def check(before, **kwargs):
    after = apply(before, StackSequences())
    assert "SequenceInsert" not in ops(after.graph)
    for trips in TRIPS:
        for at in (-1, 0, 1, 5):
            assert_same(before, after, feeds(trips, at), **kwargs)
    return after


def test_list_append_and_stack_becomes_a_scan_output():
    after = check(loop(), errors_may_vanish=True)
    assert find(after, "Loop").outputs[1] is after.graph.outputs[0]
    (finding,) = after.graph.meta["findings"]
    assert finding.actions == (
        "made the sequence 'seq' a scan output (concatenating it no longer fails when it is empty)",
    )


@pytest.mark.parametrize("opset", [13, 14, 16, 18, 24])
@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
def test_new_axis_anywhere(axis, opset):
    check(
        loop(read=f"y = ConcatFromSequence<axis={axis}, new_axis=1>(seq)", result="float[a,b] y", opset=opset),
        errors_may_vanish=True,
    )


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize(
    "element", ["e = Identity(q)", "e = Unsqueeze(q, zero)", "e = Unsqueeze(q, one)", "e = Reshape(q, two)"]
)
def test_joined_along_an_axis_of_theirs(element, axis, opset):
    constants = "".join(
        f"{name} = Constant<value = int64[{len(v)}] {{{','.join(map(str, v))}}}>()\n"
        for name, v in {"zero": [0], "one": [1], "two": [2, 2]}.items()
    )
    body = f"{constants}{element}\ns = SequenceInsert(p, e)"
    read = f"y = ConcatFromSequence<axis={axis}, new_axis=0>(seq)"
    check(loop(body=body, read=read, result="float y", opset=opset), errors_may_vanish=True)


def test_joined_along_an_axis_with_symbolic_extents():
    text = """agraph (float[A,B] x, int64 M) => (float[c,d] y) {
        s0 = SequenceEmpty<dtype=1>()
        v, seq = Loop(M, , x, s0) <body = b (int64 i, bool c, float[A,B] u, seq(float) p)
                => (bool d, float[A,B] q, seq(float) s) {
            d = Identity(c)
            q = Neg(u)
            s = SequenceInsert(p, q)
        }>
        y = ConcatFromSequence<axis=1, new_axis=0>(seq)
    }"""
    before = model(text)
    after = apply(before, StackSequences())
    for shape in ((2, 3), (0, 3), (2, 0)):
        for trips in TRIPS:
            feed = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32), "M": np.array(trips, np.int64)}
            assert_same(before, after, feed, errors_may_vanish=True)
    apply(model(text, opset=13), StackSequences(), expect=False)


def test_elements_by_index_and_the_length():
    read = """y = SequenceAt(seq, at)
              n = SequenceLength(seq)"""
    check(loop(read=read, result="float[4] y, int64 n"))


@pytest.mark.parametrize(
    "body",
    [
        "s = SequenceInsert(p, q, i)",
        "n = SequenceLength(p)\n s = SequenceInsert(p, q, n)",
        "zero = Constant<value_int = 0>()\n s = SequenceInsert(p, q, zero)",
        "w = Neg(q)\n t = SequenceInsert(p, q)\n s = SequenceInsert(t, w)",
        "z = Constant<value_int = 0>()\n w = Neg(q)\n t = SequenceInsert(p, q, z)\n s = SequenceInsert(t, w, z)",
        "n = SequenceLength(p)\n f = CastLike(n, q)\n e = Mul(f, q)\n s = SequenceInsert(p, e)",
        "n=SequenceLength(p)\n f=CastLike(n, q)\n e=Mul(f, q)\n t=SequenceInsert(p, e)\n s=SequenceInsert(t, u)",
        "s = SequenceInsert(p, u)",
        "s = SequenceInsert(p, step)",
    ],
)
@pytest.mark.parametrize(
    "start", ["s0 = SequenceEmpty<dtype=1>()", "s0 = SequenceConstruct(x)", "s0 = SequenceConstruct(x, step)"]
)
def test_places_and_lengths(body, start):
    read = """y = ConcatFromSequence<axis=0, new_axis=1>(seq)
              w2 = SequenceAt(seq, at)
              n2 = SequenceLength(seq)"""
    before = loop(start=start, body=body, read=read, result="float[r,4] y, float[4] w2, int64 n2")
    if "SequenceInsert(p, q, i)" in body and "Construct" in start:
        apply(before, StackSequences(), expect=False)
    else:
        check(before, errors_may_vanish="Empty" in start)


def test_start_of_unknown_extent_survives_zero_iterations():
    before = model("""agraph (float[N] x, int64 M) => (float[r,c] y) {
        s0 = SequenceConstruct(x)
        v, seq = Loop(M, , x, s0) <body = b (int64 i, bool c, float[N] u, seq(float) p)
                => (bool d, float[N] q, seq(float) s) {
            d = Identity(c)
            q = Add(u, u)
            s = SequenceInsert(p, q)
        }>
        y = ConcatFromSequence<axis=0, new_axis=1>(seq)
    }""")
    after = apply(before, StackSequences())
    for trips in TRIPS:
        for n in (0, 1, 3):
            assert_same(before, after, {"x": np.arange(n, dtype=np.float32), "M": np.array(trips, np.int64)})


def test_shapes_that_differ_fail_as_before():
    """The state grows from [1] to [4] in the first iteration: stacking the states before it must still fail."""
    before = model("""agraph (float[N] x, float[K] step, int64 M) => (float[r,c] y) {
        s0 = SequenceEmpty<dtype=1>()
        v, seq = Loop(M, , x, s0) <body = b (int64 i, bool c, float[N] u, seq(float) p)
                => (bool d, float[N] q, seq(float) s) {
            d = Identity(c)
            q = Add(u, step)
            s = SequenceInsert(p, u)
        }>
        y = ConcatFromSequence<axis=0, new_axis=1>(seq)
    }""")
    after = apply(before, StackSequences())
    for trips in TRIPS:
        feed = {"x": np.ones(1, np.float32), "step": np.ones(4, np.float32), "M": np.array(trips, np.int64)}
        assert_same(before, after, feed, errors_may_vanish=trips < 1)


@pytest.mark.parametrize(
    "change",
    [
        {
            "read": "y = SequenceAt(seq, at)",
            "state": "float[N]",
            "step": "float[K] step",
            "result": "float y",
        },  # the state may grow
        {"read": "n = SequenceLength(seq)", "state": "float[N]", "step": "float[K] step", "result": "int64 n"},
        {
            "read": "y = ConcatFromSequence<axis=0>(seq)",
            "state": "float[N]",
            "step": "float[K] step",
            "result": "float y",
        },
        {"read": "y = Identity(v)", "result": "float[4] y, seq(float) seq"},  # the sequence leaves the graph
        {"read": "e = SequenceErase(seq)\n y = ConcatFromSequence<axis=0, new_axis=1>(e)"},
        {"start": "s0 = SequenceEmpty<dtype=1>()", "body": "s = SequenceInsert(p, q, at)"},
        {"start": "s0 = SequenceConstruct(x)", "body": "t = SequenceErase(p)\n s = SequenceInsert(t, q)"},
        {"start": "s0 = SequenceConstruct(x)", "body": "w = SequenceAt(p, i)\n s = SequenceInsert(p, w)"},
        {"start": "s0 = SequenceConstruct(x)", "body": "s = Identity(p)"},
    ],
)
def test_left_alone(change):
    apply(loop(**change), StackSequences(), expect=False)


def test_in_a_branch_a_body_and_a_function():
    inner = """v, seq = Loop(M, , x, s0) <body = b (int64 i, bool c, float[4] u, seq(float) p)
                => (bool d, float[4] q, seq(float) s) {
                   d = Identity(c)
                   q = Add(u, u)
                   s = SequenceInsert(p, q)
               }>"""
    start, stack = "s0 = SequenceEmpty<dtype=1>()", "y = ConcatFromSequence<axis=0, new_axis=1>(seq)"
    branch = model(f"""agraph (float[4] x, int64 M, bool k) => (float[r,c] z) {{
        z = If(k) <then_branch = t () => (float[r,c] y) {{ {start} {inner} {stack} }},
                   else_branch = e () => (float[r,c] w) {{ a = Constant<value_ints=[0]>() w = Unsqueeze(x, a) }}>
    }}""")
    reader = model(f"""agraph (float[4] x, int64 M, bool k) => (float[c] z) {{
        {start} {inner}
        z = If(k) <then_branch = t () => (float[c] y) {{ a = Constant<value_int=-1>() y = SequenceAt(seq, a) }},
                   else_branch = e () => (float[c] w) {{ w = Identity(x) }}>
    }}""")
    body = model(f"""agraph (float[4] x, int64 M, bool k) => (float[m,r,c] z) {{
        z = Loop(M, k) <body = o (int64 j, bool g) => (bool h, float[r,c] y) {{
            h = Identity(g) {start} {inner} {stack}
        }}>
    }}""")
    function = model(f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        agraph (float[4] x, int64 M, bool k) => (float[r,c] z) {{ z = own.f(x, M) }}
        <domain: "own", opset_import: ["": 17]> f (x, M) => (y) {{ {start} {inner} {stack} }}""")
    for before in (branch, reader, body, function):
        after = apply(before, StackSequences())
        graphs = [after.graph, *after.functions.values()]
        assert not any("SequenceInsert" in ops(graph) for graph in graphs)
        for trips in TRIPS:
            for k in (True, False):
                feed = {"x": np.arange(4, dtype=np.float32), "M": np.array(trips, np.int64), "k": np.array(k)}
                assert_same(before, after, feed, errors_may_vanish=trips < 1, empty_shapes=False)


def test_two_sequences_and_a_while_loop():
    before = model("""agraph (float[4] x, float limit) => (float[r,c] y, float[a,b] z) {
        s0 = SequenceEmpty<dtype=1>()
        t0 = SequenceEmpty<dtype=1>()
        go = Constant<value = bool {1}>()
        v, seq, other = Loop(, go, x, s0, t0) <body = b (int64 i, bool c, float[4] u, seq(float) p, seq(float) o) =>
                (bool d, float[4] q, seq(float) s, seq(float) t) {
            q = Add(u, u)
            m = ReduceMax<keepdims=0>(q)
            d = Less(m, limit)
            s = SequenceInsert(p, q)
            t = SequenceInsert(o, u)
        }>
        y = ConcatFromSequence<axis=0, new_axis=1>(seq)
        z = ConcatFromSequence<axis=1, new_axis=1>(other)
    }""")
    after = apply(before, StackSequences())
    assert "SequenceInsert" not in ops(after.graph)
    for limit in (-1.0, 10.0, 1e5):
        assert_same(before, after, {"x": np.arange(4, dtype=np.float32), "limit": np.array(limit, np.float32)})

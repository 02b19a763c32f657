"""A step of a float carry that an If chooses becomes a step with chosen terms, which keeps -0, infinities and NaN."""

import numpy as np
import pytest
from helpers import model, run_ort
from lifting import assert_equal, lift, loops_left, nodes, parse, same_bits

CHOICES = {
    "add or keep": "then_branch = t () => (p) { p = Add(v, e) }, else_branch = f () => (q) { q = Identity(v) }",
    "keep or add": "then_branch = t () => (p) { p = Identity(v) }, else_branch = f () => (q) { q = Add(e, v) }",
    "add or subtract": "then_branch = t () => (p) { p = Add(v, e) }, else_branch = f () => (q) { q = Sub(v, e) }",
    "multiply or keep": "then_branch = t () => (p) { p = Mul(v, e) }, else_branch = f () => (q) { q = Identity(v) }",
    "multiply or add": "then_branch = t () => (p) { p = Mul(v, e) }, else_branch = f () => (q) { q = Add(v, step) }",
    "decay or both": """then_branch = t () => (p) { a = Mul(v, step) p = Add(a, e) },
        else_branch = f () => (q) { b = Mul(e, v) q = Sub(b, step) }""",
    "constants inside": """then_branch = t () => (p) { half = Constant<value_float = 0.5>() h = Mul(e, half) p = Add(v, h) },
        else_branch = f () => (q) { z = Constant<value_float = -0.0>() q = Add(v, z) }""",
}
LOOP = """y, ys = Loop(n, , x) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] o) {{
        d = Identity(c) e = Gather(s, i) g = Gather(m, i)
        w = If(g) <{choice}> o = Identity(w)
    }}>"""
HEAD = "agraph (float[3] x, float[T,3] s, bool[T] m, float[3] step) => (float[3] y, float[k,3] ys) {"
COUNT = "shape = Shape(m) zero = Constant<value_int = 0>() n = Gather(shape, zero)"
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -3.5, 65504.0], np.float32)


def feeds(rows: int, seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "x": draw.choice(SPECIAL, 3),
        "s": draw.choice(SPECIAL, (rows, 3)),
        "m": draw.integers(0, 2, rows).astype(bool),
        "step": draw.choice(SPECIAL, 3),
    }


def assert_same(before, after, given) -> None:
    """The same bits in ONNX Runtime; any NaN is as good as another."""
    for left, right in zip(run_ort(before, given), run_ort(after, given), strict=True):
        assert same_bits(left, right), f"{left} and {right} on {given}"


@pytest.mark.parametrize("target", ["kernel", "standard"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_step_chosen_by_an_if(name, target):
    text = f"{HEAD} {COUNT} {LOOP.format(choice=CHOICES[name])} }}"
    lifted, (finding,) = lift(text, target=target)
    assert finding.recurrence
    assert target == "standard" or len(nodes(lifted)) == 1
    for rows in (0, 1, 2, 7):
        for seed in range(8):
            assert_same(parse(text), lifted, feeds(rows, seed))
        assert_equal(text, lifted, feeds(rows, 0))


@pytest.mark.parametrize("where", ["branch", "body", "function"])
def test_wherever_it_stands(where):
    inner = f"{COUNT} {LOOP.format(choice=CHOICES['add or keep'])}"
    text = {
        "branch": f"""{HEAD} yes = Constant<value_int = 1>() lots = Size(step) go = Greater(lots, yes)
            y, ys = If(go) <then_branch = tb () => (y, ys) {{ {inner} }},
                else_branch = eb () => (a, b) {{ a = Identity(x) b = Identity(s) }}> }}""",
        "body": f"""{HEAD} one = Constant<value_int = 1>()
            y, more = Loop(one, , x) <body = ob (int64 oi, bool oc, float[3] x2) => (bool od, float[3] y, float[k,3] ys) {{
                od = Identity(oc) {inner.replace(", x)", ", x2)")} }}>
            axes = Constant<value_ints = [0]>() ys = Squeeze(more, axes) }}""",
        "function": f"""<ir_version: 8, opset_import: ["": 17, "f": 1]> {HEAD} y, ys = f.run(x, s, m, step) }}
            <domain: "f", opset_import: ["": 17]> run (x, s, m, step) => (y, ys) {{ {inner} }}""",
    }[where]
    before = model(text)
    lifted, _ = lift(text)
    assert len(nodes(lifted)) == 1
    for rows in (1, 2, 7):
        assert_same(before, lifted, feeds(rows, rows))


STAY = {
    "an index that may be out of range": """then_branch = t () => (p) { one = Constant<value_int = 1>() j = Add(i, one)
        r = Gather(s, j) p = Add(v, r) }, else_branch = f () => (q) { q = Identity(v) }""",
    "a reset": "then_branch = t () => (p) { p = Identity(e) }, else_branch = f () => (q) { q = Add(v, e) }",
    "two steps in one": """then_branch = t () => (p) { a = Add(v, e) p = Add(a, step) },
        else_branch = f () => (q) { q = Identity(v) }""",
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name):
    text = f"{HEAD} {COUNT} {LOOP.format(choice=STAY[name])} }}"
    lifted, (finding,) = lift(text)
    assert loops_left(lifted) == 1
    assert not finding.recurrence
    assert finding.reason
    for rows in (0, 1, 5):
        given = feeds(rows, rows)
        given["m"][-1:] = False
        assert_same(parse(text), lifted, given)


def test_a_condition_that_reads_the_carry_stays():
    text = f"{HEAD} {COUNT} {LOOP.format(choice=CHOICES['add or keep'])} }}".replace(
        "g = Gather(m, i)", "total = ReduceSum<keepdims = 0>(v) g = Less(total, big)"
    ).replace(COUNT, f"{COUNT} big = Constant<value_float = 9.0>()")
    lifted, _ = lift(text)
    assert loops_left(lifted) == 1
    for rows in (0, 1, 5):
        assert_same(parse(text), lifted, feeds(rows, rows))


def test_a_type_that_onnx_runtime_has_no_where_of_stays():
    text = f"{HEAD} {COUNT} {LOOP.format(choice=CHOICES['add or keep'])} }}".replace("float[", "uint64[")
    lifted, _ = lift(text)
    assert loops_left(lifted) == 1
    given = {"x": np.arange(3), "s": np.ones((4, 3)), "step": np.ones(3)}
    typed = {key: array.astype(np.uint64) for key, array in given.items()}
    assert_same(parse(text), lifted, {**typed, "m": np.array([True, False, True, True])})

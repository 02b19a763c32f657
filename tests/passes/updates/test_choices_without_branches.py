"""If nodes in loops: both branches computed where that is cheap and safe."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from helpers import apply, assert_same, model, ops
from lifting import assert_equal, lift, loops_left, nodes, parse

from looplift.passes.clean.simplify import Simplify
from looplift.passes.updates.choices_without_branches import ChoicesWithoutBranches

LOOP = """agraph (int64 n, bool flag, float[D] x, float[D] step, int64[3] where) => (float[P] v) {{
  two = Constant<value_int = 2>()
  one = Constant<value_int = 1>()
  v = Loop (n, "", x) <body = b (int64 i, bool ci, p) => (bool co, q) {{
    co = Identity(ci)
    rest = Mod(i, two)
    odd = Equal(rest, one)
    q = If ({condition}) <then_branch = t () => (l) {{ {taken} }}, else_branch = e () => (r) {{ {other} }}>
  }}>
}}"""


def loop(condition: str = "flag", taken: str = "l = Add(p, step)", other: str = "r = Sub(p, step)") -> str:
    return LOOP.format(condition=condition, taken=taken, other=other)


def feeds(n: int, flag: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n)
    x, step = (random.standard_normal(3).astype("f") for _ in range(2))
    return {"n": np.array(n), "flag": np.array(flag), "x": x, "step": step, "where": np.array([0, 1, 2])}


RUNS = [feeds(n, flag) for n in (0, 1, 2, 9) for flag in (True, False)]


CONSTANT = "k = Constant<value_float = 0.5>() l = Add(p, k)"


@pytest.mark.parametrize(
    "text",
    [
        loop(taken=CONSTANT),
        loop("odd", taken=CONSTANT),
        loop(taken=CONSTANT, other="r = Identity(p)"),
        loop(taken="k = Exp(step) l = Mul(p, k)", other="k = Exp(step) r = Add(p, k)"),
    ],
)
def test_a_choice_of_steps_is_lifted(text):
    before = model(text)
    after = apply(before, ChoicesWithoutBranches())
    assert "If" not in ops(after.graph)
    lifted, findings = lift(text)
    assert loops_left(lifted) == 0, findings
    assert len(nodes(lifted)) == 1
    for run in RUNS:
        assert_same(before, after, run)
        assert_equal(parse(text), lifted, run)


@pytest.mark.parametrize(
    "text",
    [
        loop(),  # either may be -0, which a Where of ONNX Runtime loses
        loop(other="r = Identity(p)"),
        loop(taken="k = Constant<value_float = -0.0>() l = Add(p, k)"),
        loop(taken="l = Gather(step, where)"),  # fails where an index is out of range
        loop(taken="l = Gather(step, where)", condition="odd"),
        loop(other="z = Constant<value_floats = [0.0]>() r = Mul(z, z)"),  # another shape
        loop(taken="m = Softmax(p) l = Mul(m, step)"),  # not cheap
    ],
)
def test_other_choices_stay(text):
    apply(model(text), ChoicesWithoutBranches(), expect=False)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        loop(taken="l = Identity(p)", other=CONSTANT.replace("l =", "r =")),
        loop("no", taken=CONSTANT, other="r = Identity(p)").replace("rest =", "no = Not(flag) rest ="),
        loop("no", taken=CONSTANT, other="r = Identity(p)").replace(
            "rest =", "not = Not(flag) no = Identity(not) rest ="
        ),
    ],
)
def test_the_optimizers_of_onnxruntime_exchange_no_values(text, flag):
    """They make ``where(not c, a, b)`` to ``where(c, b, a)``, in which a -0 of b is 0."""
    before = model(text)
    after = apply(before, ChoicesWithoutBranches(), Simplify())
    assert "Reshape" not in ops(after.graph)
    feed = {**feeds(3, flag), "x": np.array([-0.0, 0, 1], "f")}
    runs = [onnxruntime.InferenceSession(ir.to_proto(each).SerializeToString()) for each in (before, after)]
    wanted, got = (run.run(None, {value.name: feed[value.name] for value in run.get_inputs()})[0] for run in runs)
    assert got.tobytes() == wanted.tobytes()


COUNTED = """agraph (int64 n, float[3] x, float[3] step) => (float[3] v) {{
  yes = Constant<value = bool {{1}}>()
  no = Constant<value = bool {{0}}>()
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  seven = Constant<value_int = 7>()
  most = Constant<value_int = 9223372036854775807>()
  start = Less(zero, n)
  v, count = Loop (most, start, x, zero) <body = b (int64 i, bool ci, p, c) => (bool co, q, cn) {{
    {body}
  }}>
}}"""

WHILE_AND = """q = Add(p, step)
    cn = Add(c, one)
    more = Less(cn, n)
    co = If (more) <
      then_branch = t () => (below) { below = Less(cn, seven) },
      else_branch = e () => (never) { never = Identity(no) }
    >"""
BREAK = """late = Equal(c, seven)
    goes, q = If (late) <
      then_branch = t () => (stop, same) { stop = Identity(no) same = Identity(p) },
      else_branch = e () => (on, next) { on = Identity(yes) half = Constant<value_float = 0.5>() next = Add(p, half) }
    >
    cn = Add(c, one)
    more = Less(cn, n)
    co = And(more, goes)"""


@pytest.mark.parametrize("body", [WHILE_AND, BREAK])
def test_exit_tests_of_several_conditions(body):
    text = COUNTED.format(body=body)
    lifted, findings = lift(text)
    assert loops_left(lifted) == 0, findings
    for n in (0, 1, 6, 7, 8, 9, 30):
        assert_equal(
            parse(text), lifted, {key: array for key, array in feeds(n, True).items() if key in ("n", "x", "step")}
        )


TYPED = """agraph (int64 n, {kind}[1] x, {kind}[1] w) => ({kind}[1] v) {{
  v = Loop (n, "", x) <body = b (int64 i, bool ci, {kind}[1] p) => (bool co, {kind}[1] q) {{
    co = Identity(ci)
    odd = Cast<to = 9>(i)
    q = If (odd) <then_branch = t () => ({kind}[1] l) {{ l = Identity(w) }}, else_branch = e () => ({kind}[1] r) {{ r = Identity(p) }}>
  }}>
}}"""


@pytest.mark.parametrize(
    ("kind", "opset", "taken"),
    [
        ("int32", 9, True),
        ("int64", 17, True),
        ("int32", 8, False),
        ("float", 17, False),
        ("uint16", 17, False),
        ("bool", 17, False),
    ],
)
def test_only_where_engines_have_a_where(kind, opset, taken):
    text = TYPED.format(kind=kind)
    _, findings = lift(text, opset)
    assert ("computed both branches of a choice and took one of the results" in findings[0].actions) == taken

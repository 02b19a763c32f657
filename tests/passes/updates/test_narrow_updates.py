"""Updates that are computed in a wider type and rounded back: the same bits as in the state's own type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifting import assert_equal, lift, loops_left, nodes

from looplift.passes.updates.narrow_updates import NarrowUpdates
from tests.helpers import apply, ops
from tests.passes.places import assert_same_everywhen, everywhere

TYPES = {"float": 1, "int32": 6, "int64": 7, "float16": 10, "double": 11}
DTYPES = {"float": np.float32, "int32": np.int32, "float16": np.float16}


def loop(narrow, wide, update, rows="r = Identity(q)", more=""):
    """A Loop whose update of p, made wide as w, is `update`, made narrow as q; s is a step of the narrow type."""
    return f"""
    agraph ({narrow}[3] v, {narrow}[3] s, {wide}[3] z, int64 n) => ({narrow}[3] y, {narrow}[k,3] t) {{
      y, t = Loop (n, "", v) <body = b (int64 i, bool ci, {narrow}[3] p) => (bool co, {narrow}[3] q, {narrow}[3] r) {{
        co = Identity(ci) w = Cast<to = {TYPES[wide]}>(p) x = Cast<to = {TYPES[wide]}>(s) {more}
        u = {update} q = Cast<to = {TYPES[narrow]}>(u) {rows} }}>
    }}"""


def feeds(narrow, wide, count, seed=0):
    random = np.random.default_rng(seed)
    dtype = DTYPES[narrow]
    v, s = random.integers(0, 256, (2, 3 * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    z = random.integers(-(2**40), 2**40, 3).astype({"double": np.float64, "float": np.float32, "int64": np.int64}[wide])
    return {"v": v, "s": s, "z": z, "n": np.array(count)}


@pytest.mark.parametrize(
    ("narrow", "wide"), [("float16", "float"), ("float16", "double"), ("float", "double"), ("int32", "int64")]
)
@pytest.mark.parametrize(
    ("update", "node"),
    [("Add(w, x)", "AddStep"), ("Add(x, w)", "AddStep"), ("Sub(w, x)", "AddStep"), ("Mul(x, w)", "LinearRecurrence")],
)
def test_becomes_a_recurrence_of_the_narrow_type(narrow, wide, update, node):
    text = loop(narrow, wide, update)
    model, findings = lift(text)
    assert nodes(model) == [node], findings
    for seed in range(20):
        assert_equal(text, model, feeds(narrow, wide, 6, seed))


@pytest.mark.parametrize(
    ("narrow", "wide", "constant", "lifted"),
    [
        ("float", "double", "0.5", True),
        ("float", "double", "0.1", False),
        ("float16", "float", "65504.0", True),
        ("float16", "float", "65505.0", False),
        ("int32", "int64", "4294967297", True),
    ],
)
def test_constants_that_the_narrow_type_holds(narrow, wide, constant, lifted):
    text = loop(narrow, wide, "Add(w, c)", more=f"c = Constant<value = {wide} {{{constant}}}>()")
    model, _ = lift(text)
    assert (loops_left(model) == 0) == lifted
    assert_equal(text, model, feeds(narrow, wide, 5))


def test_rows_are_read_before_they_are_made_wide():
    text = """
    agraph (float16[3] v, float16[T,3] x, int64 n) => (float16[3] y, float16[k,3] t) {
      y, t = Loop (n, "", v) <body = b (int64 i, bool ci, float16[3] p) => (bool co, float16[3] q, float16[3] r) {
        co = Identity(ci) w = Cast<to = 1>(p) row = Gather(x, i) z = Cast<to = 1>(row) u = Add(w, z) q = Cast<to = 10>(u)
        r = Identity(q) }>
    }"""
    model, _ = lift(text)
    assert nodes(model) == ["PrefixSum"]
    x = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float16)
    assert_equal(text, model, {"v": x[0], "x": x, "n": np.array(9)})


def test_wide_integers_are_cut_first():
    text = loop("int32", "int64", "Add(m, z)", more="m = Mul(w, z)")
    model, _ = lift(text)
    assert nodes(model) == ["LinearRecurrence"]
    for seed in range(20):
        assert_equal(text, model, feeds("int32", "int64", 7, seed))


@pytest.mark.parametrize(
    ("narrow", "wide", "update", "rows", "more"),
    [
        ("float", "double", "Add(w, z)", "r = Identity(q)", ""),  # a step that float does not hold
        ("float", "double", "Add(m, x)", "r = Identity(q)", "m = Mul(w, x)"),  # rounded once in place of twice
        ("float", "double", "Add(w, x)", "r = Cast<to = 1>(u)", ""),  # the wide sum is read elsewhere
        ("float16", "float", "Add(w, x)", "r = Neg(q)", ""),  # which ONNX Runtime would not round in between
        ("float16", "float", "Add(w, e)", "r = Identity(q)", "c = Mul(w, x) d = Cast<to = 10>(c) e = Cast<to = 1>(d)"),
        # engines fuse what stands side by side
        ("float", "double", "Add(w, e)", "r = Identity(q)", "d = Sin(p) e = Cast<to = 11>(d)"),
        ("float", "int64", "Add(w, x)", "r = Identity(q)", ""),
        ("float", "double", "Div(w, x)", "r = Identity(q)", ""),
    ],
)
def test_what_is_not_the_same_bits_stays(narrow, wide, update, rows, more):
    text = loop(narrow, wide, update, rows, more)
    model, _ = lift(text)
    assert loops_left(model) == 1


WIDE = """
  y, t = Loop (M, c, v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q, float[2] r) {
    co = Identity(ci) w = Cast<to = 11>(p) x = Cast<to = 11>(s) u = Sub(w, x) q = Cast<to = 1>(u) r = Identity(q)
  }>
"""


@pytest.mark.parametrize("place", everywhere(WIDE))
def test_everywhere(place):
    before = everywhere(WIDE)[place]
    if place == "function":  # whose inputs have no types
        apply(before, NarrowUpdates(), expect=False)
        return
    after = apply(before, NarrowUpdates())
    assert ops(after.graph).count("Cast") == 2  # those of p and s, which nothing reads any more
    assert_same_everywhen(before, after)


def test_the_type_may_be_an_attribute_of_a_function():
    """Which is of another opset, and so stays."""
    text = """<ir_version: 9, opset_import: ["": 17, "local": 1]>
    g (int64 M, float[2] v, float[2] s) => (float[2] y) { y = local.f<t = 1>(M, v, s) }
    <domain: "local", opset_import: ["": 16]>
    f <t> (M, v, s) => (y) { y = Loop (M, , v) <body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] q) {
      co = Identity(ci) w = Cast<to = 11>(p) x = Cast<to = 11>(s) u = Add(w, x) q = Cast<to: int = @t>(u) }> }"""
    model, (finding,) = lift(text)
    assert not finding.lifted
    assert loops_left(model) == 1


def test_a_long_way_to_an_operand():
    moves = " ".join(f"a{k + 1} = Transpose(a{k})" for k in range(1200))
    text = loop("float", "double", "Add(w, z)", more=f"a0 = Tanh(p) {moves} z = Cast<to = 11>(a1200)")
    text = text.replace("double[3] z, ", "")
    model, _ = lift(text)
    assert loops_left(model) == 1


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2**16 - 1), min_size=2, max_size=200))
def test_sums_of_float16_are_rounded_as_if_at_once(bits):
    """A double holds the sum of two float16 exactly; a float does not."""
    values = np.array(bits, np.uint16).view(np.float16)
    a, b = values[:, None], values[None, :]
    with np.errstate(all="ignore"):
        through_float = (a.astype(np.float32) + b.astype(np.float32)).astype(np.float16)
        exact = (a.astype(np.float64) + b.astype(np.float64)).astype(np.float16)
    assert np.array_equal(through_float, exact, equal_nan=True)
    assert np.array_equal(np.signbit(through_float) | np.isnan(exact), np.signbit(exact) | np.isnan(exact))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=100), st.sampled_from([np.add, np.subtract, np.multiply])
)
def test_float_through_double(bits, operation):
    values = np.array(bits, np.uint32).view(np.float32)
    a, b = values[:, None], values[None, :]
    with np.errstate(all="ignore"):
        direct = operation(a, b)
        through_double = operation(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    assert np.array_equal(direct, through_double, equal_nan=True)

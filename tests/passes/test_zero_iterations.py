"""Where a loop runs no iteration, what was moved out of it may not fail by shapes that its body never saw."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lifting import count, loops_left, parse, same_bits
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from looplift.passes import run_pipeline
from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError

LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
)
TARGETS = ("kernel", "standard")
DTYPES = {"float": "f4", "double": "f8", "int32": "i4", "int64": "i8", "float16": "f2"}
NOT_RUN = ({"n": 0, "c": True}, {"n": -1, "c": True}, {"n": 3, "c": False})


def in_onnxruntime(model: ir.Model, feed: dict) -> Iterator[list | None]:
    """What ONNX Runtime makes of the model without and with its optimizers; None where it fails."""
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level, options.log_severity_level, options.intra_op_num_threads = level, 4, 1
        session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
        result = None
        with contextlib.suppress(RuntimeException, InvalidArgument, Fail):
            result = session.run(None, {value.name: feed[value.name] for value in session.get_inputs()})
        yield result


def in_session(model: ir.Model, feed: dict) -> Iterator[list | None]:
    """The same in our interpreter, with kernels and with definitions."""
    for definitions in (False, True):
        result = None
        with contextlib.suppress(LoopliftError):
            result = Session(model, device="numpy", definitions=definitions).run(None, feed)
        yield result


def as_before(before: ir.Model, after: ir.Model, feed: dict, engine) -> None:
    """The rewritten model runs where the original does, with the same bits; zero rows are zero rows."""
    for wanted, got in zip(engine(before, feed), engine(after, feed), strict=True):
        if wanted is None:
            continue
        assert got is not None, f"fails where the original runs: {feed}"
        for want, have in zip(wanted, got, strict=True):
            assert want.dtype == have.dtype
            if want.size == have.size == 0 and want.shape[:1] == have.shape[:1] == (0,):
                # ONNX Runtime gives an empty stack extents of 0 where the body declares none, and no rank at all
                assert len(want.shape) in (1, len(have.shape))
            else:
                assert same_bits(np.asarray(want), np.asarray(have)), f"{want} and {have} for {feed}"


def feed_of(sizes: dict, **arrays) -> dict:
    return {**{name: np.array(value) for name, value in sizes.items()}, **arrays}


def ones(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.ones(shape, dtype)


JOINED = "d = Sub(p, x) q = Add(d, w) o = Identity(q)"
GROWS = "q = Add(p, x) o = Identity(q)"
GROWS_AFTER = "q = Add(p, x) o = Identity(p)"
SCALED = "m = Mul(p, x) q = Add(m, w) o = Identity(q)"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("opset", "dtype"), [(9, "float"), (11, "int32"), (17, "float"), (17, "int64")])
@pytest.mark.parametrize(
    ("body", "rows"),
    [(JOINED, True), (JOINED, False), (GROWS, True), (GROWS, False), (GROWS_AFTER, True), (SCALED, True)],
)
def test_recurrences_whose_terms_do_not_fit(body, rows, opset, dtype, target):
    stacked, out = (f", {dtype}[R,S] z", ", o") if rows else ("", "")
    text = f"""
    agraph (int64 n, bool c, {dtype}[3] v, {dtype}[N] x, {dtype}[3] w) => ({dtype}[K] f{stacked}) {{
      f{", z" if rows else ""} = Loop (n, c, v) <body = b (int64 i, bool ci, {dtype}[3] p) => (
          bool co, {dtype}[3] q{f", {dtype}[3] o" if rows else ""}) {{ co = Identity(ci) {body} }}>
    }}"""
    model = parse(text, opset)
    lifted, _ = run_pipeline(model, target=target)
    kind = DTYPES[dtype]
    for sizes, size in zip(NOT_RUN, (5, 1, 0), strict=True):
        feed = feed_of(sizes, v=ones(3, dtype=kind), x=ones(size, dtype=kind), w=ones(3, dtype=kind))
        as_before(model, lifted, feed, in_onnxruntime)
        as_before(model, lifted, feed, in_session)
    feed = feed_of({"n": 3, "c": True}, v=ones(3, dtype=kind), x=ones(3, dtype=kind), w=ones(3, dtype=kind))
    as_before(model, lifted, feed, in_session)


def test_joined_terms_that_may_not_fit_stay_with_the_reason():
    text = """
    agraph (int64 n, int32[3] v, int32[N] x, int32[{size}] w) => (int32[K] f) {{
      f = Loop ({trips}, "", v) <body = b (int64 i, bool ci, int32[3] p) => (bool co, int32[3] q) {{
        co = Identity(ci) d = Sub(p, x) q = Add(d, w) }}>
    }}"""
    (finding,) = run_pipeline(parse(text.format(size=3, trips="n"), 13))[1]
    assert "the sum of 'x' int32['N'] and 'w' int32[3] could fail where the loop runs zero times" in finding.reason
    assert loops_left(run_pipeline(parse(text.format(size="N", trips="n")))[0]) == 0
    assert loops_left(run_pipeline(parse(text.format(size="1", trips="n")))[0]) == 0


# What is computed from a row r: float[4], an outer w: float[N], u: float[4] and m: float[N,2].
OVER_TIME = {
    "Add(r, w)": False,
    "Add(r, u)": True,
    "Where(b, r, w)": False,
    "Pow(r, w)": False,
    "Div(w, r)": False,
    "PRelu(r, w)": False,
    "PRelu(r, u)": True,
    "Concat<axis = 0>(r, w)": True,
    "MatMul(r, m)": False,
    "MatMul(r, k)": True,
    "Gemm(rr, m)": False,
    "Gemm(rr, k)": True,
    'Einsum<equation = "a,ab->b">(r, m)': False,
    'Einsum<equation = "a,ab->b">(r, k)': True,
    "Expand(r, s)": True,
    "Tile(r, s)": False,
    "Gather<axis = 0>(r, j)": False,
    "Gather<axis = 0>(r, three)": True,
    "GatherElements<axis = 0>(r, s)": True,
    "Gather<axis = 0>(w, i)": True,
    "ReduceMax(e)": False,
    "ReduceMax(r)": True,
    "ReduceMean(e)": False,
    "ArgMax(e)": False,
    "Softmax(e)": True,
    "Slice(r, s, s)": True,
    "Slice(r, s, s, s)": None,
    "Clip(r, j32, j32)": True,
    "Squeeze(e)": None,
    "Transpose(rr)": True,
    "Pad(r, s2)": None,
    "CumSum(r, zero)": True,
    "Reshape(rr, four)": True,
}


@pytest.mark.parametrize("node", OVER_TIME)
def test_operators_over_time(node):
    text = f"""
    agraph (int64 n, bool c, float[T,4] x, float[T,N] y, float[N] w, float[4] u, float[N,2] m, float[4,2] k, int64[1] s,
            int64[2] s2, int64 j, float j32, bool[4] b) => (z) {{
      z = Loop (n, c) <body = b (int64 i, bool ci) => (bool co, o) {{
        co = Identity(ci)
        zero = Constant<value_int = 0>() three = Constant<value_int = 3>() four = Constant<value_ints = [4]>()
        r = Gather<axis = 0>(x, i) e = Gather<axis = 0>(y, i)
        front = Constant<value_ints = [0]>() rr = Unsqueeze(r, front)
        t = {node} o = Identity(t) }}>
    }}"""
    model = parse(text, 17)
    lifted, (finding,) = run_pipeline(model)
    expected = OVER_TIME[node]
    if expected is not None:
        assert (loops_left(lifted) == 0) == expected, finding.reason
    if expected is False:
        assert "zero times" in finding.reason or finding.reason.startswith("it runs as it was where 4 and 'N' differ")
    for trips, (size, at) in zip(NOT_RUN, ((3, 5), (0, -7), (1, 0)), strict=True):
        feed = feed_of(
            trips,
            x=ones(3, 4),
            y=ones(3, size),
            w=ones(size),
            u=ones(4),
            m=ones(size, 2),
            k=ones(4, 2),
            s=np.array([at]),
            s2=np.array([at, -at]),
            j=np.array(at),
            j32=np.array(at, "f4"),
            b=np.ones(4, bool),
        )
        as_before(model, lifted, feed, in_onnxruntime)
        as_before(model, lifted, feed, in_session)


APPENDED = {
    "a row behind": ("float[M,K] a", "a", "float[N] e", "u = Unsqueeze(e, zero) q = Concat<axis = 0>(p, u)"),
    "a row in front": ("float[M,K] a", "a", "float[N] e", "u = Unsqueeze(e, zero) q = Concat<axis = 0>(u, p)"),
    "columns": ("float[M,K] a", "a", "float[N,2] e", "q = Concat<axis = 1>(p, e)"),
    "a written row": ("float[M,K] a", "a", "float[N] e", "at = Reshape(i, one_one) q = ScatterND(p, at, g)"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("kind", APPENDED)
def test_rows_that_are_appended_or_written(kind, opset, target):
    start, initial, appended, body = APPENDED[kind]
    text = f"""
    agraph (int64 n, bool c, {start}, {appended}, float[1,H] g) => (float[X,Y] f) {{
      f = Loop (n, c, {initial}) <body = b (int64 i, bool ci, p) => (bool co, q) {{
        co = Identity(ci) zero = Constant<value_ints = [0]>() one_one = Constant<value_ints = [1, 1]>() {body} }}>
    }}"""
    model = parse(text, opset)
    lifted, _ = run_pipeline(model, target=target)
    for rows, columns, size in ((2, 3, 5), (0, 3, 5), (2, 0, 5), (2, 3, 0), (0, 0, 1)):
        feed = feed_of(
            NOT_RUN[rows],
            a=ones(rows, columns),
            e=ones(size, 2) if kind == "columns" else ones(size),
            g=ones(1, size),
        )
        as_before(model, lifted, feed, in_onnxruntime)
        as_before(model, lifted, feed, in_session)


SIZES = [0, 1, 2, 3, 5]
SHAPES = ["", "1", "3", "A", "B", "2,3", "A,3", "2,B", "A,B"]


@st.composite
def loose_programs(draw):
    """A Loop over a random body, whose inputs have symbols for extents, and a feed under which it runs no iteration."""
    dtype = draw(st.sampled_from(list(DTYPES)))
    given = {name: draw(st.sampled_from(SHAPES)) for name in ("v", "u", "x", "y")}
    given["rows"] = draw(st.sampled_from(["T", "T,3", "T,A", "T,A,B"]))
    pool, lines = ["p", "o", "x", "y", "r"], ["r = Gather(rows, i)"]
    for k in range(draw(st.integers(2, 6))):
        op = draw(st.sampled_from(["Add", "Add", "Sub", "Mul", "Neg", "Abs", "Max"]))
        operands = [draw(st.sampled_from(pool)) for _ in range(1 if op in ("Neg", "Abs") else 2)]
        lines.append(f"t{k} = {op}({', '.join(operands)})")
        pool.append(f"t{k}")
    stacked = draw(st.booleans())
    declared = ", ".join(f"{dtype}[{dims}] {name}" if dims else f"{dtype} {name}" for name, dims in given.items())
    text = f"""<ir_version: 8, opset_import: ["" : {draw(st.sampled_from([14, 17, 21]))}]>
    agraph (int64 n, bool c, {declared}) => (f, g{", q" if stacked else ""}) {{
      f, g{", q" if stacked else ""} = Loop (n, c, v, u) <body = b (int64 i, bool ci, p, o) => (
          bool co, w, h{", s" if stacked else ""}) {{
        co = Identity(ci)
        {chr(10).join(lines)}
        w = Identity({draw(st.sampled_from(pool))}) h = Identity({draw(st.sampled_from(pool))})
        {f"s = Identity({draw(st.sampled_from(pool))})" if stacked else ""}
      }}>
    }}"""
    sizes: dict[str, int] = {}
    shapes = {
        name: [
            int(d) if d.isdigit() else sizes.setdefault(d, draw(st.sampled_from(SIZES))) for d in dims.split(",") if d
        ]
        for name, dims in given.items()
    }
    arrays = {name: np.ones(shape, DTYPES[dtype]) for name, shape in shapes.items()}
    return text, feed_of(draw(st.sampled_from(NOT_RUN)), **arrays)


def check_loose(program: tuple[str, dict]) -> None:
    text, feed = program
    model = ir.from_onnx_text(text)
    for target in TARGETS:
        lifted, _ = run_pipeline(model, target=target)
        as_before(model, lifted, feed, in_session)
        as_before(model, lifted, feed, in_onnxruntime)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(loose_programs())
def test_random_programs_with_shapes_that_do_not_fit(program):
    check_loose(program)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(loose_programs())
def test_many_random_programs_with_shapes_that_do_not_fit(program):
    check_loose(program)


def test_rows_of_a_state_that_would_have_grown():
    """The rank that the body declares is that of a state after an iteration; none runs, in the inner loop neither."""
    text = """g (int64 n, int64[T,1] series, int64[?] x) => (int64[?,?,?] rows) {
        last, rows = Loop (n, , n) <body = b (int64 i, bool c, int64 p) => (bool d, int64 q, int64[?,?] r) {
            v = Loop (n, , x) <body = h (int64 j, bool e, int64[] s) => (bool f, int64[?,?] t) {
                t = Add (s, series) f = Identity (e) }>
            d = Identity (c) q = Identity (p) r = Identity (v)
        }>
    }"""
    before = parse(text)
    after, findings = run_pipeline(before)
    assert any(finding.lifted for finding in findings)
    for n in (-3, 0, 1):
        feeds = {"n": np.array(n), "series": np.ones((4, 1), np.int64), "x": np.array([3, 0])}
        want, *others = (
            Session(model, "numpy", definitions=definitions).run(None, feeds)[0]
            for model, definitions in ((before, False), (after, False), (after, True))
        )
        assert all(other.shape == want.shape and (other == want).all() for other in others)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("target", TARGETS)
def test_extents_of_rows_over_a_loop_that_became_operators_are_inferred(target, opset):
    """What an inner loop gave had as many rows as it ran: an extent from which shape inference has to go on.

    Before opset 13 onnx's inference follows no numbers through Gather and Concat.
    """
    before = parse(
        """g (float[T,A] series, float[R] x, int64 n) => (float[P,Q,T,A] s) {
          s = Loop(n, "")<body = b (int64 i, bool c) => (bool t, float[Q,T,A] e) {
            t = Identity(c) f = Cast<to = 1>(i) p = Mul(x, f)
            r = Scan<num_scan_inputs = 1, body = d (float z) => (float[T,A] y) { y = Identity(series) }>(p)
            e = Sin(r) }> }""",
        opset,
    )
    after, _ = run_pipeline(before, target=target)
    assert "Scan" not in count(after)
    feeds = {"series": np.ones((4, 2), np.float32), "x": np.ones(3, np.float32), "n": np.array(0)}
    assert [Session(m).run(None, feeds)[0].shape for m in (before, after)] == [(0, 3, 4, 2)] * 2

"""Inputs that are made up: consistent shapes, the trip counts that matter, floats that hurt."""

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import looplift
from looplift.runtime.errors import LoopliftError
from looplift.verification import feeds as feeds_file
from looplift.verification.cases.made_up import Cases, generate
from looplift.verification.cases.plans import COUNTS
from looplift.verification.cases.thresholds import candidates, thresholds
from looplift.verification.cases.trips import trip_inputs


def model(text: str) -> ir.Model:
    return ir.from_onnx_text('<ir_version: 10, opset_import: ["" : 21]> ' + text)


def cases(text: str, number: int = 60, seed: int = 0) -> list[dict]:
    return [case.feeds for case in itertools.islice(generate(model(text), seed=seed), number)]


LOOP = """g (%s) => (float[2] y) { %s y = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w) {
  co = Identity(c) w = Add(v, v) }> (%s, x) }"""

WHILE = """g (int64 n, float[2] x, float[2] s) => (float[2] y) { zero = Constant <value_int = 0> ()
  go = Less(zero, n)
  k, y = Loop <body = b (int64 i, bool c, int64 k, float[2] v) => (bool co, int64 kk, float[2] w) {
    one = Constant <value_int = 1> () kk = Add(k, one) co = Less(kk, n) w = Add(v, s) }> (, go, zero, x) }"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (LOOP % ("int64 n, float[2] x", "", "n, "), {"n"}),
        (LOOP % ("int64[3] v, float[2] x", "k = Constant <value_int = 1> () n = Gather(v, k)", "n, "), {"v"}),
        (LOOP % ("int32[1] a, float[2] x", "b = Cast <to = 7> (a) n = Squeeze(b)", "n, "), {"a"}),
        (LOOP % ("float a, float d, float[2] x", "q = Div(a, d) n = Cast <to = 7> (q)", "n, "), {"a", "d"}),
        (LOOP % ("int64 n, bool go, float[2] x", "", "n, go"), {"n", "go"}),
        (LOOP % ("float[N] a, float[2] x", "n = Shape(a)", "n, "), set()),
        (WHILE, {"n"}),
        ("g (float[2] x) => (float[2] y) { y = Neg(x) }", set()),
    ],
)
def test_finds_the_inputs_that_decide_trip_counts(text: str, names: set[str]) -> None:
    assert trip_inputs(model(text)) == names


def test_condition_fed_by_carries_of_outer_loops() -> None:
    text = """g (int64 n, int64 m, float[2] x) => (float[2] y) {
      y = Loop <body = outer (int64 i, bool c, float[2] v) => (bool co, float[2] w) {
        co = Identity(c)
        w = Loop <body = inner (int64 j, bool d, float[2] u) => (bool do, float[2] t) {
          do = Identity(d) t = Add(u, u) }> (i, , v)
      }> (n, , x) }"""
    assert trip_inputs(model(text)) == {"n"}


FUNCTION = """g (int64 n, float[2] x, float s) => (float[2] y) { y = own.f(n, x, s) }
<domain: "own", opset_import: ["" : 21]> f (n, x, s) => (y) { k = own.copy(n) z = own.copy(x)
  y = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w) { co = Identity(c) w = Add(v, s) }> (k, , z) }
<domain: "own", opset_import: ["" : 21]> copy (a) => (b) { b = Identity(a) }"""


def with_functions(text: str) -> ir.Model:
    return ir.from_onnx_text('<ir_version: 10, opset_import: ["" : 21, "own" : 1]> ' + text)


def test_trip_counts_are_followed_through_functions() -> None:
    assert trip_inputs(with_functions(FUNCTION)) == {"n"}


def test_only_the_trip_count_of_a_lifted_model_counts() -> None:
    lifted = looplift.optimize(ir.to_proto(model(ADD_LOOP)))
    assert [node.op_type for node in lifted.graph.node] == ["AddStep"]
    assert trip_inputs(ir.from_proto(lifted)) == {"n"}


ADD_LOOP = """g (int64 n, float[2] x, float[2] s) => (float[2] y, float[N, 2] ys) {
  y, ys = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
    co = Identity(c) w = Add(v, s) e = Identity(w) }> (n, , x) }"""


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["x", "s"])
def test_special_floats_reach_every_input_behind_a_function(name: str, seed: int) -> None:
    subject = with_functions(FUNCTION)
    values = np.concatenate(
        [case.feeds[name].reshape(-1) for case in itertools.islice(generate(subject, seed=seed), 48)]
    )
    assert hurts(values)


def hurts(values: np.ndarray) -> bool:
    small = (np.abs(values) < np.finfo(np.float32).tiny) & (values != 0)
    zeros = values[values == 0]
    return all([np.isnan(values).any(), np.isposinf(values).any(), np.isneginf(values).any()]) and bool(
        np.signbit(zeros).any() and small.any()
    )


FLOAT_WHILE = """g (float end, float[2] x) => (float[2] y) { zero = Constant <value_float = 0.0> () go = Less(zero, end)
  t, y = Loop <body = b (int64 i, bool c, float k, float[2] v) => (bool co, float kk, float[2] w) {
    one = Constant <value_float = 1.0> () kk = Add(k, one) co = Less(kk, end) w = Add(v, x) }> (, go, zero, x) }"""


def test_floats_that_decide_trip_counts_are_special_in_cases_of_their_own() -> None:
    assert trip_inputs(model(FLOAT_WHILE)) == {"end"}
    feeds = cases(FLOAT_WHILE, 48)
    special = [each for each in feeds if not np.isfinite(each["end"])]
    assert any(np.isnan(each["end"]) for each in special)
    assert len(special) < len(feeds) / 4
    without = itertools.islice(Cases([model(FLOAT_WHILE)], endless=False), 48)
    assert all(np.isfinite(case.feeds["end"]) for case in without)


def test_every_trip_count_and_mixtures() -> None:
    feeds = cases(LOOP % ("int64 n, bool go, float[2] x", "", "n, go"))
    assert {int(each["n"]) for each in feeds} > set(COUNTS) | {3}
    assert {-1, 0, 1, 2, 17} < set(COUNTS)
    assert max(COUNTS) > 100
    assert {bool(each["go"]) for each in feeds} == {True, False}


def test_symbolic_dims_agree_and_vary() -> None:
    feeds = cases("g (float[N, 3] a, float[N, K] b, float[?] c) => (float[N] y) { y = Neg(a) }")
    assert all(each["a"].shape[0] == each["b"].shape[0] for each in feeds)
    assert all(each["a"].shape[1] == 3 for each in feeds)
    assert {0, 1, 2, 17} <= {each["a"].shape[0] for each in feeds}
    assert any(each["b"].shape[0] != each["b"].shape[1] for each in feeds)


def test_floats_that_hurt() -> None:
    values = np.concatenate([each["x"] for each in cases("g (float[64] x) => (float[64] y) { y = Neg(x) }")])
    zero = values == 0
    tiny = np.finfo(np.float32).tiny
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    assert (zero & np.signbit(values)).any()
    assert ((np.abs(values) < tiny) & ~zero).any()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64", "uint64", "int4", "uint4"])
def test_integers_reach_both_ends(kind: str) -> None:
    dtype = ir.DataType[kind.upper()]
    values = np.concatenate([each["x"] for each in cases(f"g ({kind}[16] x) => ({kind}[16] y) {{ y = Neg(x) }}")])
    assert values.dtype == dtype.numpy()
    assert {int(dtype.min), int(dtype.max)} <= {int(value) for value in values}


@pytest.mark.parametrize("kind", ["bool", "string", "float16", "bfloat16", "double", "complex64", "float8e4m3fn"])
def test_makes_other_types(kind: str) -> None:
    text = (
        f"g ({kind}[16] x, {kind} z, seq({kind}[2]) s, optional({kind}[2]) o) => ({kind}[16] y) {{ y = Identity(x) }}"
    )
    feeds = cases(text, 40)
    dtype = np.dtype(ir.DataType[kind.upper()].numpy())
    assert all(each["x"].dtype == dtype and each["x"].shape == (16,) for each in feeds)
    assert all(isinstance(each["z"], np.ndarray) and each["z"].shape == () for each in feeds)
    assert {0, 2} <= {len(each["s"]) for each in feeds}
    assert {each["o"] is None for each in feeds} == {True, False}


def test_defaults_of_inputs_are_left_and_overridden() -> None:
    text = "g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add(x, w) }"
    feeds = cases(text)
    assert {"w" in each for each in feeds} == {True, False}


def test_the_same_seed_makes_the_same_inputs() -> None:
    text = "g (float[N] x, int64 n) => (float[N] y) { y = Neg(x) }"
    first, again, other = cases(text), cases(text), cases(text, seed=1)
    assert all(a["x"].tobytes() == b["x"].tobytes() for a, b in zip(first, again, strict=True))
    assert any(a["x"].tobytes() != b["x"].tobytes() for a, b in zip(first, other, strict=True))


def test_unknown_dims_do_not_blow_up_and_fixed_ones_are_refused() -> None:
    feeds = cases("g (float[N, N, N, N, N, N, 8] x) => (float[1] y) { y = Neg(x) }")
    assert max(each["x"].size for each in feeds) <= 1 << 18
    with pytest.raises(LoopliftError, match="too large to make up"):
        cases("g (float[100000, 100000] x) => (float[1] y) { y = Neg(x) }", 1)


COMPARED = """g (float[N] x, float[K] z, int64 n) => (float[N] y) { shape = Shape(x) u = Constant <value = int64[1] {0}> ()
  rows = Squeeze(shape, u) lim = Constant <value_int = 77> () a = Less(rows, lim) top = Constant <value_float = 5.5> ()
  b = Less(z, top) c = Constant <value_int = 33> () d = Equal(n, c) y = Neg(x) }"""


def test_thresholds_go_to_the_inputs_that_are_compared() -> None:
    found = thresholds([model(COMPARED)], frozenset({"n"}))
    assert found.dims["x"][0] == (77,)
    assert found.values["z"][0] == (5.5,)
    assert found.trips[0] == (33,)
    assert not found.dims["z"][0]
    assert not found.values["x"][0]


def test_what_only_one_model_has_comes_first() -> None:
    other = model(COMPARED.replace("77", "78"))
    assert thresholds([model(COMPARED), other], frozenset()).dims["x"][0] == (77, 78)
    assert thresholds([model(COMPARED), other], frozenset()).values["z"][2] == (5.5,)


def test_comparisons_that_are_not_followed_count_as_constants(monkeypatch) -> None:
    """Of a large model; those that only one of the two has are followed first."""
    monkeypatch.setattr("looplift.verification.cases.thresholds._MOST_STEPS", 1)
    found = thresholds([model(COMPARED), model(COMPARED.replace("5.5", "6.5"))], frozenset())
    assert found.values["z"][0] == (5.5, 6.5)
    assert 77 in found.dims["z"][3]


def test_sizes_of_nothing_are_not_preferred() -> None:
    """An original that runs only without rows has not been tested."""
    text = "g (float[N] x) => (float[N] y) { y = Neg(x) }"
    made = Cases([model(text)], runs=lambda feeds: not feeds["x"].size)
    ran = 0
    for case in itertools.islice(made, 48):
        made.learn(case, ran=not case.feeds["x"].size)
        ran += not case.feeds["x"].size
    assert ran < 16


def test_neighbours_of_thresholds() -> None:
    assert candidates([(1000, 2000)])[:7] == [1000, 2000, 1414, 4000, 1001, 2001, 999]
    assert -1000 in candidates([(1000,)])
    assert float(np.nextafter(np.float32(5.5), np.float32(9))) in candidates([(5.5,)], np.dtype(np.float32))


@pytest.mark.parametrize("seed", range(5))
def test_indices_stay_in_range_and_come_from_both_ends(seed: int) -> None:
    text = "g (float[N, 3] x, int64[K] k) => (float[K, 3] y) { y = Gather(x, k) }"
    feeds = cases(text, 48, seed)
    inside = [each for each in feeds if (np.abs(each["k"] + 0.5) < max(len(each["x"]), 1)).all() and len(each["x"])]
    assert len(inside) > 35
    assert any((each["k"] == -len(each["x"])).any() for each in inside)
    assert any((each["k"] == len(each["x"]) - 1).any() for each in inside)


AGREE = """g (float[?, ?] x, float[?] b, float[K] c, float[M] d) => (float[?, ?] y) {
  w = Constant <value = float[6, 2] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> () p = MatMul(x, w) q = Add(p, b) e = Mul(c, d)
  s = ReduceSum(e) y = Add(q, s) }"""


def shapes_agree(feeds: dict) -> bool:
    (_, columns), (b,), (c,), (d,) = (feeds[name].shape for name in "xbcd")
    return columns == 6 and b in (1, 2) and (c == d or 1 in (c, d))


@pytest.mark.parametrize("seed", range(3))
def test_sizes_with_which_the_original_runs_are_learned(seed: int) -> None:
    made = Cases([model(AGREE)], seed=seed, runs=shapes_agree)
    ran = []
    for case in itertools.islice(made, 48):
        made.learn(case, ran=shapes_agree(case.feeds))
        ran += [case.feeds["x"].shape[0]] * shapes_agree(case.feeds)
    assert len(ran) > 30
    assert len(set(ran)) > 5
    assert sum(shapes_agree(feeds) for feeds in cases(AGREE, 48, seed)) < 5


def test_feeds_survive_an_npz_file(tmp_path) -> None:
    text = """g (bfloat16[3] a, string[2] b, seq(float[2]) c, seq(float[2]) d, optional(float[2]) e, float f, int4[3] h)
      => (float[1] y) { y = Neg(f) }"""
    inputs = model(text).graph.inputs
    feeds = next(iter(generate(model(text)))).feeds | {"c": [np.zeros(2, np.float32), np.ones(2, np.float32)], "d": []}
    feeds["e"] = None
    feeds_file.save(tmp_path / "x.npz", feeds)
    loaded = feeds_file.load(tmp_path / "x.npz", inputs)
    assert loaded.keys() == feeds.keys()
    for name, value in feeds.items():
        if isinstance(value, list):
            assert [item.tobytes() for item in loaded[name]] == [item.tobytes() for item in value]
        elif value is not None:
            assert loaded[name].dtype == value.dtype
            assert loaded[name].tolist() == value.tolist()
    assert loaded["e"] is None


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 broken"])
def test_refuses_what_is_not_npz(tmp_path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(LoopliftError, match=r"x.npz is not an .npz file"):
        feeds_file.load(tmp_path / "x.npz", ())


def test_refuses_npy_and_missing_files(tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2))
    with pytest.raises(LoopliftError, match="holds one array"):
        feeds_file.load(tmp_path / "x.npy", ())
    with pytest.raises(LoopliftError, match="can't read"):
        feeds_file.load(tmp_path / "missing.npz", ())

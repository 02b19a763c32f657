"""Counterexamples get as small as they can be."""

import time

import numpy as np
import onnx_ir as ir
import pytest
from planted import pair

from looplift.verification.cases.shrink import shrink
from looplift.verification.check import verify

PORTS = ir.from_onnx_text(
    """<ir_version: 10, opset_import: ["" : 21]>
    g (int64 n, float[N, D] x, float[N] z, seq(float[2]) s, bool[D] m, float a = {2}) => (float y) { y = Identity(a) }"""
).graph.inputs


def feeds() -> dict:
    rng = np.random.default_rng(0)
    return {
        "n": np.array(700),
        "x": rng.normal(size=(50, 9)).astype(np.float32),
        "z": np.full(50, np.nan, np.float32),
        "s": [np.ones(2, np.float32)] * 9,
        "m": np.ones(9, bool),
        "a": np.float32(3.7) * np.ones((), np.float32),
    }


def smallest(differ) -> dict:
    assert differ(feeds())
    return shrink(feeds(), PORTS, frozenset({"n"}), differ, 20.0)


def test_all_that_does_not_matter_goes() -> None:
    small = smallest(lambda _: True)
    assert small["n"] == 0
    assert small["x"].shape == (1, 1)
    assert small["x"] == small["z"] == 0
    assert len(small["s"]) == 1
    assert "a" not in small


def test_what_matters_stays_as_small_as_it_can_be() -> None:
    assert smallest(lambda f: f["n"] > 301)["n"] == 302
    assert smallest(lambda f: len(f["x"]) >= 17)["z"].shape == (17,)
    assert smallest(lambda f: len(f["s"]) >= 5)["s"][4].tolist() == [0, 0]
    assert np.isnan(smallest(lambda f: np.isnan(f["z"]).any())["z"]).tolist() == [True]


def test_a_single_element_is_found_wherever_it_is() -> None:
    there = feeds()
    there["x"][41, 7] = 1500.25
    small = shrink(there, PORTS, frozenset({"n"}), lambda f: ((f["x"] > 1000) & (f["x"] < 2000)).any(), 20.0)
    assert small["x"].tolist() == [[1001]]


def test_dims_of_one_symbol_stay_equal() -> None:
    small = smallest(lambda f: len(f["x"]) == len(f["z"]) > 4)
    assert small["x"].shape == (5, 1)


def test_ends_when_its_time_is_over() -> None:
    def slow(_: dict) -> bool:
        time.sleep(0.05)
        return True

    began = time.monotonic()
    shrink(feeds(), PORTS, frozenset(), slow, 0.2)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("onnxruntime", [False, True])
def test_verify_shows_and_saves_the_small_one(onnxruntime: bool, tmp_path) -> None:
    check = verify(*pair("iteration 301"), onnxruntime=onnxruntime)
    small = check.counterexample
    assert {name: value.tolist() for name, value in small.feeds.items()} == {"n": 302, "x": [0.0], "s": [0.0]}
    assert "made smaller" in str(check)
    assert small.engine == "interpreter with kernels"
    small.save(tmp_path / "c.npz")
    again = verify(*pair("iteration 301"), dict(np.load(tmp_path / "c.npz")), cases=0)
    assert again.counterexample.message == small.message


def test_a_failure_stays_a_failure_and_a_shape_a_shape() -> None:
    from onnx.parser import parse_model

    head = '<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, float[N] z) => (float[K] y) { '
    add = parse_model(head + "y = Add(x, z) }")
    fails = parse_model(head + "t = Constant <value = int64[2] {3, -1}> () a = Add(x, z) b = Reshape(a, t) "
                        "u = Constant <value = int64[1] {-1}> () y = Reshape(b, u) }")  # fmt: skip
    check = verify(add, fails, onnxruntime=False)
    assert check.counterexample.output == ""
    assert check.counterexample.feeds["x"].tolist() in ([0.0], [0.0, 0.0])
    longer = parse_model(head + "a = Add(x, z) y = Concat <axis = 0> (a, x) }")
    check = verify(add, longer, onnxruntime=False)
    assert "shape [1] became [2]" in check.counterexample.message

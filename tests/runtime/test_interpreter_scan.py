"""Scan from opset 9, and with its batch axis in opset 8."""

import numpy as np
import pytest
from sessions import assert_same, f32, i64, run

from looplift.runtime import LoopliftError

PREFIX_SUM = """g (float[N] v, float{x} x) => (float[N] y, float{z} z) {{
    y, z = Scan <num_scan_inputs = 1{attributes}, body = b (float[N] p, float[N] e) => (float[N] q, float[N] r) {{
        q = Add(p, e)
        r = Identity(q)
    }}> (v, x)
}}"""
X = np.arange(6, dtype=np.float32).reshape(3, 2)
SUMS = np.cumsum(X, axis=0)


def prefix_sum(attributes: str = "", x: str = "[T, N]", z: str = "[T, N]") -> str:
    return PREFIX_SUM.format(attributes=attributes, x=x, z=z)


@pytest.mark.parametrize("opset", [9, 11, 16, 19, 21, 23, 24, 25])
def test_prefix_sum(opset):
    assert_same(run(prefix_sum(), opset, v=f32([0, 0]), x=X), [SUMS[-1], SUMS])


@pytest.mark.parametrize(
    ("attributes", "x", "z"),
    [
        (", scan_input_axes = [1]", X.T, SUMS),
        (", scan_input_axes = [-2]", X, SUMS),
        (", scan_input_directions = [1]", X[::-1], SUMS),
        (", scan_output_directions = [1]", X, SUMS[::-1]),
        (", scan_output_axes = [1]", X, SUMS.T),
        (", scan_output_axes = [-1], scan_output_directions = [1]", X, SUMS[::-1].T),
        (", scan_input_axes = [-1], scan_input_directions = [1], scan_output_axes = [-2]", X[::-1].T, SUMS),
    ],
)
def test_axes_and_directions(attributes, x, z):
    got = run(prefix_sum(attributes, "[A, B]", "[C, D]"), v=f32([0, 0]), x=np.ascontiguousarray(x))
    assert_same(got, [SUMS[-1], z])


@pytest.mark.parametrize("attributes", ["", ", scan_output_axes = [1]", ", scan_output_directions = [1]"])
def test_no_elements(attributes):
    y, z = run(prefix_sum(attributes, z="[A, B]"), v=f32([5, 6]), x=np.empty((0, 2), np.float32))
    assert_same(y, f32([5, 6]))
    assert z.shape == ((2, 0) if "axes" in attributes else (0, 2))


def test_no_states_and_two_outputs_that_are_the_input():
    text = """g (float[T, N] x) => (float[T, N] y, float[N, T] z) {
        y, z = Scan <num_scan_inputs = 1, scan_output_axes = [0, 1], body = b (float[N] e) => (float[N] e, float[N] e) {
        }> (x)
    }"""
    assert_same(run(text, x=X), [X, X.T])


def test_strings():
    text = """g (string[T] x, string v) => (string y, string[T] z) {
        y, z = Scan <num_scan_inputs = 1, body = b (string p, string e) => (string e, string q) {
            q = Identity(p)
        }> (v, x)
    }"""
    words = np.array(["a", "b", "c"], dtype=object)
    y, z = run(text, v=np.array("start", dtype=object), x=words)
    assert y.item() == "c"
    assert z.tolist() == ["start", "a", "b"]
    assert z.dtype == object


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        (", scan_input_axes = [2]", "axis 2 is out of range"),
        (", scan_input_axes = [-3]", "axis -3 is out of range"),
        (", scan_output_axes = [2]", "axis 2 is out of range"),
        (", scan_input_axes = [0, 0]", "2 entries"),
        (", scan_input_directions = [2]", "direction"),
        (", scan_output_directions = [-1]", "direction"),
    ],
)
def test_wrong_attributes(attributes, why):
    with pytest.raises(LoopliftError, match=why):
        run(prefix_sum(attributes), v=f32([0, 0]), x=X)


def test_scan_inputs_of_different_lengths():
    text = """g (float[A] x, float[B] y) => (float[C] z) {
        z = Scan <num_scan_inputs = 2, body = b (float e, float f) => (float r) { r = Add(e, f) }> (x, y)
    }"""
    with pytest.raises(LoopliftError, match=r"different lengths: \[3, 2\]"):
        run(text, x=f32([1, 2, 3]), y=f32([1, 2]))


def test_a_state_may_not_change_its_shape():
    with pytest.raises(LoopliftError, match=r"state changes its shape from \[1\] to \[2\]"):
        run(prefix_sum().replace("float[N] v", "float[K] v"), v=f32([0]), x=X)


SCAN_8 = """g (int64[B] lens, float[B, N] v, float[B, T, N] x) => (float[B, N] y, float[B, T, N] z) {{
    y, z = Scan <num_scan_inputs = 1{attributes}, body = b (float[N] p, float[N] e) => (float[N] q, float[N] r) {{
        q = Add(p, e)
        r = Identity(q)
    }}> ({lens}, v, x)
}}"""
BATCH = np.stack([X, 10 * X])
ZEROS = np.zeros((2, 2), np.float32)


def test_scan_8_walks_every_batch_entry():
    got = run(SCAN_8.format(attributes="", lens='""'), 8, lens=i64(3, 3), v=ZEROS, x=BATCH)
    assert_same(got, [np.stack([SUMS[-1], 10 * SUMS[-1]]), np.stack([SUMS, 10 * SUMS])])


def test_scan_8_pads_shorter_sequences_with_zeros_and_reads_them_backward():
    y, z = run(SCAN_8.format(attributes=", directions = [1]", lens="lens"), 8, lens=i64(2, 0), v=ZEROS, x=BATCH)
    rows = np.cumsum(X[1::-1], axis=0)
    assert_same(y, np.stack([rows[-1], ZEROS[0]]))
    assert_same(z, np.stack([np.vstack([rows, ZEROS[:1]]), np.zeros((3, 2), np.float32)]))


@pytest.mark.parametrize("lens", [(4, 1), (-1, 1), (1,)])
def test_scan_8_refuses_lengths_that_do_not_fit(lens):
    text = SCAN_8.format(attributes="", lens="lens").replace("int64[B]", "int64[L]")
    with pytest.raises(LoopliftError, match="sequence_lens"):
        run(text, 8, lens=i64(*lens) if len(lens) > 1 else i64(list(lens)), v=ZEROS, x=BATCH)

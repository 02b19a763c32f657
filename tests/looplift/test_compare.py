"""Bits, not values: what counts as a difference, and how far apart two tensors are."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looplift.verification.compare import Tolerance, compare, ulp_distance

F32 = np.float32


def bits32(pattern: int) -> np.ndarray:
    return np.array([pattern], np.uint32).view(F32)


@pytest.mark.parametrize(
    ("expected", "got", "message"),
    [
        (np.zeros(2, F32), np.zeros(2), "dtype float32 became float64"),
        (np.zeros(2, F32), np.zeros((2, 1), F32), "shape [2] became [2, 1]"),
        (np.array([0.0], F32), np.array([-0.0], F32), "1 of 1 elements differ"),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]), "first at [1, 1]"),
        (np.array([1j]), np.array([complex(-0.0, 1)]), "1 of 1 elements differ"),
        (np.array(["a"], object), np.array(["b"], object), "1 of 1 elements differ"),
        (np.array([True]), np.array([False]), "1 of 1 elements differ"),
        (np.array([1], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16), "1 of 1 elements differ"),
        (np.array([1], ml_dtypes.int4), np.array([2], ml_dtypes.int4), "1 of 1 elements differ"),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], "a sequence of 1 became a sequence of 2"),
        ([np.zeros(1), np.zeros(1)], [np.zeros(1), np.ones(1)], "element 1: "),
        (None, np.zeros(1), "an absent optional became float64[1]"),
        (np.zeros(1), None, "float64[1] became an absent optional"),
        (np.float32(1), np.array([1], F32), "shape [] became [1]"),
    ],
)
def test_differences(expected: object, got: object, message: str) -> None:
    result = compare(expected, got)
    assert not result.equal
    assert message in result.message
    assert compare(expected, expected).equal


def test_any_nan_equals_any_nan() -> None:
    assert compare(bits32(0x7FC00000), bits32(0xFFC00001)).equal
    assert not compare(bits32(0x7FC00000), bits32(0x7F800000)).equal
    nan = np.array([complex(np.nan, 1)])
    assert compare(nan, np.array([complex(-np.nan, 1)])).equal
    assert not compare(nan, np.array([complex(np.nan, 2)])).equal


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_equal_exactly_if_the_bits_are_or_both_are_nan(first: int, second: int) -> None:
    one, other = bits32(first), bits32(second)
    both_nan = bool(np.isnan(one[0]) and np.isnan(other[0]))
    assert compare(one, other).equal == (first == second or both_nan)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_ulp_distance_counts_representable_values(dtype: type) -> None:
    least = np.array([ml_dtypes.finfo(dtype).smallest_subnormal], dtype)
    zero, one = np.array([0], dtype), np.array([1], dtype)
    eps = np.array([ml_dtypes.finfo(dtype).eps], dtype)
    assert ulp_distance(one, one + eps) == 1
    assert ulp_distance(zero, least) == 1
    assert ulp_distance(-zero, zero) == 1
    assert ulp_distance(-least, least) == 3
    assert ulp_distance(np.array([np.nan], dtype), one) == 0


def test_ulp_distance_of_the_ends_of_64_bits() -> None:
    ends = np.iinfo(np.int64)
    assert ulp_distance(np.array([ends.min]), np.array([ends.max])) == 2**64 - 1
    assert ulp_distance(np.array([-np.inf]), np.array([np.inf])) == 2 * 0x7FF0000000000000 + 1


def test_tolerance() -> None:
    one = np.array([1, np.nan], F32)
    near = np.array([1 + 3 * 2**-23, np.nan], F32)
    assert compare(one, near, Tolerance(3)).equal
    assert compare(one, near, Tolerance(3)).ulp == 3
    assert not compare(one, near, Tolerance(2)).equal
    assert not compare(one, np.array([1, 1], F32), Tolerance(10**9)).equal
    assert not compare(one, one[:1], Tolerance(10**9)).equal


def test_shapes_of_empty_tensors_may_be_left_out() -> None:
    loose = Tolerance(shape_of_empty=False)
    assert compare(np.zeros((0, 4)), np.zeros((0, 0)), loose).equal
    assert not compare(np.zeros((0, 4)), np.zeros((0, 0))).equal
    assert not compare(np.zeros((0, 4)), np.zeros((1, 0)), loose).equal
    assert not compare(np.zeros((0, 4)), np.zeros(0), loose).equal


def test_an_unknown_extent_of_an_empty_tensor_may_become_known() -> None:
    reading = Tolerance(zero_is_unknown=True)
    assert compare(np.zeros((0, 0, 3)), np.zeros((0, 2, 3)), reading).equal
    assert not compare(np.zeros((0, 2, 3)), np.zeros((0, 0, 3)), reading).equal
    assert not compare(np.zeros((0, 0, 3)), np.zeros((0, 2, 4)), reading).equal
    assert compare(np.zeros((2, 0, 0)), np.zeros((2, 0, 3)), reading).equal
    assert not compare(np.zeros((2, 0, 0)), np.zeros((2, 1, 0)), reading).equal


def test_an_unknown_rank_of_a_tensor_without_rows_may_become_known() -> None:
    """As far as the original declares none, or this one."""
    for rank, equal in ((None, True), (3, True), (2, False)):
        reading = Tolerance(zero_is_unknown=True, rank=rank)
        assert compare(np.zeros((2, 0)), np.zeros((2, 0, 1)), reading).equal == equal
        assert compare(np.zeros(0), np.zeros((0, 4, 5)), reading).equal == equal
    reading = Tolerance(zero_is_unknown=True)
    assert not compare(np.zeros((0, 1)), np.zeros(0), reading).equal
    assert not compare(np.zeros((0, 3)), np.zeros((0, 3, 1)), reading).equal
    assert not compare(np.zeros(0), np.zeros((1, 0)), reading).equal
    assert not compare(np.zeros(0), np.zeros((0, 4))).equal


def test_what_is_random_is_compared_by_its_type() -> None:
    one, other = np.zeros((2, 3), F32), np.ones((2, 3), F32)
    alike = Tolerance(numbers=False)
    assert compare(one, other, alike).equal
    assert compare([one], [other], alike).equal
    assert not compare(one, other.astype(float), alike).equal
    assert not compare(one, other[:1], alike).equal
    assert not compare([one], [], alike).equal
    loose = Tolerance(numbers=False, shapes=False)
    assert compare(one, other[:1], loose).equal
    assert compare([one], [], loose).equal
    assert not compare(one, other.astype(float), loose).equal
    assert not compare(one, [other], loose).equal

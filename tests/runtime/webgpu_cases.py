"""Inputs for the WebGPU kernels, and what adding in order makes of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype("float32"), np.dtype("float16"), BFLOAT16, np.dtype("float64")]
INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def random_bits(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Any bit pattern: NaN, infinities and subnormals come with it."""
    size = int(np.prod(shape)) * dtype.itemsize
    return random.integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


def similar(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Numbers of both signs within a few binades of one."""
    if dtype.kind in "iu":
        return random_bits(random, dtype, shape)
    return (random.standard_normal(shape) * np.exp(random.standard_normal(shape))).astype(dtype)


def tiny(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Numbers around the smallest normal one, most of them subnormal."""
    if dtype.kind in "iu":
        return random_bits(random, dtype, shape)
    return (random.standard_normal(shape) * float(ml_dtypes.finfo(dtype).tiny)).astype(dtype)


def halves(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """States at binade edges and steps of half a unit in the last place: every addition is a tie, or nearly."""
    precision = ml_dtypes.finfo(dtype).nmant + 1
    edge = np.exp2(precision + random.integers(0, 3, shape)) + random.integers(-3, 4, shape)
    step = random.choice(np.array([0.5, 1, 1.5, 2, 2.5, 3]), shape)
    signs = random.choice(np.array([-1.0, 1.0]), (2, *shape))
    return (edge * signs[0]).astype(dtype), (step * signs[1]).astype(dtype)


def add_in_order(count: int, initial: Array, step: Array, emit_previous: bool = False) -> tuple[Array, Array]:
    """The last state and the stacked states of ``count`` additions, one after the other."""
    rows = np.empty((count, *initial.shape), initial.dtype)
    state = initial.copy()
    with np.errstate(all="ignore"):
        for row in range(count):
            updated = state + step
            rows[row] = state if emit_previous else updated
            state = updated
    return state, rows


def same_bits(a: Array, b: Array) -> bool:
    """Equal dtype, shape and bits; any NaN equals any NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    same = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}") if a.size else np.array(True)
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of NaN
        return bool(np.all(same | ((a != a) & (b != b))))

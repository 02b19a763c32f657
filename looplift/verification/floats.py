"""Floats that hurt: special ones, halfway cases, random bits, all magnitudes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from looplift.verification.compare import Array


def floats(shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, rng: np.random.Generator) -> Array:
    """Floats of a kind: ``bits``, ``special``, ``ties``, ``log`` (all magnitudes), ``plain``, or small ones."""
    with np.errstate(all="ignore"):
        if kind == "bits":
            return _random_bits(shape, dtype, rng)
        if kind == "special":
            return np.asarray(rng.choice(special_floats(dtype), size=shape))
        if kind == "ties":
            return np.asarray(rng.choice(tie_floats(dtype), size=shape))
        if kind == "log":
            magnitudes = 2 ** rng.uniform(-20, 24, shape) * rng.choice((-1.0, 1.0), shape)
            return np.asarray(np.asarray(magnitudes).astype(dtype))
        spread = 3.0 if kind == "plain" else 0.1
        return np.asarray(np.asarray(rng.normal(0.0, spread, shape)).astype(dtype))


def telling_floats(dtype: np.dtype[Any], turn: int = 0) -> list[float]:
    """Special floats, those first that a scalar has to get in the few cases that there are; begun at one of these."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    least = float(info.smallest_subnormal)
    first = [math.nan, -math.inf, -0.0, least, math.inf, float(info.max)]
    turn %= len(first)
    return [*first[turn:], *first[:turn], -least, 0.0, float(info.min), 1.0, -1.0]


def special_floats(dtype: np.dtype[Any]) -> Array:
    """Zeros, ones, subnormals, the ends of the range, infinities and NaN, as far as the dtype has them."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    least, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    wide = [0.0, -0.0, 1.0, -1.0, 0.1, least, -least, 3 * least, normal, -normal, np.inf, -np.inf, np.nan]
    ends = np.array([info.max, info.min], dtype)
    return np.concatenate([np.array(wide, np.float64).astype(dtype), ends])


def tie_floats(dtype: np.dtype[Any]) -> Array:
    """Numbers whose sums lie halfway between two representable ones, or just beside."""
    eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    numbers = [1.0, 1.0 + eps, 1.0 + 2 * eps, eps / 2, -eps / 2, eps / 4, 1.5 * eps, 2.0 - eps, 1.0 / eps, -1.0 - eps]
    return np.array(numbers, np.float64).astype(dtype)


def _random_bits(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    raw = np.frombuffer(rng.bytes(math.prod(shape) * dtype.itemsize), np.uint8).copy()
    return np.asarray(raw.view(dtype).reshape(shape))

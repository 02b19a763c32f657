"""The element types of the custom ops: every type that ONNX ``Add`` takes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

PRECISION: dict[np.dtype[np.generic], int] = {
    np.dtype(ml_dtypes.bfloat16): 8,
    np.dtype(np.float16): 11,
    np.dtype(np.float32): 24,
    np.dtype(np.float64): 53,
}
"""Significand bits of each floating-point type, the hidden bit included (IEEE 754-2019, table 3.5)."""

INTEGERS = frozenset(np.dtype(f"{sign}int{width}") for sign in ("", "u") for width in (8, 16, 32, 64))

NUMBERS = frozenset(PRECISION) | INTEGERS

ONNX_NUMBERS = [
    "tensor(bfloat16)",
    "tensor(float16)",
    "tensor(float)",
    "tensor(double)",
    *sorted(f"tensor({dtype})" for dtype in INTEGERS),
]
"""``NUMBERS`` as an operator schema writes them."""

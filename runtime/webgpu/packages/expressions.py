"""The expressions and templates of kernel packages: Jinja in a sandbox, with the names that a manifest may use."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.webgpu.packages.sandbox import Expression, Sandbox, bounded_range, greatest, least, product


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient rounded up."""
    return -(-dividend // divisor)


def bit_width(dtype: str) -> int:
    """Bits of one element of an ONNX dtype as a buffer holds it: bool takes a word."""
    widths = {"bool": 32, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}
    return widths[dtype] if dtype in widths else int(dtype.removeprefix("u").removeprefix("int"))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an ONNX dtype's name."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


SHARED = Path(__file__).parents[1] / "templates"
"""Templates that several packages include; a file of the same name in a package stands before them."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ceilDiv": ceil_div,
    "bitWidth": bit_width,
    "gcd": math.gcd,
    "max": greatest,
    "min": least,
    "numel": product,
    "range": bounded_range,
}


def make_environment(folder: Path) -> Sandbox:
    """What renders the templates of one folder and those in `SHARED`; names that are not defined are errors."""
    return Sandbox(folder, SHARED, FUNCTIONS)


@functools.lru_cache(maxsize=1024)
def _compiled(source: str) -> Expression:
    return Expression(make_environment(Path()), source)


def evaluate(expression: str | int | bool, scope: Mapping[str, Any]) -> Any:
    """The value of a manifest expression; numbers and booleans stand for themselves.

    Raises:
        LoopliftError: the expression does not parse, names something that is not in scope, or asks for more than
            `sandbox` allows.
    """
    if not isinstance(expression, str):
        return expression
    return _compiled(expression)(scope)


def evaluate_int(expression: str | int, scope: Mapping[str, Any]) -> int:
    """The value of an expression that must be a whole number."""
    value = evaluate(expression, scope)
    if isinstance(value, bool) or not isinstance(value, int):
        raise LoopliftError(f"kernel package: expression {expression!r} is {value!r}, not a whole number")
    return value


def evaluate_size(expression: str | int, scope: Mapping[str, Any], largest: int) -> int:
    """The value of an expression that must be a whole number from 0 to `largest`."""
    value = evaluate_int(expression, scope)
    if not 0 <= value <= largest:
        raise LoopliftError(f"kernel package: expression {expression!r} is {value}, not from 0 to {largest:,}")
    return value


def evaluate_shape(expression: str, scope: Mapping[str, Any]) -> tuple[int, ...]:
    """The value of an expression that must be a shape."""
    value = evaluate(expression, scope)
    if not isinstance(value, Sequence) or not all(isinstance(dim, int) and dim >= 0 for dim in value):
        raise LoopliftError(f"kernel package: expression {expression!r} is {value!r}, not a shape")
    return tuple(value)

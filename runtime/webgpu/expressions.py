"""The expressions and templates of kernel packages: Jinja, with the names that a manifest may use."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import ml_dtypes
import numpy as np

from looplift.runtime.errors import LoopliftError


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


FUNCTIONS: Mapping[str, Any] = {
    "ceilDiv": ceil_div,
    "bitWidth": bit_width,
    "gcd": math.gcd,
    "max": max,
    "min": min,
    "numel": math.prod,
    "range": range,
}


def make_environment(folder: Path) -> jinja2.Environment:
    """A Jinja environment that reads templates from one folder and refuses names that are not defined."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.clear()
    environment.globals.update(FUNCTIONS)
    return environment


@functools.lru_cache(maxsize=1024)
def _compiled(source: str) -> Any:
    return make_environment(Path()).compile_expression(source, undefined_to_none=False)


def evaluate(expression: str | int | bool, scope: Mapping[str, Any]) -> Any:
    """The value of a manifest expression; numbers and booleans stand for themselves.

    Raises:
        LoopliftError: the expression does not parse, or names something that is not in scope.
    """
    if not isinstance(expression, str):
        return expression
    try:
        value = _compiled(expression)(scope)
        if isinstance(value, jinja2.Undefined):
            value._fail_with_undefined_error()
    except (jinja2.TemplateError, TypeError, KeyError, ZeroDivisionError) as error:
        raise LoopliftError(f"kernel package: expression {expression!r} has no value: {error}") from error
    return value


def evaluate_int(expression: str | int, scope: Mapping[str, Any]) -> int:
    """The value of an expression that must be a whole number."""
    value = evaluate(expression, scope)
    if isinstance(value, bool) or not isinstance(value, int):
        raise LoopliftError(f"kernel package: expression {expression!r} is {value!r}, not a whole number")
    return value


def evaluate_shape(expression: str, scope: Mapping[str, Any]) -> tuple[int, ...]:
    """The value of an expression that must be a shape."""
    value = evaluate(expression, scope)
    if not isinstance(value, Sequence) or not all(isinstance(dim, int) for dim in value):
        raise LoopliftError(f"kernel package: expression {expression!r} is {value!r}, not a shape")
    return tuple(value)

"""Ops that are one numpy expression, with exactly ONNX's result type and values.

A form may give a numpy scalar where the result has rank 0; whoever needs an array converts it. An op is left to
onnx's reference implementation (None) wherever types, opset or attributes are not the plain case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from looplift.runtime.interpreter import tensors, types
from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.values import Array

Form = Callable[["Call", Sequence["str | None"]], "str | None"]

_NUMBERS = types.FLOATS | types.INTEGERS
_NATIVE = types.NATIVE_FLOATS | types.INTEGERS
_FULL_FLOATS = frozenset({"tensor(float)", "tensor(double)"})


def form(call: Call, kinds: Sequence[str | None]) -> str | None:
    """The expression of a node, or None if it has no plain one."""
    make = _FORMS.get(call.node.op_type)
    return make(call, kinds) if make is not None and len(call.node.outputs) == 1 else None


def _kind(call: Call) -> str | None:
    """The one type of all inputs; None if they differ or an input is absent."""
    kinds = {slot.type for slot in call.inputs}
    return kinds.pop() if len(kinds) == 1 else None


def _infix(symbol: str, accepted: frozenset[str]) -> Form:
    def make(call: Call, kinds: Sequence[str | None]) -> str | None:
        if _kind(call) not in accepted or len(call.inputs) != 2:
            return None
        a, b = call.arguments()
        if "axis" in call.attributes:
            call.program.source.use(aligned)
            b = f"aligned({b}, {a}, {int(call.attributes['axis'].value)})"
        return f"{a} {symbol} {b}"

    return make


def _prefix(text: str, accepted: frozenset[str]) -> Form:
    def make(call: Call, kinds: Sequence[str | None]) -> str | None:
        return f"{text}({call.arguments()[0]})" if _kind(call) in accepted and not call.attributes else None

    return make


def aligned(b: Array, a: Array, axis: int) -> Array:
    """The second operand with its first axis at `axis` of the first operand, as broadcasting was before opset 7.

    Raises:
        ValueError: it has more axes than are left there.
    """
    shaped: Array = b.reshape(b.shape + (1,) * (a.ndim - axis % a.ndim - b.ndim))
    return shaped


def truncated_quotient(a: Array, b: Array) -> Array:
    """Integer division rounded toward zero, as ONNX says; a zero divisor gives 0, as numpy does."""
    quotient = np.floor_divide(a, b)
    inexact = np.not_equal(quotient * b, a) & np.not_equal(b, 0)
    result: Array = quotient + (inexact & (np.less(a, 0) != np.less(b, 0)))
    return result.astype(np.result_type(a), copy=False)


def _div(call: Call, kinds: Sequence[str | None]) -> str | None:
    if _kind(call) in types.FLOATS:
        return _infix("/", types.FLOATS)(call, kinds)
    if _kind(call) in types.INTEGERS and len(call.inputs) == 2 and "axis" not in call.attributes:
        call.program.source.use(truncated_quotient)
        return f"truncated_quotient({', '.join(call.arguments())})"
    return None


def _variadic(function: str) -> Form:
    def make(call: Call, kinds: Sequence[str | None]) -> str | None:
        if _kind(call) not in _NATIVE:
            return None
        arguments = call.arguments()
        if len(arguments) != 2:
            call.program.source.use(functools.reduce)
            return f"reduce({function}, ({', '.join(arguments)},))"
        return f"{function}({', '.join(arguments)})"

    return make


def _where(call: Call, kinds: Sequence[str | None]) -> str | None:
    same = call.inputs[1].type == call.inputs[2].type and call.inputs[1].type in _NUMBERS | {types.BOOL}
    return f"np.where({', '.join(call.arguments())})" if same else None


def _matmul(call: Call, kinds: Sequence[str | None]) -> str | None:
    return f"np.matmul({', '.join(call.arguments())})" if _kind(call) in _FULL_FLOATS else None


_CASTS = _NATIVE | {types.BOOL}


def _cast_text(argument: str, source: str | None, target: str | None) -> str | None:
    dtype = types.dtype_of(target)
    if source == target and source in _CASTS:
        return argument
    widens = source == "tensor(bfloat16)" and target == "tensor(float)"
    if dtype is None or not (widens or (source in _CASTS and target in _CASTS)):
        return None
    return f"{argument}.astype(np.{'bool_' if target == types.BOOL else dtype.name})"


def _cast(call: Call, kinds: Sequence[str | None]) -> str | None:
    return _cast_text(call.arguments()[0], call.inputs[0].type, kinds[0])


def _axes(call: Call) -> list[int] | None:
    """Axes by attribute (before opset 13) or constant input."""
    if "axes" in call.attributes:
        return [int(a) for a in call.attributes["axes"].value]
    return _integers(call, 1)


def _integers(call: Call, position: int) -> list[int] | None:
    """The elements of a constant integer input."""
    if position >= len(call.inputs):
        return None
    constant = call.inputs[position].constant
    return None if constant is None else [int(n) for n in constant.ravel()]


def _unsqueeze(call: Call, kinds: Sequence[str | None]) -> str | None:
    axes = _axes(call)
    argument = call.arguments()[0]
    if axes == [-1]:
        return f"{argument}[..., None]"
    if not axes or min(axes) < 0 or len(set(axes)) != len(axes) or kinds[0] is None:
        return None
    index = ", ".join("None" if n in axes else ":" for n in range(max(axes) + 1))
    return f"{argument}[{index}, ...]"


def _squeeze(call: Call, kinds: Sequence[str | None]) -> str | None:
    axes = _axes(call)
    return f"{call.arguments()[0]}.squeeze({tuple(axes)})" if axes else None


def _gather(call: Call, kinds: Sequence[str | None]) -> str | None:
    axis = int(call.attributes["axis"].value) if "axis" in call.attributes else 0
    if axis < 0:
        return None
    data, index = call.arguments()
    return f"{data}[{':, ' * axis}{index}, ...]"


def _slice(call: Call, kinds: Sequence[str | None]) -> str | None:
    if "starts" in call.attributes:
        given = [tuple(call.attributes[n].value) for n in ("starts", "ends", "axes") if n in call.attributes]
        bounds: list[Sequence[int] | None] = [*given]
        arguments = [call.arguments()[0], *map(str, given)]
    else:
        bounds = [_integers(call, n) for n in range(1, len(call.inputs))]
        arguments = call.arguments()
    absent = {n for n, slot in enumerate(call.inputs[1:]) if slot.absent}
    if all(b is not None or n in absent for n, b in enumerate(bounds)):
        index = _slice_index(*bounds)
        if index is not None:
            return f"{call.arguments()[0]}[{index}, ...]"
    call.program.source.use(tensors.slice_tensor)
    return f"slice_tensor({', '.join(arguments)})"


def _slice_index(
    starts: Sequence[int] | None,
    ends: Sequence[int] | None,
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> str | None:
    """Constant bounds as numpy writes them; None where numpy's clamping differs, or an axis counts from the end."""
    if starts is None or ends is None:
        return None
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    backward = any(step < 0 and start < 0 for start, step in zip(starts, steps, strict=False))
    if not axes or min(axes) < 0 or len({len(starts), len(ends), len(axes), len(set(axes)), len(steps)}) != 1:
        return None
    if backward or 0 in steps:
        return None
    bounds = {a: f"{start}:{end}:{step}" for a, start, end, step in zip(axes, starts, ends, steps, strict=True)}
    return ", ".join(bounds.get(n, ":") for n in range(max(bounds) + 1))


def _reshape(call: Call, kinds: Sequence[str | None]) -> str | None:
    shape = _integers(call, 1)
    return f"{call.arguments()[0]}.reshape({tuple(shape)})" if shape is not None and 0 not in shape else None


def _transpose(call: Call, kinds: Sequence[str | None]) -> str | None:
    order = tuple(call.attributes["perm"].value) if "perm" in call.attributes else ()
    return f"{call.arguments()[0]}.transpose({order or ''})"


def _concat(call: Call, kinds: Sequence[str | None]) -> str | None:
    if "axis" not in call.attributes or _kind(call) is None:
        return None
    return f"np.concatenate(({', '.join(call.arguments())},), {call.attributes['axis'].value})"


def _shape(call: Call, kinds: Sequence[str | None]) -> str | None:
    start = call.attributes["start"].value if "start" in call.attributes else None
    end = call.attributes["end"].value if "end" in call.attributes else None
    bounds = "" if start is None and end is None else f"[{'' if start is None else start}:{'' if end is None else end}]"
    return f"np.array({call.arguments()[0]}.shape{bounds}, dtype=np.int64)"


def _reduce_sum(call: Call, kinds: Sequence[str | None]) -> str | None:
    axes = _axes(call)
    kind = call.inputs[0].type
    if not axes or kind not in _NATIVE:
        return None
    keep = bool(call.attributes["keepdims"].value) if "keepdims" in call.attributes else True
    return f"{call.arguments()[0]}.sum(axis={tuple(axes)}, keepdims={keep}, dtype=np.{types.dtype_of(kind)})"


def _sum(call: Call, kinds: Sequence[str | None]) -> str | None:
    return " + ".join(call.arguments()) if _kind(call) in types.FLOATS else None


_LOGICAL = frozenset({types.BOOL})

_FORMS: Mapping[str, Form] = {
    "Add": _infix("+", _NUMBERS),
    "Sub": _infix("-", _NUMBERS),
    "Mul": _infix("*", _NUMBERS),
    "Div": _div,
    "Less": _infix("<", _NUMBERS),
    "LessOrEqual": _infix("<=", _NUMBERS),
    "Greater": _infix(">", _NUMBERS),
    "GreaterOrEqual": _infix(">=", _NUMBERS),
    "Equal": _infix("==", _NUMBERS | _LOGICAL),
    "And": _infix("&", _LOGICAL),
    "Or": _infix("|", _LOGICAL),
    "Xor": _infix("^", _LOGICAL),
    "BitwiseAnd": _infix("&", types.INTEGERS),
    "BitwiseOr": _infix("|", types.INTEGERS),
    "BitwiseXor": _infix("^", types.INTEGERS),
    "Not": _prefix("~", _LOGICAL),
    "Neg": _prefix("-", _NUMBERS),
    "Abs": _prefix("np.abs", _NATIVE),
    "Exp": _prefix("np.exp", _FULL_FLOATS),
    "Log": _prefix("np.log", _FULL_FLOATS),
    "Sqrt": _prefix("np.sqrt", types.NATIVE_FLOATS),
    "Tanh": _prefix("np.tanh", _FULL_FLOATS),
    "Sin": _prefix("np.sin", _FULL_FLOATS),
    "Cos": _prefix("np.cos", _FULL_FLOATS),
    "Floor": _prefix("np.floor", types.NATIVE_FLOATS),
    "Ceil": _prefix("np.ceil", types.NATIVE_FLOATS),
    "Max": _variadic("np.maximum"),
    "Min": _variadic("np.minimum"),
    "Sum": _sum,
    "Where": _where,
    "MatMul": _matmul,
    "Cast": _cast,
    "CastLike": _cast,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "Slice": _slice,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Concat": _concat,
    "Shape": _shape,
    "ReduceSum": _reduce_sum,
}

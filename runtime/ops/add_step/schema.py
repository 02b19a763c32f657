"""The schema of AddStep, with type and shape inference."""

from __future__ import annotations

from onnx.defs import OpSchema
from onnx.shape_inference import InferenceContext

from looplift.runtime.ops.schemas import (
    OPTIONAL,
    OUTPUTS,
    STACKED,
    Dim,
    Shape,
    broadcast,
    flag,
    input_shape,
    input_value,
    register,
    set_output,
)

DOC = """
Repeats `v = v + step` M times, starting from `v_initial`; every addition rounds, so this is not `v_initial + M * step`.
It is the ONNX Loop whose body adds an invariant step to its only carried value. A false `cond` runs no iteration.
The state takes the shape that v_initial and step broadcast to in the first iteration.
"""


def _infer(context: InferenceContext) -> None:
    initial, step = input_shape(context, 2), input_shape(context, 3)
    updated = broadcast(initial, step)
    count = _count(context)
    # Of no iterations no more is said than ONNX says of the Loop: the shape that a body with this node declares counts.
    set_output(context, 0, 2, updated if count else _same(initial, updated))
    row = initial if flag(context, "emit_previous") else updated
    set_output(context, 1, 2, None if row is None else (count, *row))


def _count(context: InferenceContext) -> Dim:
    """The trip count where it is constant."""
    limit, condition = input_value(context, 0), input_value(context, 1)
    if condition is not None and not condition.all():
        return 0
    if limit is None or (condition is None and context.has_input(1)):
        return 0 if limit is not None and (limit <= 0).all() else None
    return max(int(limit.item()), 0)


def _same(left: Shape, right: Shape) -> Shape:
    """What is true of both shapes."""
    if left is None or right is None or len(left) != len(right):
        return None
    return tuple(a if a == b else None for a, b in zip(left, right, strict=True))


_Parameter = OpSchema.FormalParameter

SCHEMA = register(
    "AddStep",
    DOC,
    inputs=[
        _Parameter("M", "tensor(int64)", "Number of iterations, one element; M <= 0 runs none."),
        _Parameter(
            "cond", "tensor(bool)", "A scalar; false runs no iteration, absent means true.", param_option=OPTIONAL
        ),
        _Parameter("v_initial", "T", "The state before the first iteration, of any shape."),
        _Parameter("step", "T", "What every iteration adds; it broadcasts with the state."),
    ],
    outputs=OUTPUTS,
    flags=[STACKED],
    infer=_infer,
)

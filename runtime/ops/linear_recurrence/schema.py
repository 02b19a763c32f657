"""The schema of LinearRecurrence, with type and shape inference."""

from __future__ import annotations

from onnx.defs import OpSchema
from onnx.shape_inference import InferenceContext

from looplift.runtime.ops.schemas import OUTPUTS, REVERSE, STACKED, Dim, flag, input_shape, register, set_output

DOC = """
Runs `v = a[t] * v + b[t]` over time, starting from `v_initial`; product and sum round one after the other, never fused.
Time is the first axis of a and of b, of the same length; one of the two may be invariant and has no time axis then.
The elements broadcast to the state, whose shape does not change.
"""


def _infer(context: InferenceContext) -> None:
    state = input_shape(context, 0)
    set_output(context, 0, 0, state)
    set_output(context, 1, 0, None if state is None else (_time(context), *state))


def _time(context: InferenceContext) -> Dim:
    """The length of the series, from whichever input tells it."""
    series = [input_shape(context, i) for i, name in ((1, "a"), (2, "b")) if not flag(context, f"{name}_invariant")]
    lengths = [shape[0] for shape in series if shape]
    known = [length for length in lengths if isinstance(length, int)]
    return (known or lengths or [None])[0]


_Parameter = OpSchema.FormalParameter

SCHEMA = register(
    "LinearRecurrence",
    DOC,
    inputs=[
        _Parameter("v_initial", "T", "The state before the first step, of any shape."),
        _Parameter("a", "T", "The factors, time first unless a_invariant."),
        _Parameter("b", "T", "The terms, time first unless b_invariant."),
    ],
    outputs=OUTPUTS,
    flags=[
        STACKED,
        REVERSE,
        ("a_invariant", "1: a is the same at every time and has no time axis."),
        ("b_invariant", "1: b is the same at every time and has no time axis. Not both."),
    ],
    infer=_infer,
)

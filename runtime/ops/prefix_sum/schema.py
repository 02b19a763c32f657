"""The schema of PrefixSum, with type and shape inference."""

from __future__ import annotations

from onnx.defs import OpSchema
from onnx.shape_inference import InferenceContext

from looplift.runtime.ops.schemas import OUTPUTS, REVERSE, STACKED, input_shape, register, set_output

DOC = """
Adds the elements of a series one after the other, `v = v + x[t]`, starting from `v_initial`; every addition rounds, in
the order of time. Time is the first axis of x. x[t] broadcasts to the state, whose shape does not change.
"""


def _infer(context: InferenceContext) -> None:
    state, series = input_shape(context, 0), input_shape(context, 1)
    set_output(context, 0, 0, state)
    set_output(context, 1, 0, None if state is None else (series[0] if series else None, *state))


_Parameter = OpSchema.FormalParameter

SCHEMA = register(
    "PrefixSum",
    DOC,
    inputs=[
        _Parameter("v_initial", "T", "The state before the first addition, of any shape."),
        _Parameter("x", "T", "The series, time first."),
    ],
    outputs=OUTPUTS,
    flags=[STACKED, REVERSE],
    infer=_infer,
)

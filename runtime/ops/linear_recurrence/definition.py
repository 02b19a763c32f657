"""LinearRecurrence in standard ops: a Loop over time (why not a Scan: see the definition of PrefixSum)."""

from __future__ import annotations

import onnx

from looplift.runtime.ops.definitions import CLOCK, CONSTANTS, EMITTED, STACKED, TICK, define

FLAGS = ("emit_previous", "reverse", "a_invariant", "b_invariant")
SIGNATURE = (
    f"LinearRecurrence <{', '.join(f'{flag}: int = 0' for flag in FLAGS)}> (v_initial, a, b) => (v_final, scan_output)"
)


def _series(name: str) -> str:
    """``looplift_<name>_series``, with a time axis of one step if invariant, and its length, 0 if invariant.

    The new axes are as many ones as ``invariant`` says, one or none; an If would want both branches alike before 11.
    """
    own = f"looplift_{name}"
    return f"""
        {own}_shape = Shape ({name})
        {own}_new_axes = Reshape ({own}_invariant, looplift_ones)
        {own}_time_axis = Expand (looplift_ones, {own}_new_axes)
        {own}_full_shape = Concat <axis = 0> ({own}_time_axis, {own}_shape)
        {own}_series = Expand ({name}, {own}_full_shape)
        {own}_series_shape = Shape ({own}_series)
        {own}_steps = Gather <axis = 0> ({own}_series_shape, looplift_zero)
        {own}_varies = Sub (looplift_one, {own}_invariant)
        {own}_length = Mul ({own}_steps, {own}_varies)
        {own}_length_double = Cast <to = 11> ({own}_length)"""


def _element(name: str) -> str:
    """``looplift_<name>_now``, the element of this iteration."""
    own = f"looplift_{name}"
    return f"""
            {own}_index = Mul (looplift_now, {own}_varies)
            {own}_now = Gather <axis = 0> ({own}_series, {own}_index)"""


# The longer series sets the time, so that one that is shorter is read out of range, an error. Max takes int64 only from
# opset 12. Reshape holds the state to its shape. Rows are put in order of time as in PrefixSum.
BODY = f"""{CONSTANTS}
        looplift_ones_float = Constant <value = float[1] {{1}}> ()
        looplift_ones = Cast <to = 7> (looplift_ones_float){_series("a")}{_series("b")}
        looplift_time_double = Max (looplift_a_length_double, looplift_b_length_double)
        looplift_time = Cast <to = 7> (looplift_time_double){CLOCK}
        looplift_row_shape = Shape (v_initial)
        v_final, looplift_in_order, looplift_times = Loop (looplift_time, looplift_true, v_initial) <
          body = looplift_body (
            int64 looplift_iteration, bool looplift_cond, looplift_previous
        ) => (bool looplift_still, looplift_updated, looplift_emitted, int64 looplift_now) {{{TICK}{_element("a")}
            {_element("b")}
            looplift_product = Mul (looplift_a_now, looplift_previous)
            looplift_sum = Add (looplift_product, looplift_b_now)
            looplift_updated = Reshape (looplift_sum, looplift_row_shape){EMITTED}
        }}>
        looplift_rows = Gather <axis = 0> (looplift_in_order, looplift_times)
        looplift_count = Identity (looplift_time){STACKED}"""


def definition(opset: int) -> onnx.FunctionProto:
    """The function that defines LinearRecurrence in a model of ``opset``, 8 or later."""
    return define(SIGNATURE, FLAGS, BODY, opset)

"""AddStep in standard ops: the Loop that it replaces."""

from __future__ import annotations

import onnx

from looplift.runtime.ops.definitions import EMITTED, STACKED, define

SIGNATURE = "AddStep <emit_previous: int = 0> (M, cond, v_initial, step) => (v_final, scan_output)"

# The state has no declared type, since any type and shape may come, and the first iteration may broadcast it. The
# iteration and cond inputs have one, since ONNX Runtime wants their rank.
LOOP = f"""
        v_final, looplift_rows = Loop (M, cond, v_initial) <body = looplift_body (
            int64 looplift_iteration, bool looplift_cond, looplift_previous
        ) => (bool looplift_still, looplift_updated, looplift_emitted) {{
            looplift_still = Identity (looplift_cond)
            looplift_updated = Add (looplift_previous, step){EMITTED}
        }}>"""

GROWN = """
        looplift_one_float = Constant <value = float[1] {1}> ()
        looplift_one = Cast <to = 7> (looplift_one_float)
        looplift_initial_shape = Shape (v_initial)
        looplift_step_shape = Shape (step)
        looplift_initial_rank = Shape (looplift_initial_shape)
        looplift_step_rank = Shape (looplift_step_shape)
        looplift_rank_difference = Sub (looplift_step_rank, looplift_initial_rank)
        looplift_more_float = Cast <to = 1> (looplift_rank_difference)
        looplift_fewer_float = Neg (looplift_more_float)
        looplift_no_fewer_float = Relu (looplift_more_float)
        looplift_no_more_float = Relu (looplift_fewer_float)
        looplift_initial_lacks = Cast <to = 7> (looplift_no_fewer_float)
        looplift_step_lacks = Cast <to = 7> (looplift_no_more_float)
        looplift_initial_ones = Expand (looplift_one, looplift_initial_lacks)
        looplift_step_ones = Expand (looplift_one, looplift_step_lacks)
        looplift_initial_extents = Concat <axis = 0> (looplift_initial_ones, looplift_initial_shape)
        looplift_step_extents = Concat <axis = 0> (looplift_step_ones, looplift_step_shape)
        looplift_is_one = Equal (looplift_initial_extents, looplift_one)
        looplift_grows = Cast <to = 7> (looplift_is_one)
        looplift_stays = Sub (looplift_one, looplift_grows)
        looplift_kept_extents = Mul (looplift_stays, looplift_initial_extents)
        looplift_grown_extents = Mul (looplift_grows, looplift_step_extents)
        looplift_grown_shape = Add (looplift_kept_extents, looplift_grown_extents)"""
"""``looplift_grown_shape``, that of the state after the first step; where the two don't broadcast, v_initial's extents.

An addition would tell it, but fail then, and where no iteration runs none is made.
"""

ROW_SHAPE = """
        looplift_row_shape = If (looplift_emit_previous_is_set) <
            then_branch = looplift_before_growth () => (looplift_shape_before) {
                looplift_shape_before = Identity (looplift_initial_shape)
            },
            else_branch = looplift_after_growth () => (looplift_shape_after) {
                looplift_shape_after = Identity (looplift_grown_shape)
            }
        >"""

ROW_SHAPE_OF_ONE_RANK = """
        looplift_row_shape = Identity (looplift_grown_shape)"""

ROWS = f"""
        looplift_zero_float = Constant <value = float {{0}}> ()
        looplift_zero = Cast <to = 7> (looplift_zero_float)
        looplift_rows_shape = Shape (looplift_rows)
        looplift_count = Gather <axis = 0> (looplift_rows_shape, looplift_zero){STACKED}"""


def definition(opset: int) -> onnx.FunctionProto:
    """The function that defines AddStep in a model of ``opset``, 8 or later.

    Before opset 11 both branches of an If have the same shape, so there the scan output of zero iterations has the
    shape of the state after the first step, whatever `emit_previous` says; few states change theirs.
    """
    body = LOOP + GROWN + (ROW_SHAPE if opset >= 11 else ROW_SHAPE_OF_ONE_RANK) + ROWS
    return define(SIGNATURE, ("emit_previous",), body, opset)

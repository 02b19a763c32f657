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

FIRST = """
        looplift_first = If (looplift_emit_previous_is_set) <
            then_branch = looplift_first_before () => (looplift_initial) {
                looplift_initial = Identity (v_initial)
            },
            else_branch = looplift_first_after () => (looplift_grown) { looplift_grown = Add (v_initial, step) }
        >"""

FIRST_OF_ONE_SHAPE = """
        looplift_first = Add (v_initial, step)"""

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
    return define(SIGNATURE, ("emit_previous",), LOOP + (FIRST if opset >= 11 else FIRST_OF_ONE_SHAPE) + ROWS, opset)

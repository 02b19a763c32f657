"""PrefixSum in standard ops: a Loop over time.

A Loop and not a Scan: a Scan of ONNX Runtime wants the ranks of everything and at least one step, and before opset 9
it has a batch axis.
"""

from __future__ import annotations

import onnx

from looplift.runtime.ops.definitions import CLOCK, CONSTANTS, EMITTED, STACKED, TICK, define

SIGNATURE = "PrefixSum <emit_previous: int = 0, reverse: int = 0> (v_initial, x) => (v_final, scan_output)"

# Reshape holds the state to its shape: one that would grow is an error. Rows come in the order of iterations; row i
# belongs to looplift_times[i], and either direction is its own inverse.
BODY = f"""{CONSTANTS}
        looplift_x_shape = Shape (x)
        looplift_time = Gather <axis = 0> (looplift_x_shape, looplift_zero){CLOCK}
        looplift_row_shape = Shape (v_initial)
        v_final, looplift_in_order, looplift_times = Loop (looplift_time, looplift_true, v_initial) <
          body = looplift_body (
            int64 looplift_iteration, bool looplift_cond, looplift_previous
        ) => (bool looplift_still, looplift_updated, looplift_emitted, int64 looplift_now) {{{TICK}
            looplift_x_now = Gather <axis = 0> (x, looplift_now)
            looplift_sum = Add (looplift_previous, looplift_x_now)
            looplift_updated = Reshape (looplift_sum, looplift_row_shape){EMITTED}
        }}>
        looplift_rows = Gather <axis = 0> (looplift_in_order, looplift_times)
        looplift_count = Identity (looplift_time){STACKED}"""


def definition(opset: int) -> onnx.FunctionProto:
    """The function that defines PrefixSum in a model of ``opset``, 8 or later."""
    return define(SIGNATURE, ("emit_previous", "reverse"), BODY, opset)

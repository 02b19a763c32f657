"""AddStep in standard ops: the Loop that it replaces."""

from __future__ import annotations

import functools

import onnx
import onnx.parser
from looplift.runtime.ops import DOMAIN
from looplift.runtime.ops.definitions import read_flag

# The state has no declared type, since any type and shape may come, and the first iteration may broadcast it. The
# iteration and cond inputs have one, since ONNX Runtime wants their rank.
TEXT = """
    <domain: "{domain}", opset_import: ["": {opset}]>
    AddStep <emit_previous: int = 0> (M, cond, v_initial, step) => (v_final, scan_output) {{
        {flag}
        v_final, scan_output = Loop (M, cond, v_initial) <body = looplift_body (
            int64 looplift_iteration, bool looplift_cond, looplift_previous
        ) => (bool looplift_still, looplift_updated, looplift_emitted) {{
            looplift_still = Identity (looplift_cond)
            looplift_updated = Add (looplift_previous, step)
            looplift_emitted = If (looplift_emit_previous) <
                then_branch = looplift_before () => (looplift_state_before) {{
                    looplift_state_before = Identity (looplift_previous)
                }},
                else_branch = looplift_after () => (looplift_state_after) {{
                    looplift_state_after = Identity (looplift_updated)
                }}
            >
        }}>
    }}
"""


@functools.cache
def _parsed(opset: int) -> onnx.FunctionProto:
    return onnx.parser.parse_function(TEXT.format(domain=DOMAIN, opset=opset, flag=read_flag("emit_previous", opset)))


def definition(opset: int) -> onnx.FunctionProto:
    """The function that defines AddStep in a model of ``opset`` (8 or later), a new copy."""
    function = onnx.FunctionProto()
    function.CopyFrom(_parsed(opset))
    return function

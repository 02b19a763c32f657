"""What the op definitions of this domain share. They are ONNX text; every name they make starts with ``looplift_``.

The text serves every opset from 8 on: constants are floats that are cast, since Constant made nothing else before 9.
"""

from __future__ import annotations

import functools

import onnx
import onnx.parser

from looplift.runtime.ops import DOMAIN

EMIT_PREVIOUS = """
        looplift_emit_previous_is_set = Cast <to = 9> (looplift_emit_previous)"""

EMITTED = """
            looplift_emitted = If (looplift_emit_previous_is_set) <
                then_branch = looplift_before () => (looplift_state_before) {
                    looplift_state_before = Identity (looplift_previous)
                },
                else_branch = looplift_after () => (looplift_state_after) {
                    looplift_state_after = Identity (looplift_updated)
                }
            >"""
"""In a Loop body: the state that is stacked, of ``looplift_previous`` and ``looplift_updated``."""

STACKED = """
        looplift_is_any = Cast <to = 9> (looplift_count)
        looplift_stacked = If (looplift_is_any) <
            then_branch = looplift_some () => (looplift_some_rows) {
                looplift_some_rows = Identity (looplift_rows)
            },
            else_branch = looplift_none () => (looplift_no_rows) {
                looplift_vector_float = Constant <value = float[1] {1}> ()
                looplift_vector = Cast <to = 7> (looplift_vector_float)
                looplift_no_count = Reshape (looplift_count, looplift_vector)
                looplift_no_rows_shape = Concat <axis = 0> (looplift_no_count, looplift_row_shape)
                looplift_no_rows = Expand (v_initial, looplift_no_rows_shape)
            }
        >
        looplift_stacked_shape = Shape (looplift_stacked)
        scan_output = Reshape (looplift_stacked, looplift_stacked_shape)"""
"""``scan_output``: the ``looplift_count`` rows ``looplift_rows``, or no rows of ``looplift_row_shape``.

That is a shape to which ``v_initial`` expands: nothing is computed to get it that might fail. Engines take the shape of
a row that was never made from the body's declarations, and our bodies declare none. That the count is 0 in the second
branch must not show: the branches of an If had one shape before opset 11, so ONNX Runtime takes an extent that it sees
in one for that of both. The Reshape to its own shape is for ONNX Runtime, which puts a branch in place of an If where
it knows the condition, and then doesn't find the result that a loop of the same subgraph captures.
"""

CONSTANTS = """
        looplift_zero_float = Constant <value = float {0}> ()
        looplift_zero = Cast <to = 7> (looplift_zero_float)
        looplift_one_float = Constant <value = float {1}> ()
        looplift_one = Cast <to = 7> (looplift_one_float)
        looplift_true = Cast <to = 9> (looplift_one_float)"""
"""The int64 scalars ``looplift_zero`` and ``looplift_one``, and ``looplift_true``."""

CLOCK = """
        looplift_direction = Sub (looplift_one, looplift_reverse)
        looplift_stride = Sub (looplift_direction, looplift_reverse)
        looplift_last_time = Sub (looplift_time, looplift_one)
        looplift_first_time = Mul (looplift_reverse, looplift_last_time)"""
"""From ``looplift_time``, the length of the series: the time of the first iteration, and by what it moves on."""

TICK = """
            looplift_still = Identity (looplift_cond)
            looplift_elapsed = Mul (looplift_iteration, looplift_stride)
            looplift_now = Add (looplift_first_time, looplift_elapsed)"""
"""In a Loop body: ``looplift_now``, the time of the iteration."""


def read_flag(name: str, opset: int) -> str:
    """Nodes that make ``looplift_<name>``, an int64 scalar, of the int attribute ``name`` (0 or 1) of the function.

    From opset 12 a Constant takes an int. Before, an attribute can only steer an op: gathering row 0 of the table
    [[0, 0], [1, 0]] finds no 1, gathering column 0 finds it.
    """
    if opset >= 12:
        return f"""
        looplift_{name} = Constant <value_int: int = @{name}> ()"""
    return f"""
        looplift_{name}_table = Constant <value = float[2, 2] {{0, 0, 1, 0}}> ()
        looplift_{name}_zero = Constant <value = float {{0}}> ()
        looplift_{name}_index = Cast <to = 7> (looplift_{name}_zero)
        looplift_{name}_line = Gather <axis: int = @{name}> (looplift_{name}_table, looplift_{name}_index)
        looplift_{name}_float = ReduceMax <keepdims = 0> (looplift_{name}_line)
        looplift_{name} = Cast <to = 7> (looplift_{name}_float)"""


def define(signature: str, flags: tuple[str, ...], body: str, opset: int) -> onnx.FunctionProto:
    """The function of this domain with ``signature`` and ``body`` (ONNX text), for a model of ``opset``; a new copy.

    Args:
        signature: op type, attributes, inputs and outputs.
        flags: the int attributes that the body reads, ``emit_previous`` among them; see ``read_flag``.
        body: its nodes.
        opset: version of the standard ops, 8 or later.
    """
    copy = onnx.FunctionProto()
    copy.CopyFrom(_parse(signature, flags, body, opset))
    return copy


@functools.cache
def _parse(signature: str, flags: tuple[str, ...], body: str, opset: int) -> onnx.FunctionProto:
    header = f'<domain: "{DOMAIN}", opset_import: ["": {opset}]>'
    nodes = "".join(read_flag(flag, opset) for flag in flags) + EMIT_PREVIOUS + body
    return onnx.parser.parse_function(f"{header} {signature} {{ {nodes} }}")

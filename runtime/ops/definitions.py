"""What the op definitions of this domain share. They are ONNX text; every name they make starts with ``looplift_``."""

from __future__ import annotations


def read_flag(name: str, opset: int) -> str:
    """Nodes that make ``looplift_<name>``, a bool, of the int attribute ``name`` (0 or 1) of the function around them.

    From opset 12 a Constant takes an int. Before, an attribute can only steer an op: gathering row 0 of the table
    [[0, 0], [1, 0]] finds no 1, gathering column 0 finds it. Constants of those opsets are best kept floats.
    """
    if opset >= 12:
        return f"""
            looplift_{name}_int = Constant <value_int: int = @{name}> ()
            looplift_{name} = Cast <to = 9> (looplift_{name}_int)"""
    return f"""
            looplift_{name}_table = Constant <value = float[2, 2] {{0, 0, 1, 0}}> ()
            looplift_{name}_zero = Constant <value = float {{0}}> ()
            looplift_{name}_index = Cast <to = 7> (looplift_{name}_zero)
            looplift_{name}_line = Gather <axis: int = @{name}> (looplift_{name}_table, looplift_{name}_index)
            looplift_{name}_float = ReduceMax <keepdims = 0> (looplift_{name}_line)
            looplift_{name} = Cast <to = 9> (looplift_{name}_float)"""

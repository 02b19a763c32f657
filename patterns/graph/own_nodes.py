"""The recurrence ops as nodes that stand in the bodies of loops: for inner loops that are lifted already."""

from __future__ import annotations

import onnx_ir as ir

DOMAIN = "ai.looplift"

INITIAL = {"AddStep": 2, "LinearRecurrence": 0, "PrefixSum": 0}
"""Which input of each op is the state it starts from."""


def is_recurrence(node: ir.Node) -> bool:
    """Whether the node is one of these ops, complete with its state."""
    if node.domain != DOMAIN or node.op_type not in INITIAL:
        return False
    return len(node.inputs) > INITIAL[node.op_type] and node.inputs[INITIAL[node.op_type]] is not None


def initial(node: ir.Node) -> ir.Value:
    """The state that a recurrence starts from."""
    value = node.inputs[INITIAL[node.op_type]]
    assert value is not None, "is_recurrence holds"
    return value


def series(node: ir.Node) -> dict[int, bool]:
    """What the steps of a recurrence read, by input position: whether it has a time axis."""
    if node.op_type == "AddStep":
        return {3: False}
    if node.op_type == "PrefixSum":
        return {1: True}
    return {k: not flag(node, f"{'ab'[k - 1]}_invariant") for k in (1, 2)}


def flag(node: ir.Node, name: str) -> bool:
    """Whether an int attribute is set."""
    return bool(node.attributes.get_int(name, 0))

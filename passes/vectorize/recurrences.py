"""Recurrence ops over time: an inner recurrence of its own in every iteration becomes one with a batch axis.

The state of iteration k is row k of the batch's. Each number goes through the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.vectorize.context import OverTime, Rule
from looplift.patterns.graph.own_nodes import INITIAL, initial, is_recurrence, series
from looplift.patterns.graph.refusal import Refusal, Refused


def recurrence(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """AddStep, PrefixSum, LinearRecurrence: states and series get a batch axis, before which inner time stays.

    AddStep: the number of inner steps may not vary, nor may the state grow in the first one.
    """
    if over.lead != 1:
        raise Refused(Refusal(f"{node.op_type} in the body of a Scan with a batch axis", node))
    if not is_recurrence(node):
        raise Refused(Refusal(f"{node.op_type} is not known", node))
    state, timed = initial(node), series(node)
    rank = over.rank(state)
    inputs: list[ir.Value | None] = []
    for k, value in enumerate(node.inputs):
        if value is None:
            inputs.append(None)
        elif k == INITIAL[node.op_type]:
            inputs.append(over.stack(value))
        elif k in timed:
            inputs.append(_series(over, node, value, rank, timed=timed[k]))
        elif over.varies(value):
            raise Refused(Refusal(f"the number of steps of {node.op_type} varies", node))
        else:
            inputs.append(over.outside(value))
    if node.op_type == "AddStep" and not over.types[state].same_shape(over.types[node.outputs[0]]):
        raise Refused(Refusal("the state of the inner AddStep may change its shape", node))
    new = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), num_outputs=2)
    dtype = over.types[state].dtype
    for output in new.outputs:
        output.type = None if dtype is None else ir.TensorType(dtype)
    final, rows = over.emit.add(new).outputs
    return [final, over.emit.move_axis(rows, rank + 2, 0, 1)][: len(node.outputs)]


def _series(over: OverTime, node: ir.Node, value: ir.Value, state_rank: int, *, timed: bool) -> ir.Value:
    """What inner steps read, for all iterations: inner time first if it has one, then the batch axis."""
    rank = over.rank(value) - timed
    if rank > state_rank:
        raise Refused(Refusal(f"'{value.name}' has more axes than the state of {node.op_type}", node))
    padding = state_rank - rank
    if not over.varies(value):
        outer = over.outside(value)
        return over.emit.unsqueeze(outer, range(1, 2 + padding)) if timed else outer
    stack = over.stack(value)
    if timed:
        stack = over.emit.move_axis(stack, rank + 2, 0, 1)
    return over.emit.unsqueeze(stack, range(1 + timed, 1 + timed + padding))


RULES: dict[str, Rule] = dict.fromkeys(INITIAL, recurrence)

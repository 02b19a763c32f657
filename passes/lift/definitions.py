"""Adds the definitions of our ops to a model that uses them."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.graph.edit import drop_unused_nodes, rebuild_loop
from looplift.patterns.graph.values import is_used, nodes_within
from looplift.patterns.graph.view import LoopView, is_loop, view_of
from looplift.patterns.graph.walk import places
from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import DOMAIN, VERSION, all_ops

FUNCTIONS_SINCE_IR = 8
"""Model-local functions came with IR version 8."""


def used_ops(model: ir.Model) -> dict[str, set[int]]:
    """Our op types in the model, with the opsets of the graphs that use them."""
    used: dict[str, set[int]] = {}
    for place in places(model):
        for node in place.graph:
            if node.domain == DOMAIN:
                used.setdefault(node.op_type, set()).add(place.opset)
    return used


def stacks_are_read(model: ir.Model, op_type: str) -> bool:
    """Whether any node of this type has its stacked states read; if none has, the nodes stop naming them.

    ONNX Runtime wants a call to have all outputs of its function, so the definition must agree with every node.
    """
    nodes = [
        node for place in places(model) for node in place.graph if node.domain == DOMAIN and node.op_type == op_type
    ]
    if any(len(node.outputs) > 1 and is_used(node.outputs[1]) for node in nodes):
        return True
    for node in nodes:
        node.resize_outputs(1)
    return False


def drop_stack(definition: ir.Function, opset: int) -> None:
    """Takes the stacked states, the last output, out of a definition, and out of the Loop that stacks them."""
    definition.outputs.pop()
    drop_unused_nodes(definition)
    for node in [node for node in definition if is_loop(node)]:
        view = view_of(node, opset)
        if isinstance(view, LoopView):
            read = [output for output in view.scan_outputs if output.stacked is not None and is_used(output.stacked)]
            rebuild_loop(
                view, carries=view.carries, scan_outputs=read, max_trip=view.max_trip, condition=view.condition
            )
    drop_unused_nodes(definition)


def add_definitions(model: ir.Model) -> None:
    """Gives the model a function for each of our ops that it uses, at the model's own opset.

    A definition's body is the op in standard ops, so that any ONNX runtime can run the model.
    """
    used = used_ops(model)
    for function in [f for f in model.functions.values() if f.domain == DOMAIN and f.name not in used]:
        del model.functions[function.identifier()]
    if not used:
        model.opset_imports.pop(DOMAIN, None)
        return
    opset = model.opset_imports.get("", 1)
    for op_type in sorted(used):
        op = all_ops().get(op_type)
        if op is None:
            raise LoopliftError(f"the model uses {DOMAIN}::{op_type}, which this version of looplift does not know")
        definition = ir.serde.deserialize_function(op.definition(opset))
        if not stacks_are_read(model, op_type):
            drop_stack(definition, opset)
        model.functions[definition.identifier()] = definition
    model.opset_imports[DOMAIN] = VERSION
    for function in model.functions.values():
        if any(node.domain == DOMAIN for node in nodes_within(function)):
            function.opset_imports[DOMAIN] = VERSION
    model.ir_version = max(model.ir_version or 0, FUNCTIONS_SINCE_IR)

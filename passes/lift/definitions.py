"""Adds the definitions of our ops to a model that uses them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.edit import drop_unused_nodes, rebuild
from looplift.patterns.graph.values import is_used, nodes_within, subgraphs
from looplift.patterns.graph.view import LoopView, is_loop, view_of
from looplift.patterns.graph.walk import GraphLike, places
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


def nodes_of(model: ir.Model, op_type: str) -> list[ir.Node]:
    """The nodes of one of our ops."""
    every = (node for place in places(model) for node in place.graph)
    return [node for node in every if node.domain == DOMAIN and node.op_type == op_type]


def stacks_are_read(model: ir.Model, op_type: str) -> bool:
    """Whether any node of this type has its stacked states read; if none has, the nodes stop naming them.

    ONNX Runtime wants a call to have all outputs of its function, so the definition must agree with every node.
    """
    nodes = nodes_of(model, op_type)
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
            read = (output for output in view.scan_outputs if output.stacked is not None and is_used(output.stacked))
            rebuild(dataclasses.replace(view, scan_outputs=tuple(read)))
    drop_unused_nodes(definition)


def called_further_in(model: ir.Model) -> set[str]:
    """Our op types of which a node stands in a graph, and another in a graph inside that one.

    Functions of the model stand wherever they are called: a node in one, and another anywhere, are enough.
    """
    found: set[str] = set()
    for place in places(model):
        here = {node.op_type for node in place.graph if node.domain == DOMAIN}
        if here:
            inner = (held for node in place.graph for held in subgraphs(node))
            found |= here & {node.op_type for held in inner for node in nodes_within(held) if node.domain == DOMAIN}
    functions = [function for function in model.functions.values() if function.domain != DOMAIN]
    in_functions = [_calls(function) for function in functions]
    calls = sum(in_functions, start=_calls(model.graph))
    return found | {
        op_type for op_type, count in calls.items() if count > 1 and any(op_type in c for c in in_functions)
    }


def _calls(graph: GraphLike) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in nodes_within(graph) if node.domain == DOMAIN)


def enclose(definition: ir.Function) -> None:
    """Puts all nodes of a definition into the body of a Loop of one iteration; outputs are values that it carries.

    ONNX Runtime gives what a definition computes the same names in a graph and in the graphs inside (see its quirk
    "names of inlined functions"); what stands in the body of a Loop is in no scope but its own.
    """
    nodes, results = list(definition), list(definition.outputs)
    initial = definition.inputs[[value.name for value in definition.inputs].index("v_initial")]
    definition.outputs.clear()
    for node in nodes:
        definition.remove(node)
    one = ir.node("Constant", [], {"value": ir.tensor(np.array(1, np.float32))})
    once, go = (ir.node("Cast", one.outputs, {"to": kind}) for kind in (ir.DataType.INT64, ir.DataType.BOOL))
    inputs = [
        ir.Value(name="looplift_once", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(())),
        ir.Value(name="looplift_go", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(())),
        *(ir.Value(name=f"looplift_no_{result.name}") for result in results),
    ]
    still = ir.node("Identity", [inputs[1]])
    body = ir.Graph(inputs, [still.outputs[0], *results], nodes=[still, *nodes], name="looplift_enclosed")
    loop = ir.node(
        "Loop",
        [once.outputs[0], go.outputs[0], *(initial for _ in results)],
        {"body": body},
        num_outputs=len(results),
    )
    outer = (one, once, go)
    for name, node in zip(("one", "trips", "start", "stays"), (*outer, still), strict=True):
        node.outputs[0].name = f"looplift_enclosed_{name}"
    for result, output in zip(results, loop.outputs, strict=True):
        output.name, result.name = result.name, f"looplift_enclosed_{result.name}"
    definition.extend([*outer, loop])
    definition.outputs.extend(loop.outputs)


class Form(Protocol):
    """Writes a definition that is right for certain nodes of an op, or gives None; see `passes.targets.definitions`."""

    def __call__(
        self, loop: ir.Function, nodes: Sequence[ir.Node], opset: int, *, stacked: bool
    ) -> ir.Function | None: ...


def add_definitions(model: ir.Model, form: Form | None = None) -> None:
    """Gives the model a function for each of our ops that it uses, at the model's own opset.

    A definition's body is the op in standard ops, so that any ONNX runtime can run the model: a Loop that serves every
    node of the op, or what `form` makes for those that there are.
    """
    used = used_ops(model)
    for function in [f for f in model.functions.values() if f.domain == DOMAIN and f.name not in used]:
        del model.functions[function.identifier()]
    if not used:
        model.opset_imports.pop(DOMAIN, None)
        return
    opset = model.opset_imports.get("", 1)
    further_in = called_further_in(model)
    for op_type in sorted(used):
        op = all_ops().get(op_type)
        if op is None:
            raise LoopliftError(f"the model uses {DOMAIN}::{op_type}, which this version of looplift does not know")
        definition = ir.serde.deserialize_function(op.definition(opset))
        stacked, nodes = stacks_are_read(model, op_type), nodes_of(model, op_type)
        faster = (
            form(definition, nodes, opset, stacked=stacked) if form is not None and used[op_type] == {opset} else None
        )
        if faster is None and not stacked:
            drop_stack(definition, opset)
        definition = faster or definition
        if op_type in further_in:
            enclose(definition)
        model.functions[definition.identifier()] = definition
    model.opset_imports[DOMAIN] = VERSION
    for function in model.functions.values():
        if any(node.domain == DOMAIN for node in nodes_within(function)):
            function.opset_imports[DOMAIN] = VERSION
    model.ir_version = max(model.ir_version or 0, FUNCTIONS_SINCE_IR)

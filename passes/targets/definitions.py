"""Definitions that are as fast as what stands for the nodes with target ``standard``.

The definition of an op that serves every shape and type is a Loop. ONNX Runtime, which has no kernel for our ops, runs
the definition: a form in standard operators that is right for the nodes at hand is up to hundreds of times faster.
A model has one function for each op: the form must be the same for all nodes of the op, or the Loop stays.

Preserves bits as `passes.targets.standard` does. An engine whose CumSum adds in another order than one by one needs the
Loop (docs/targets.md says which engines do).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from looplift.passes.graph.edit import remove_node
from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms.call import Call, Results
from looplift.passes.targets.standard import choose
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.types import TensorType, Types
from looplift.patterns.graph.values import subgraphs
from looplift.runtime.ops import DOMAIN

MOST = 64
"""Nodes of different types for which a form is written to see whether it is the same."""


def by_form(loop: ir.Function, nodes: Sequence[ir.Node], opset: int, *, stacked: bool) -> ir.Function | None:
    """The definition of an op by the form that is right for these nodes; None if there is none, or more than one.

    Args:
        loop: the definition that serves every node; gives the names of inputs and outputs.
        nodes: all nodes of the op in the model.
        opset: of the definition.
        stacked: whether the stacked states are an output of it.
    """
    kinds = {_kind(node): node for node in nodes}
    if len(kinds) > MOST:
        return None
    made: dict[bytes, ir.Function] = {}
    for node in kinds.values():
        definition = _written(loop.clone(), node, opset, stacked=stacked)
        if definition is None:
            return None
        made[ir.serde.serialize_function(definition).SerializeToString(deterministic=True)] = definition
        if len(made) > 1:
            return None
    return next(iter(made.values()))


def _kind(node: ir.Node) -> tuple[object, ...]:
    """What the form depends on: attributes, and what is known of the inputs."""
    flags = tuple(sorted((name, attribute.as_int()) for name, attribute in node.attributes.items()))
    return node.op_type, flags, tuple(None if value is None else str(Types()[value]) for value in node.inputs)


def _written(definition: ir.Function, node: ir.Node, opset: int, *, stacked: bool) -> ir.Function | None:
    """The definition with the nodes of the form for this node instead of its own."""
    names = [output.name for output in definition.outputs]
    definition.outputs.clear()
    for old in reversed(list(definition)):
        remove_node(old)
    given: list[ir.Value | None] = list(definition.inputs[: len(node.inputs)])
    inputs = [None if value is None else own for own, value in zip(given, node.inputs, strict=True)]
    facts = tuple(TensorType() if value is None else Types()[value] for value in node.inputs)
    call = Call(ir.Node(DOMAIN, node.op_type, inputs, list(node.attributes.values()), num_outputs=2), opset, facts)
    results = _results(call, inputs, definition, stacked=stacked)
    for k in range(len(inputs)):
        call.node.replace_input_with(k, None)
    if results is None or results.final is None:
        return None
    outputs = [results.final, *([results.rows] if results.rows is not None else [])]
    made = {id(output) for each in definition for output in each.outputs}
    for k, (name, value) in enumerate(zip(names, outputs, strict=False)):
        if id(value) not in made or any(value is other for other in outputs[:k]):
            copy = ir.node("Identity", [value])
            definition.append(copy)
            value = copy.outputs[0]
        definition.outputs.append(value)
        value.name = name
    _name(definition)
    return definition


def _results(
    call: Call, inputs: Sequence[ir.Value | None], definition: ir.Function, *, stacked: bool
) -> Results | None:
    """Writes the form into the definition; None if this node has none."""
    wanted = Call(call.node, call.opset, call.facts, wants_final=True, wants_rows=stacked)
    form = choose(wanted)
    if isinstance(form, Refusal):
        return None
    known = {id(value): fact for value, fact in zip(inputs, call.facts, strict=True) if value is not None}
    emit = Emitter(call.opset, Types(known))
    try:
        results = form(emit)
    except Refused:
        emit.discard()
        return None
    definition.extend(emit.nodes)
    return results


def _name(definition: ir.Function) -> None:
    """Names all values, in the graphs inside too, and takes the symbols of the model's extents out of them."""
    kept = {id(value) for value in (*definition.inputs, *definition.outputs)}
    for k, value in enumerate(value for value in _values(definition) if id(value) not in kept):
        value.name = f"looplift_{k}"
    for value in _values(definition):
        dims = None if value.shape is None or value.type is None else value.shape
        value.shape = None if dims is None else ir.Shape([dim if isinstance(dim, int) else None for dim in dims])


def _values(graph: ir.Graph | ir.Function) -> Iterator[ir.Value]:
    if isinstance(graph, ir.Graph):
        yield from graph.inputs
    for node in graph:
        yield from node.outputs
        for inner in subgraphs(node):
            yield from _values(inner)


__all__ = ["by_form"]

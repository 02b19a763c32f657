"""How a pass changes a graph: replace values, rebuild a loop with other ports, remove what nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import onnx_ir as ir

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import TensorType, is_public, tensor_shape
from looplift.patterns.graph.values import defined_in, graphs_within, is_used, subgraphs
from looplift.patterns.graph.view import LoopView, ScanView, View, view_of
from looplift.patterns.graph.walk import GraphLike

V = TypeVar("V", bound=View)


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Makes every reader of `old` read `new`, in inner graphs too; a graph output keeps its name.

    If `old` is a graph's output and `new` can't take its name (it is an input, an initializer, an output itself
    or lives in another graph), an Identity stands between them.
    """
    for graph, index in _output_slots(old):
        _replace_output(graph, index, old, new)
    ir.convenience.replace_all_uses_with(old, new)


def _output_slots(value: ir.Value) -> list[tuple[ir.Graph, int]]:
    graph = value.graph
    if graph is None or not value.is_graph_output():
        return []
    return [(graph, k) for k, output in enumerate(graph.outputs) if output is value]


def _replace_output(graph: ir.Graph, index: int, old: ir.Value, new: ir.Value) -> None:
    node = new.producer()
    name, old.name = old.name, None
    if node is not None and node.graph is graph and not new.is_graph_output():
        new.name = name
        new.type, new.shape = new.type or old.type, new.shape or old.shape
        keep_notes(old, new)
        graph.outputs[index] = new
        return
    copy = copy_node(new, old)
    copy.outputs[0].name = name
    keep_notes(old, copy.outputs[0])
    graph.append(copy)
    graph.outputs[index] = copy.outputs[0]


def copy_node(value: ir.Value, like: ir.Value | None = None) -> ir.Node:
    """An Identity of the value; the type and shape of what it gives are those of `like`, or of the value."""
    node, like = ir.node("Identity", inputs=[value]), like or value
    node.outputs[0].type, node.outputs[0].shape = like.type, like.shape
    return node


def keep_notes(old: ir.Value, new: ir.Value) -> None:
    """What is noted of a graph's output holds of what takes its place: above all what the model declared of it."""
    new.metadata_props.update({key: note for key, note in old.metadata_props.items() if key not in new.metadata_props})
    new.meta.update({key: note for key, note in old.meta.items() if key not in new.meta})


def rebuild(view: V) -> V:
    """Replaces a loop by one with the ports that this view names, in place, and returns its view.

    The view is one of the loop as it stands, with ports exchanged by `dataclasses.replace`. Readers of the node outputs
    of ports that stay read the new node's. New ports have ``final`` (``stacked``) None and get a node output all the
    same; the view returned lists them in the order given. Node outputs of ports that are gone must be unused, and nodes
    of the body that nothing reads any more go.
    """
    body, carries, outputs = view.body, view.carries, view.scan_outputs
    inputs = [*(carry.initial for carry in carries), *(item.outer for item in view.scan_inputs)]
    states = [*(carry.previous for carry in carries), *(item.element for item in view.scan_inputs)]
    results = [*(carry.updated for carry in carries), *(output.element for output in outputs)]
    before: list[ir.Value | None] = []
    if isinstance(view, LoopView):
        _declare_condition(view)
        before = [view.max_trip, view.condition]
        states, results = [view.iteration, view.condition_in, *states], [view.condition_out, *results]
    elif view.batched:
        before = [view.sequence_lengths]
    body.inputs[:], body.outputs[:] = states, results
    node = _new_node(view.node, [*before, *inputs], len(carries) + len(outputs))
    if isinstance(view, ScanView):
        _note_directions(node, view)
    _take_over(node, [*(c.final for c in carries), *(s.stacked for s in outputs)], view.node)
    drop_unused_nodes(body)
    found = view_of(node, view.opset)
    if isinstance(found, Refusal):
        raise ValueError(f"the rebuilt loop is malformed: {found}")
    return found  # type: ignore[return-value]


def _declare_condition(view: LoopView) -> None:
    """Declares the shape of the cond input that the cond told, before that goes.

    ONNX Runtime runs no Loop whose cond input has no shape in the body, neither declared there nor that of the cond.
    """
    old = view.node.inputs[1] if len(view.node.inputs) > 1 else None
    if view.condition_in.shape is None and view.condition is not old:
        known = old.shape if old is not None else None
        view.condition_in.shape = ir.Shape([] if known is None or len(known) != 1 else [1])


def _note_directions(node: ir.Node, view: ScanView) -> None:
    """The attributes of a Scan. Version 8 has no axes, and outputs one direction."""
    read, given = view.scan_inputs, view.scan_outputs
    node.attributes.add(ir.AttrInt64("num_scan_inputs", len(read)))
    for name, values in (
        ("scan_input_axes", [item.axis for item in read]),
        ("directions" if view.batched else "scan_input_directions", [int(item.reverse) for item in read]),
        ("scan_output_axes", [item.axis for item in given]),
        ("scan_output_directions", [int(item.reverse) for item in given]),
    ):
        node.attributes.pop(name, None)
        if any(values):
            node.attributes.add(ir.AttrInt64s(name, values))


def _new_node(old: ir.Node, inputs: Sequence[ir.Value | None], outputs: int) -> ir.Node:
    """A node with the old one's attributes (its body moves over), name and notes, in its place."""
    attributes = list(old.attributes.values())
    for attribute in attributes:
        old.attributes.pop(attribute.name)
    node = ir.Node(
        old.domain,
        old.op_type,
        inputs=inputs,
        attributes=attributes,
        num_outputs=outputs,
        name=old.name,
        doc_string=old.doc_string,
        metadata_props=dict(old.metadata_props),
    )
    old.append(node)
    return node


def _take_over(node: ir.Node, replaced: Sequence[ir.Value | None], old: ir.Node) -> None:
    for new, value in zip(node.outputs, replaced, strict=True):
        if value is not None:
            new.name, new.type, new.shape = value.name, value.type, value.shape
            replace_value(value, new)
    kept = {id(value) for value in replaced if value is not None}
    left = [value.name for value in old.outputs if id(value) not in kept and is_used(value)]
    if left:
        raise ValueError(f"outputs {left} of the rebuilt {old.op_type} are still read")
    graph = old.graph
    if graph is not None:
        graph.remove(old, safe=True)


def drop_unused_nodes(graph: GraphLike) -> bool:
    """Removes nodes none of whose outputs is read, inner graphs included, until none is left. Preserves bits.

    A node that could fail is removed too: like every ONNX optimizer, we may turn an error into a result.
    """
    changed = False
    for node in reversed(list(graph)):
        for inner in subgraphs(node):
            changed |= drop_unused_nodes(inner)
        if not any(is_used(output) for output in node.outputs):
            remove_node(node)
            changed = True
    return changed


def remove_node(node: ir.Node) -> None:
    """Takes a node none of whose outputs is read out of its graph.

    The graphs inside it let go of what they read, too: the IR would go on counting them as readers of outer values.
    """
    for inner in [graph for own in subgraphs(node) for graph in graphs_within(own)]:
        inner.outputs.clear()
        for reader in inner:
            for k in range(len(reader.inputs)):
                reader.replace_input_with(k, None)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


def drop_unread_outputs(node: ir.Node) -> None:
    """Takes the outputs that nothing reads from an If, and what only made them from its branches; all: the If, too."""
    kept = [k for k, output in enumerate(node.outputs) if is_used(output)]
    for branch in subgraphs(node):
        branch.outputs[:] = [branch.outputs[k] for k in kept]
        drop_unused_nodes(branch)
    if not kept:
        remove_node(node)
        return
    outputs = [node.outputs[k] for k in kept]
    _take_over(_new_node(node, list(node.inputs), len(kept)), outputs, node)


def copies(nodes: Iterable[ir.Node], anchor: ir.Node) -> dict[ir.Value, ir.Value]:
    """Copies nodes without graphs in them, in order, to right before `anchor`: for each of their outputs its copy."""
    copied: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        inputs = [value if value is None else copied.get(value, value) for value in node.inputs]
        attributes = list(node.attributes.values())
        new = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs))
        new.meta.update(node.meta)
        for old, output in zip(node.outputs, new.outputs, strict=True):
            output.type, output.shape = old.type, old.shape
            copied[old] = output
        anchor.prepend(new)
    return copied


def insert_before(anchor: ir.Node, nodes: Iterable[ir.Node]) -> None:
    """Puts nodes, in order, right before `anchor` in its graph."""
    for node in nodes:
        anchor.prepend(node)


def as_body_output(view: View, value: ir.Value, fact: TensorType) -> ir.Value:
    """The value in a form that the body may return: made by a body node, returned once, with its proven shape."""
    node = value.producer()
    if node is None or not defined_in(value, view.body) or value.is_graph_output():
        node = copy_node(value)
        node.outputs[0].shape = None
        view.body.append(node)
        value = node.outputs[0]
    if value.type is None and fact.dtype is not None:
        value.type = ir.TensorType(fact.dtype)
    if fact.shape is not None:
        value.shape = ir.Shape(declarable(fact))
    return value


def declarable(fact: TensorType) -> list[int | str | None]:
    """The extents that are numbers or symbols of the model; symbols of the analysis are not for it."""
    return [dim if is_public(dim) else None for dim in fact.shape or ()]


def constant_node(name: str, array: object, dtype: ir.DataType | None = None) -> ir.Node:
    """A Constant node that holds a small tensor."""
    tensor = ir.tensor(array, dtype=dtype, name=name)  # type: ignore[arg-type]
    node = ir.node("Constant", inputs=[], attributes={"value": tensor})
    node.outputs[0].name = name
    node.outputs[0].dtype, node.outputs[0].shape = tensor.dtype, ir.Shape(tensor_shape(tensor))
    return node

"""Integers that follow from shapes, computed: extents that onnx's data propagation does not find.

It knows them from opset 13 on only, not across subgraphs, and not through every op that computes with them.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np
import onnx

from looplift.runtime.interpreter import reference
from looplift.runtime.interpreter.values import Array

SMALL = 64
"""Elements up to which a value may be a shape."""

Shapes = Mapping[str, "list[int | None]"]

_ARITHMETIC = frozenset(
    "Abs Add Cast Concat Div Equal Gather Greater Identity Less Max Min Mod Mul Neg Not And Or "
    "ReduceProd ReduceSum Reshape Slice Squeeze Sub Unsqueeze Where".split()
)
"""Ops by which shapes are computed: of small operands each gives a small result."""

_INTEGERS = (np.bool_, np.int32, np.int64)


def shape_candidate(value: object) -> bool:
    """Whether a value may be a shape, or a part of one."""
    return isinstance(value, np.ndarray) and value.size <= SMALL and value.dtype.type in _INTEGERS


def fold(graph: onnx.GraphProto, opsets: Mapping[str, int], shapes: Shapes, outer: Mapping[str, Array]) -> bool:
    """Puts initializers in the place of nodes that compute integers from known shapes; whether there were any.

    Args:
        graph: changed in place, and so are the graphs of its nodes.
        shapes: the extents of the values seen from the graph, None where not known.
        outer: values known around the graph.
    """
    shapes = {**shapes, **extents(graph)}
    own = {i.name for i in graph.input} | {name for node in graph.node for name in node.output}
    known = {name: value for name, value in outer.items() if name not in own}
    for tensor in graph.initializer:
        if np.prod(tensor.dims, dtype=object) <= SMALL:
            known[tensor.name] = onnx.numpy_helper.to_array(tensor)
    kept: list[onnx.NodeProto] = []
    changed = False
    pending = collections.deque(graph.node)
    while pending:
        node = pending.popleft()
        value = _value(node, opsets, shapes, known)
        chosen = _chosen_branch(node, known)
        if chosen is not None:
            graph.initializer.extend(chosen.initializer)
            pending.extendleft(reversed(chosen.node))
            changed = True
        elif value is None:
            kept.append(node)
            for attribute in node.attribute:
                for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                    changed |= fold(inner, opsets, shapes, known)
        else:
            known[node.output[0]] = value
            graph.initializer.append(onnx.numpy_helper.from_array(value, node.output[0]))
            changed = True
    if changed:
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(nodes)
    return changed


def _chosen_branch(node: onnx.NodeProto, known: Mapping[str, Array]) -> onnx.GraphProto | None:
    """The branch that an If takes, if that is known, under names of its own but for the results."""
    condition = known.get(node.input[0]) if node.op_type == "If" and node.input else None
    if condition is None or condition.size != 1 or node.domain not in ("", "ai.onnx"):
        return None
    name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    branch = onnx.GraphProto()
    branch.CopyFrom(next(attribute.g for attribute in node.attribute if attribute.name == name))
    made = [tensor.name for tensor in branch.initializer] + [name for inner in branch.node for name in inner.output]
    names = {name: f"{node.name or node.output[0]}/{name}" for name in made if name}
    _rename(branch, names)
    for result, output in zip(branch.output, node.output, strict=False):
        branch.node.append(onnx.helper.make_node("Identity", [names.get(result.name, result.name)], [output]))
    return branch


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Gives values other names, in the graphs inside, too, which may read them."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(inner, names)
                for info in inner.output:
                    info.name = names.get(info.name, info.name)


def _value(node: onnx.NodeProto, opsets: Mapping[str, int], shapes: Shapes, known: Mapping[str, Array]) -> Array | None:
    """What the node computes, if that is a small integer tensor of known operands."""
    if node.domain not in ("", "ai.onnx") or len(node.output) != 1 or any(a.ref_attr_name for a in node.attribute):
        return None
    shape = shapes.get(node.input[0]) if node.input else None
    if node.op_type in ("Shape", "Size") and shape is not None and None not in shape:
        return _run(node, opsets, [np.broadcast_to(np.False_, [extent or 0 for extent in shape])])
    if node.op_type == "Constant":
        return _run(node, opsets, [])
    if node.op_type not in _ARITHMETIC or not all(name in known for name in node.input if name):
        return None
    return _run(node, opsets, [known[name] if name else None for name in node.input])


def _run(node: onnx.NodeProto, opsets: Mapping[str, int], inputs: list[Array | None]) -> Array | None:
    implementation = reference.load(node, opsets)
    if implementation is None:
        return None
    try:
        value = reference.ReferenceOp(implementation, [None])(*inputs)
    except Exception:  # what fails where nothing runs is no fault: its shape stays open
        return None
    return value if shape_candidate(value) else None


def extents(graph: onnx.GraphProto) -> dict[str, list[int | None]]:
    """The extents of the graph's tensors of known rank."""
    infos = (*graph.input, *graph.output, *graph.value_info)
    constants = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return {i.name: _dims(i) for i in infos if i.type.tensor_type.HasField("shape")} | constants


def _dims(info: onnx.ValueInfoProto) -> list[int | None]:
    """The extents of a tensor of known rank."""
    return [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]

"""If nodes whose condition is known: the branch that is taken moves out, the other one goes."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.graph.edit import remove_node, replace_value
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import label
from looplift.patterns.graph.shapes import equal_entries
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import nodes_within, subgraphs
from looplift.patterns.graph.view import is_any_loop
from looplift.patterns.graph.walk import places
from looplift.runtime.errors import LoopliftError


def taken_branch(node: ir.Node, types: Types, opset: int) -> ir.Graph | None:
    """The branch that an If takes every time, or None; also None where an output of it could not be copied.

    Taken every time: the condition is constant, or asks whether an extent is a number and `types` tell. PyTorch
    exports ``squeeze`` of an axis as such an If. Two results of the graph that are one value in the branch need an
    Identity, which takes sequences from opset 14 and optionals from 16.
    """
    if not is_standard(node, "If"):
        return None
    condition = scalar(node.inputs[0], opset)
    if condition is None:
        answers = equal_entries(node.inputs[0], lambda value: types[value].shape, opset)
        condition = answers[0] if answers is not None and len(answers) == 1 else None
    if not isinstance(condition, bool):
        return None
    branch = node.attributes.get("then_branch" if condition else "else_branch")
    if branch is None or branch.is_ref():
        return None
    graph = branch.as_graph()
    returned = [result for output, result in zip(node.outputs, graph.outputs, strict=True) if output.is_graph_output()]
    shared = [result for k, result in enumerate(returned) if any(result is other for other in returned[:k])]
    tensors = all(isinstance(result.type, ir.TensorType) for result in shared)
    return graph if tensors or opset >= 16 else None


def inline_branch(node: ir.Node, branch: ir.Graph, journal: Journal) -> None:
    """Puts the nodes of the branch in the place of the If. Preserves bits: they are computed as before.

    Initializers of the branch become Constant nodes, which functions can hold too.
    """
    for inner in subgraphs(node):
        for loop in (n for n in nodes_within(inner) if is_any_loop(n)):
            journal.did(loop, "taken out of a branch that is always taken" if inner is branch else "never reached")
    results = list(branch.outputs)
    branch.outputs[:] = []
    moved: dict[ir.Value, ir.Value] = {}
    for value in list(branch.initializers.values()):
        constant = _constant(node, value)
        node.prepend(constant)
        moved[value] = constant.outputs[0]
        replace_value(value, constant.outputs[0])
    for inner_node in list(branch):
        branch.remove(inner_node)
        node.prepend(inner_node)
    for output, result in zip(node.outputs, results, strict=True):
        replace_value(output, moved.get(result, result))
    remove_node(node)


def _constant(node: ir.Node, value: ir.Value) -> ir.Node:
    """A Constant that holds an initializer of one of the node's branches."""
    if value.const_value is None:
        raise LoopliftError(f"initializer '{value.name}' in a branch of {label(node)} has no value")
    constant = ir.node("Constant", inputs=[], attributes={"value": ir.AttrTensor("value", value.const_value)})
    constant.outputs[0].type, constant.outputs[0].shape = value.type, value.shape
    return constant


SMALL = 1024
"""Elements. Larger initializers stay where they are."""


def spell_constants(model: ir.Model) -> None:
    """Makes Constant nodes of the small initializers of branches, as which ONNX Runtime's optimizers leave constants.

    Engines make initializers of Constants in turn, so nothing changes for them. Preserves bits.
    """
    for place in places(model):
        for node in place.graph:
            for branch in subgraphs(node) if is_standard(node, "If") else ():
                for value in list(branch.initializers.values()):
                    if value.const_value is None or value.const_value.size > SMALL:
                        continue
                    constant = _constant(node, value)
                    name = branch.initializers.pop(str(value.name)).name
                    replace_value(value, constant.outputs[0])
                    constant.outputs[0].name = name
                    branch.insert_before(branch[0], constant) if len(branch) else branch.append(constant)

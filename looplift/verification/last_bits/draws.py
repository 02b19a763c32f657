"""Which outputs of a model depend on random numbers: running it twice gives two results, and neither is wrong."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.verification.last_bits.influence import NONE, Labels, node_label, reach_of_outputs


@dataclasses.dataclass(frozen=True)
class Draws:
    """How random numbers reach one output.

    Attributes:
        nodes: those that draw them, in words; empty: the output does not depend on any.
        shape: whether the output's shape depends on them, too.
    """

    nodes: tuple[str, ...] = ()
    shape: bool = False

    def __bool__(self) -> bool:
        return bool(self.nodes)


NO_DRAWS = Draws()


def draws_of_outputs(model: ir.Model) -> list[Draws]:
    """For each output of a model how it depends on random numbers."""
    return [
        Draws(tuple(sorted(reach.numbers | reach.shape)), bool(reach.shape))
        for reach in reach_of_outputs(model, _drawn)
    ]


def _drawn(node: ir.Node, path: str) -> Labels:
    if not is_standard(node) or not has(node, Trait.RANDOM) or _is_off(node):
        return NONE
    return frozenset([f"{node.op_type} '{node_label(node)}' at {path}"])


def _is_off(node: ir.Node) -> bool:
    """A Dropout that is not told to train gives its input."""
    if node.op_type != "Dropout":
        return False
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is None:
        return True
    constant = ir.convenience.get_const_tensor(training) if not training.is_graph_input() else None
    return constant is not None and not constant.numpy().any()

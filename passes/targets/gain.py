"""Whether a loop gains anything where its recurrences become Scans in standard operators.

A Scan costs what its body does and something for each iteration besides. Recurrences that are taken out of a loop one
by one pay that each; if nothing else moves out of the body with them, the loop as it stands is faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.recurrences.forms.call import Call
from looplift.passes.recurrences.forms.cost import LOOP_ITERATION, SCAN_ITERATION
from looplift.passes.targets.standard import choose
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import made_by, with_inner
from looplift.patterns.graph.view import LoopView, View, is_scan
from looplift.runtime.ops import DOMAIN

FREE = frozenset({"Constant", "Identity"})


def no_gain(view: View, kept: Iterable[ir.Value], written: Sequence[ir.Node], emit: Emitter) -> Refusal | None:
    """Why a loop had better stay as it is; None if each iteration is spared some work.

    Args:
        view: the loop.
        kept: the values of its body that a smaller loop would still compute; none if it is replaced altogether.
        written: the nodes that would stand for it.
        emit: has written them.
    """
    scans = [scan for node in written if node.domain == DOMAIN for scan in _scans(node, emit)]
    if not scans:
        return None
    kept = list(kept)
    spared: float = _work(view.body) - sum(map(_cost, made_by(kept, view.body)))
    if not kept:
        spared += LOOP_ITERATION if isinstance(view, LoopView) else SCAN_ITERATION
    if sum(SCAN_ITERATION + _work(scan.attributes["body"].as_graph()) for scan in scans) < spared:
        return None
    return Refusal("in standard ops, Scans of its recurrences would do no less work in each iteration", view.node)


def _scans(node: ir.Node, emit: Emitter) -> list[ir.Node]:
    """The Scans that a recurrence node becomes for certain: none where it may become a CumSum when the model runs."""
    form = choose(dataclasses.replace(Call.of(node, emit.opset), wants_final=True, wants_rows=True))
    if isinstance(form, Refusal):
        return []
    trial = Emitter(emit.opset, Types())
    form(trial)
    made = [inner for each in trial.nodes for inner in with_inner(each)]
    trial.discard()
    return [] if any(each.op_type == "CumSum" for each in made) else [each for each in made if is_scan(each)]


def _work(graph: ir.Graph) -> int:
    """How many operators an iteration runs."""
    return sum(map(_cost, graph))


def _cost(node: ir.Node) -> int:
    return sum(each.op_type not in FREE for each in with_inner(node))

"""The order of the passes, and what is checked before the result is given out."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from looplift.passes import collection
from looplift.passes.clean.branches import spell_constants
from looplift.passes.clean.drop_dead import DropDead
from looplift.passes.clean.forward_invariant_carries import ForwardInvariantCarries
from looplift.passes.clean.hoist_invariants import HoistInvariants
from looplift.passes.clean.inline_loops import InlineLoops
from looplift.passes.clean.simplify import Simplify
from looplift.passes.count.count_by_running import CountByRunning
from looplift.passes.count.count_while_loops import CountWhileLoops
from looplift.passes.count.counters_from_iteration import CountersFromIteration
from looplift.passes.count.simplify_condition import SimplifyCondition
from looplift.passes.describe import describe_costs, describe_loops
from looplift.passes.graph import clone as copies
from looplift.passes.graph.edit import drop_unused_nodes
from looplift.passes.graph.infer import infer_types
from looplift.passes.graph.names import fix_names, name_default_domain
from looplift.passes.graph.shapes import Declared, forget_declared, name_extents, prove_shapes
from looplift.passes.journal import ORIGIN, Care, Journal, Watch
from looplift.passes.lift.definitions import add_definitions, used_ops
from looplift.passes.lift.lift_recurrences import PROOF, LiftRecurrences
from looplift.passes.lift.peepholes import Peepholes
from looplift.passes.lift.reverse_in_node import ReverseInNode
from looplift.passes.lift.same_shapes import Question, ask, questions
from looplift.passes.opsets import unread
from looplift.passes.postconditions import violation
from looplift.passes.report import Finding
from looplift.passes.same_bits import Change, Surroundings, settle_bits
from looplift.passes.stack.constant_indices import SettleValues
from looplift.passes.stack.read_split_rows import ReadSplitRows
from looplift.passes.stack.row_scatters import RowScatters
from looplift.passes.stack.split_carries import SplitCarries
from looplift.passes.stack.split_slices import SplitSlices
from looplift.passes.stack.stack_concats import StackConcats
from looplift.passes.stack.stack_scatters import StackScatters
from looplift.passes.stack.stack_sequences import StackSequences
from looplift.passes.targets.declare_rows import declare_rows, note_rows
from looplift.passes.targets.definitions import by_form
from looplift.passes.targets.gain import no_gain
from looplift.passes.targets.loop_to_scan import LoopToScan
from looplift.passes.targets.plus_zero import plus_zeros, subtract_from_zero
from looplift.passes.targets.settle_loops import carry_something, shape_conditions
from looplift.passes.targets.standard import LowerToStandard, lowering_refusal
from looplift.passes.updates.affine_updates import AffineUpdates
from looplift.passes.updates.choices_into_terms import ChoicesIntoTerms
from looplift.passes.updates.choices_without_branches import ChoicesWithoutBranches
from looplift.passes.updates.narrow_updates import NarrowUpdates
from looplift.passes.updates.quotients import QuotientsIntoProducts
from looplift.passes.updates.reroll import Reroll
from looplift.passes.updates.written_cells import WrittenCells
from looplift.patterns.graph.budget import budget, one_budget
from looplift.patterns.graph.values import is_used
from looplift.patterns.graph.walk import every_loop, freeze, loops, places
from looplift.patterns.loops.cells import STATES
from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import DOMAIN

logger = logging.getLogger(__name__)

Pass = Callable[[ir.Model, Journal], bool]
TARGETS = ("kernel", "standard")

STEPS = 5
"""Attempts that are made. If loops that stay may get other bits, the next keeps the nodes where they are, then does not
make Scans of their loops, then leaves these loops alone, and then all loops that stay; at last the model is left."""

NUMBER_OF_LOOP = "looplift.loop"
"""Key in the ``meta`` of a loop, which copies of it have, too."""

ROUNDS = 8
"""Bound on rounds of normalisation; each pass reaches a fixed point, and so do they together, in two or three."""


def normalisers(exact: bool) -> Sequence[Pass]:
    """The passes that bring loops into a form that is easy to read, in order. Each helps a loop that stays, too."""
    return (
        Simplify(),
        ForwardInvariantCarries(),
        SplitCarries(),
        SplitSlices(),
        ReadSplitRows(),
        QuotientsIntoProducts(),
        NarrowUpdates(),
        ChoicesWithoutBranches(),
        ChoicesIntoTerms(),
        WrittenCells(exact),
        AffineUpdates(exact),
        HoistInvariants(),
        SimplifyCondition(),
        CountWhileLoops(),
        CountByRunning(),
        SettleValues(),
        CountersFromIteration(),
        Reroll(),  # a list is an ordinary carry to it, a scan output is not
        StackSequences(),
        StackConcats(),
        RowScatters(),
        StackScatters(),
        DropDead(),
    )


def run_pipeline(
    model: ir.Model, *, exact: bool = True, target: str = "kernel", watch: Watch | None = None
) -> tuple[ir.Model, tuple[Finding, ...]]:
    """Optimizes a copy of the model.

    Args:
        model: not changed.
        exact: whether results must be the same bits.
        target: ``kernel`` (custom nodes with their definitions) or ``standard`` (operators of ``ai.onnx`` only).
        watch: called after each pass that changed the model.

    Returns:
        The rewritten model, and a finding for each of the original's loops.

    Raises:
        LoopliftError: an unknown target.
    """
    if target not in TARGETS:
        raise LoopliftError(f"unknown target '{target}': use one of {', '.join(TARGETS)}")
    with one_budget(), collection.seldom():
        lifted, findings = _with_care(model, exact, target, watch)
        return _where_shapes_agree(model, findings, exact, target, watch) or (lifted, findings)


def _where_shapes_agree(
    model: ir.Model, findings: Sequence[Finding], exact: bool, target: str, watch: Watch | None
) -> tuple[ir.Model, tuple[Finding, ...]] | None:
    """The same of a model that asks whether extents are equal for which loops stay; None if that gains nothing."""
    left = [k for k, finding in enumerate(findings) if finding.unequal]
    if not left:
        return None
    proven = copies.clone(model)
    forget_declared(proven)
    infer_types(proven)
    prove_shapes(proven)
    asked = list(questions(proven, left))
    while asked:
        subject = copies.clone(model)
        for k, (node, _) in enumerate(every_loop(subject)):
            node.meta[NUMBER_OF_LOOP] = k
        ask(subject, asked)
        numbers = [node.meta[NUMBER_OF_LOOP] for node, _ in every_loop(subject)]
        lifted, found = _with_care(subject, exact, target, watch)
        copies_of = {k: [each for each, number in zip(found, numbers, strict=True) if number == k] for k in numbers}
        gained = [question for question in asked if any(map(_gains, copies_of[question.loop]))]
        if gained == asked:
            told = {asks.loop: _asked(findings[asks.loop], copies_of[asks.loop], asks) for asks in asked}
            return lifted, tuple(told.get(k, copies_of[k][0]) for k in range(len(findings)))
        asked = gained
    return None


def _gains(finding: Finding) -> bool:
    return finding.lifted or finding.recurrence != ""


def _asked(before: Finding, found: Sequence[Finding], question: Question) -> Finding:
    """What is told of a loop that stands in both branches."""
    best = next(filter(_gains, found))
    return dataclasses.replace(
        best,
        node=before.node,
        path=before.path,
        lifted=False,
        reason=f"it runs as it was where {question.words} differ{question.remedy}",
        actions=(f"asked before it runs whether {question.words} are equal", *best.actions),
        unequal=False,
    )


def _with_care(model: ir.Model, exact: bool, target: str, watch: Watch | None) -> tuple[ir.Model, tuple[Finding, ...]]:
    """Optimizes the model, over again with more care where loops that stay might get other last bits."""
    care = Care()
    frozen: dict[int, Finding] = {}
    for step in range(STEPS):
        attempt = _attempt(model, exact, target, care, frozen, watch)
        findings = tuple(frozen.get(k, finding) for k, finding in enumerate(attempt.findings))
        if not attempt.unwanted:
            return attempt.model, findings
        nodes = frozenset().union(*(change.nodes for change in attempt.unwanted))
        owners = frozenset().union(*(change.loops for change in attempt.unwanted))
        care = care.also(nodes, whole_loops=step > 0)
        if step > 1:
            chosen = owners if step == 2 else {k for k, finding in enumerate(findings) if not finding.lifted}
            frozen |= {k: _untouched(findings[k]) for k in chosen}
    return model.clone(), tuple(_untouched(finding, "an engine may round differently") for finding in findings)


def _untouched(finding: Finding, reason: str = "") -> Finding:
    """What is told of a loop that is left alone after all."""
    reason = finding.reason or reason
    return dataclasses.replace(finding, lifted=False, recurrence="", actions=(), reason=reason, left=finding.operators)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A rewritten model, what was found, and where loops that stay may have other last bits (`passes.same_bits`)."""

    model: ir.Model
    findings: tuple[Finding, ...]
    unwanted: tuple[Change, ...] = ()


def _attempt(
    model: ir.Model, exact: bool, target: str, care: Care, frozen: Collection[int], watch: Watch | None
) -> Attempt:
    """Optimizes a copy of the model, with care, and without changing the frozen loops, which are given by number."""
    work = copies.clone(model)
    standard = target == "standard"
    if not loops(work) and not (standard and used_ops(work)):
        return Attempt(work, ())
    name_default_domain(work)
    journal = Journal.begin(work, care, watch)
    reason = next(filter(None, (unread(place.opset) for _, place in loops(work))), None)
    if reason is not None:
        return Attempt(model.clone(), journal.end(work, reason))
    for place in places(work):
        drop_unused_nodes(place.graph)  # dead readers and calls would count as others do
    spell_constants(work)
    run(InlineLoops(), work, journal)
    for node, _ in every_loop(work):
        if int(node.metadata_props[ORIGIN]) in frozen:
            freeze(node)
    before = Surroundings.of(work)
    zeros = plus_zeros(work)
    note_rows(work)
    declared = forget_declared(work)
    infer_types(work)
    prove_shapes(work)
    describe_loops(work, journal)
    changed = rewrite(work, journal, standard, exact)
    describe_costs(work, journal, budget().refused)
    if not changed:
        return Attempt(model.clone(), journal.end(work))
    finish(work, declared, zeros)
    journal.show("finish", work)
    unwanted = settle_bits(before, work, journal, exact)
    findings = journal.end(work)
    broken = violation(model, work)
    if broken is not None:
        logger.error("the rewritten model is dropped: %s", broken)
        dropped = tuple(_untouched(dataclasses.replace(finding, reason=broken)) for finding in findings)
        return Attempt(model.clone(), dropped)
    return Attempt(work, findings, unwanted)


def run(step: Pass, model: ir.Model, journal: Journal) -> bool:
    """Runs a pass, and shows the model if it was changed."""
    changed = step(model, journal)
    if changed:
        journal.show(type(step).__name__, model)
    return changed


def rewrite(model: ir.Model, journal: Journal, standard: bool, exact: bool) -> bool:
    """Everything between the first look at the loops and the finish; for `standard` again while anything is lowered:
    what an inner loop becomes may be what the loop around it was waiting for."""
    lift = LiftRecurrences(exact, lowering_refusal, no_gain) if standard else LiftRecurrences(exact)
    changed = False
    for _ in range(ROUNDS):
        changed |= normalise_and_lift(model, journal, lift, exact)
        if run(LoopToScan(), model, journal):
            changed = True
            normalise(model, journal, exact)
        changed |= run(Peepholes(), model, journal)
        if not standard:
            return changed | run(ReverseInNode(), model, journal)
        if not run(LowerToStandard(), model, journal):
            break
        changed = True
    return changed


def normalise_and_lift(model: ir.Model, journal: Journal, lift: Pass, exact: bool) -> bool:
    """Normalises and lifts in turns: what an inner loop becomes is part of a body, to be normalised like the rest."""
    changed = normalise(model, journal, exact)
    for _ in range(ROUNDS):
        if not run(lift, model, journal):
            break
        changed = True
        normalise(model, journal, exact)
    return changed


def normalise(model: ir.Model, journal: Journal, exact: bool = True) -> bool:
    """Runs the normalising passes round by round until none changes anything."""
    changed = False
    for _ in range(ROUNDS):
        name_extents(model)
        if not any([run(step, model, journal) for step in normalisers(exact)]):  # every pass runs in each round
            break
        changed = True
    return changed


def finish(model: ir.Model, declared: Declared, zeros: Collection[object] = ()) -> None:
    """Removes dead nodes, adds the definitions of our ops, settles what engines are particular about, names everything.

    `zeros` are the numbers of additions of a constant zero that were there before.
    """
    for place in places(model):
        drop_unused_nodes(place.graph)
    add_definitions(model, by_form)
    carry_something(model)
    shape_conditions(model)
    subtract_from_zero(model, zeros)
    for value in unread_outputs(model):
        value.name = ""
    TopologicalSortPass()(model)
    declared.restore(model)
    declare_rows(model)
    fix_names(model)


def unread_outputs(model: ir.Model) -> list[ir.Value]:
    """First outputs of the nodes that stand for a loop that nobody reads: left out, so that no kernel computes them."""
    every = (node for place in places(model) for node in place.graph)
    nodes = (
        node for node in every if node.domain == DOMAIN or (node.op_type in STATES and PROOF in node.metadata_props)
    )
    return [node.outputs[0] for node in nodes if not is_used(node.outputs[0])]


__all__ = ["Finding", "normalise", "run_pipeline"]

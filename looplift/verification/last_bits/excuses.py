"""Which outputs may differ in their last bits, since an engine, not the rewrite, decides how a node rounds.

The rewritten model claims it, by marks on the nodes that it computes elsewhere than the original. A mark alone is not
believed. The node must be of a kind of which it can be true, it must reach the output, and in the original a node of
that kind must reach the same output, from inside a loop unless it is float16. And it excuses no more than rounding
explains (`rounding`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.graph.last_bits import MARK
from looplift.patterns.engines.onnxruntime.kernels import family, may_stay_unrounded
from looplift.runtime.errors import LoopliftError
from looplift.verification.cases.made_up import Feeds
from looplift.verification.compare import Comparison, Tolerance
from looplift.verification.last_bits.influence import NONE, Labels, node_label, reach_of_outputs
from looplift.verification.last_bits.rounding import Rounding, Spread


@dataclasses.dataclass(frozen=True)
class Claim:
    """One node that is marked and believed; ``everywhere``: numpy, too, may add in another order."""

    family: str
    node: str
    everywhere: bool

    def __str__(self) -> str:
        return self.node


class Excuses:
    """What of a pair of models may differ in last bits.

    Args:
        original: the model as it was.
        model: the rewritten one, whose marks are looked at.
        seconds: longest run of the rewritten model with pushed results.
    """

    def __init__(self, original: ir.Model, model: ir.Model, *, seconds: float) -> None:
        self._model = model
        self._seconds = seconds
        self._claims = [
            frozenset(claim for claim in claimed.numbers if claim.family in inside.numbers)
            for claimed, inside in zip(
                reach_of_outputs(model, _claims), reach_of_outputs(original, _families), strict=True
            )
        ]
        self._roundings: dict[bool, Rounding | None] = {}
        self._spreads: dict[bool, tuple[Feeds, Spread | None]] = {}

    def claims(self, output: int, *, everywhere: bool) -> Sequence[Claim]:
        """The nodes that may round differently and reach an output; ``everywhere``: in numpy, too."""
        found = (claim for claim in self._claims[output] if claim.everywhere or not everywhere)
        return sorted(found, key=str)

    def allowed(self, tolerance: Tolerance, feeds: Feeds, output: int, *, everywhere: bool) -> Tolerance | None:
        """The tolerance with what rounding explains of an output; None if it explains nothing.

        Where the rewritten model can't be run with pushed results, since an engine alone knows its ops, the largest
        distance of `Tolerance.last_bits` is all that is held.
        """
        half = any(claim.family == "half" for claim in self.claims(output, everywhere=everywhere))
        tolerance = dataclasses.replace(tolerance, last_bits=True, half=half)
        found = self._spread(feeds, everywhere)
        if found is None:
            return tolerance
        spread = found.of(output)
        return None if spread is None else dataclasses.replace(tolerance, spread=spread)

    def _spread(self, feeds: Feeds, everywhere: bool) -> Spread | None:
        """Kept for the last inputs: several outputs and engines may ask."""
        known = self._spreads.get(everywhere)
        if known is None or known[0] is not feeds:
            rounding = self._rounding(everywhere)
            known = feeds, None if rounding is None else rounding.spread(feeds)
            self._spreads[everywhere] = known
        return known[1]

    def _rounding(self, everywhere: bool) -> Rounding | None:
        if everywhere not in self._roundings:
            try:
                rounding = Rounding(
                    self._model,
                    lambda node: any(claim.everywhere or not everywhere for claim in _claims(node, "")),
                    lambda node: family(node) in ("sums", "functions"),
                    seconds=self._seconds,
                )
            except LoopliftError:  # an op of another domain
                self._roundings[everywhere] = None
            else:
                self._roundings[everywhere] = rounding
        return self._roundings[everywhere]


def _claims(node: ir.Node, path: str) -> Labels:
    kind = family(node) if MARK in node.metadata_props else ""
    if node.metadata_props.get(MARK) == "half" and may_stay_unrounded(node):
        kind = "half"
    if not kind:
        return NONE
    everywhere = kind == "sums" and node.metadata_props[MARK] == "sums"
    return frozenset([Claim(kind, f"{node.op_type} '{node_label(node)}' at {path}", everywhere)])


def _families(node: ir.Node, path: str) -> Labels:
    """Sums and functions in loops; those in a model's function count as called from one. float16 anywhere."""
    kind = family(node) if path.startswith("function ") or ":body" in path else ""
    half = frozenset(["half"]) if may_stay_unrounded(node) else NONE
    return frozenset([kind]) | half if kind else half


class Excused:
    """What was excused of one output in one engine, over all cases."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = claims
        self._cases: set[str] = set()
        self._share = 0.0
        self._ulp = 0
        self._measured = True

    def add(self, case: str, result: Comparison, *, measured: bool) -> None:
        """Counts one comparison; ``measured``: held against what rounding explains."""
        self._cases.add(case)
        self._share = max(self._share, result.share)
        self._ulp = max(self._ulp, result.ulp)
        self._measured &= measured

    def __str__(self) -> str:
        held = (
            "no more than rounding it in another way explains"
            if self._measured
            else "not held against what rounding explains, since looplift can't run the model"
        )
        return (
            f"last bits differ in {len(self._cases)} cases, by at most {self._share:.1e} of the largest element "
            f"({self._ulp:,} ULP): the engine decides how it rounds {some(self._claims)}; {held}"
        )


def some(claims: Sequence[Claim]) -> str:
    """The first nodes in words."""
    more = f" and {len(claims) - 2} more" if len(claims) > 2 else ""
    return ", ".join(claim.node for claim in claims[:2]) + more

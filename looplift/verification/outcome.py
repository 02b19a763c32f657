"""What a check concludes, and the inputs on which two models differ."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from looplift.verification import feeds as feeds_file
from looplift.verification.cases.made_up import Feeds
from looplift.verification.compare import Value


@dataclasses.dataclass(frozen=True)
class Counterexample:
    """Inputs on which the two models differ.

    Attributes:
        case: how the inputs were made.
        feeds: the inputs, by name.
        engine: what ran the models.
        output: name of the first output that differs; empty if the rewritten model failed.
        expected: what the original gave for it.
        got: what the rewritten model gave for it.
        message: what differs.
    """

    case: str
    feeds: Feeds
    engine: str
    output: str
    expected: Value
    got: Value
    message: str

    @property
    def aspect(self) -> tuple[bool, bool, bool]:
        """In what the results differ: whether there are two, of one dtype, of one shape."""
        one, other = (getattr(value, "dtype", type(value)) for value in (self.expected, self.got))
        return bool(self.output), one == other, np.shape(self.expected) == np.shape(self.got)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the inputs as ``.npz``, as ``looplift verify --inputs`` and ``looplift run --inputs`` read them."""
        feeds_file.save(path, self.feeds)

    def __str__(self) -> str:
        what = f"output {self.output!r}: {self.message}" if self.output else self.message
        return f"{self.case}, in {self.engine}: {what}"


Conclusion = Literal["tested", "different", "hardly tested"]

FEW = 3
"""A check that compares less than one in so many of the cases that it ran shows little."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What `verify` found; true if `outcome` is ``"tested"``, or if few cases are allowed and there is one.

    Attributes:
        cases: sets of inputs on which both models gave results, which were compared.
        failures: sets of inputs on which both models failed; this counts as agreement.
        skipped: sets of inputs on which only the original failed; see the notes.
        max_ulp: largest distance of two elements in units in the last place, over all dtypes.
        ulps: the same for each dtype that was compared.
        counterexample: the first difference, or None.
        engines: what gave results to compare.
        notes: what a person should know besides.
        started: sets of inputs that were run, whatever came of it.
        asked: sets of inputs that were to be run; time may be over before.
        reasons: why the original failed, and in how many cases.
        random: outputs that depend on random numbers and differ in them; dtypes and, as a rule, shapes are compared.
        last_bits: outputs that differ in last bits about which an engine decides; the notes say by how much, and why.
        outputs: how many outputs the models have.
        given: sets of inputs that the person gave.
        given_compared: those of them on which both models gave results.
        allow_few: a check of few cases is as good as one of many.
    """

    cases: int
    failures: int
    skipped: int
    ulps: Mapping[str, int]
    counterexample: Counterexample | None
    engines: tuple[str, ...]
    notes: tuple[str, ...]
    started: int
    asked: int
    reasons: Mapping[str, int]
    random: tuple[str, ...] = ()
    last_bits: tuple[str, ...] = ()
    outputs: int = 0
    given: int = 0
    given_compared: int = 0
    allow_few: bool = False

    @property
    def outcome(self) -> Conclusion:
        """``"different"``; ``"hardly tested"``: none, or less than a third of what ran was compared; ``"tested"``.

        Where all inputs that the person gave were compared, that is a test, whatever became of the made-up ones.
        """
        if self.counterexample is not None:
            return "different"
        enough = self.cases > 0 and self.cases * FEW >= self.started
        return "tested" if enough or self._all_given else "hardly tested"

    @property
    def _all_given(self) -> bool:
        return self.given > 0 and self.given_compared == self.given

    @property
    def max_ulp(self) -> int:
        """Largest distance over all dtypes."""
        return max(self.ulps.values(), default=0)

    def __bool__(self) -> bool:
        return self.outcome == "tested" or (self.outcome == "hardly tested" and self.allow_few and self.cases > 0)

    @property
    def headline(self) -> str:
        """The result in one line."""
        if self.counterexample is not None:
            return f"different: {self.counterexample}"
        hardly = "" if self else "hardly tested: "
        if self.cases == 0:
            return f"{hardly}nothing compared in {self.started} of {self.asked} cases"
        among = f", all {self.given} given among them" if self._all_given else ""
        return f"{hardly}equal, {self._how}, in {self.cases} of {self.started} cases{among} ({', '.join(self.engines)})"

    @property
    def _how(self) -> str:
        if self.random and len(self.random) == self.outputs:
            return "in all but the random numbers they draw"
        but = [f"random numbers in {_named(self.random)}"] if self.random else []
        but += [f"last bits in {_named(self.last_bits)}"] if self.last_bits else []
        bits = "bit for bit" if self.last_bits or not self.max_ulp else f"within {self.max_ulp} ULP"
        return f"{bits} but for {' and '.join(but)}" if but else bits

    @property
    def failing(self) -> str:
        """In how many cases the original failed, and why; empty if it never did."""
        if not self.reasons:
            return ""
        shown = [f"{count} times: {_shortened(reason)}" for reason, count in [*self.reasons.items()][:_REASONS]]
        more = [f"{len(self.reasons) - _REASONS} other reasons"] if len(self.reasons) > _REASONS else []
        return f"the original failed in {sum(self.reasons.values())} cases; " + "; ".join([*shown, *more])

    @property
    def advice(self) -> str:
        """What to do about a check that hardly tested anything; empty for others."""
        if self.outcome != "hardly tested" or self:
            return ""
        few = ", or --allow-few if this is enough" if self.cases else ""
        late = "more --seconds, or " if self.started < self.asked else ""
        return f"give {late}--inputs that the original accepts{few}"

    def __str__(self) -> str:
        both = f"both models failed in {self.failures} more cases" if self.failures else ""
        lines = (self.headline, self.failing, both, *self.notes, self.advice)
        return "\n  ".join(line for line in lines if line)


_REASONS = 3
"""So many reasons are shown."""


def _named(outputs: Sequence[str]) -> str:
    return ", ".join(map(repr, outputs))


def _shortened(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:157]}..."

"""What a check concludes, and the inputs on which two models differ."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from looplift.checking import feeds as feeds_file
from looplift.checking.compare import Value
from looplift.checking.inputs import Feeds


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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the inputs as ``.npz``, as ``looplift verify --inputs`` and ``looplift run --inputs`` read them."""
        feeds_file.save(path, self.feeds)

    def __str__(self) -> str:
        what = f"output {self.output!r}: {self.message}" if self.output else self.message
        return f"{self.case}, in {self.engine}: {what}"


@dataclasses.dataclass(frozen=True)
class Check:
    """What `verify` found; true if at least one case was compared and none differed.

    Attributes:
        cases: sets of inputs on which both models gave results, which were compared.
        failures: sets of inputs on which both models failed; this counts as agreement.
        skipped: sets of inputs on which only the original failed; see the notes.
        max_ulp: largest distance of two elements in units in the last place, over all dtypes.
        ulps: the same for each dtype that was compared.
        counterexample: the first difference, or None.
        engines: what gave results to compare.
        notes: what a person should know besides.
    """

    cases: int
    failures: int
    skipped: int
    ulps: Mapping[str, int]
    counterexample: Counterexample | None
    engines: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def max_ulp(self) -> int:
        """Largest distance over all dtypes."""
        return max(self.ulps.values(), default=0)

    def __bool__(self) -> bool:
        return self.counterexample is None and self.cases > 0

    def __str__(self) -> str:
        if self.counterexample is not None:
            head = f"different: {self.counterexample}"
        elif self.cases == 0:
            head = "nothing compared: the original failed on all inputs"
        else:
            head = f"equal, bit for bit, in {self.cases} cases ({', '.join(self.engines)})"
        both = [f"both models failed in {self.failures} more cases"] if self.failures else []
        return "\n  ".join([head, *both, *self.notes])

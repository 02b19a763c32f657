"""The report of `looplift.explain`: a sequence of findings that reads as text and as JSON."""

from __future__ import annotations

import collections
import dataclasses
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from looplift.pages.sketch import Sketch
from looplift.passes.report import Finding
from looplift.runtime.text import visible
from looplift.wording import count, join_like, shortener

STILL = ": never changes"
"""How the sentence of an invariant carry ends."""


NOT_LIFTED = ("reduced", "left, simplified", "left")
"""What becomes of loops that are not lifted, the best first (see `outcome`)."""


@dataclasses.dataclass(frozen=True)
class Report(Sequence[Finding]):
    """One finding per Loop and Scan of a model.

    Attributes:
        findings: in the order of the model.
        model: what the report is about, for the heading.
        instead: what a model without loops has in their place; may be empty.
        problem: why the model could not be looked into; empty if it could.
        figures: for each finding what `to_html` draws; may be left empty.
    """

    findings: tuple[Finding, ...]
    model: str = "the model"
    problem: str = ""
    instead: str = ""
    figures: tuple[tuple[Sketch, ...], ...] = dataclasses.field(default=(), repr=False, compare=False)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def lifted(self) -> tuple[Finding, ...]:
        """The loops that become kernels."""
        return tuple(finding for finding in self.findings if finding.lifted)

    @property
    def left(self) -> tuple[Finding, ...]:
        """The loops that stay, each with its reason."""
        return tuple(finding for finding in self.findings if not finding.lifted)

    def summary(self) -> str:
        """One line: how many loops, and what became of them."""
        if self.problem:
            return visible(f"{self.model}: {self.problem}")
        if not self.findings:
            return visible(f"{self.model}: no Loop or Scan{f' ({self.instead})' if self.instead else ''}")
        outcomes = collections.Counter(map(outcome, self))
        told = [f"{len(self.lifted)} of {count(len(self), 'loop')} lifted"]
        told[0] += f" ({outcomes['vectorised']} vectorised)" if outcomes["vectorised"] else ""
        told += [f"{outcomes[name]} {name}{self._work_left(name)}" for name in NOT_LIFTED if outcomes[name]]
        return visible(f"{self.model}: {'; '.join(told)}")

    def _work_left(self, name: str) -> str:
        """What an iteration of the loops with this outcome still runs, all of them together."""
        those = [finding for finding in self if outcome(finding) == name]
        before, left = sum(finding.operators for finding in those), sum(finding.left for finding in those)
        return f" (an iteration runs {left:,} of {count(before, 'operator')})" if left < before else ""

    def __str__(self) -> str:
        short = short_names(self)
        return "\n".join([self.summary(), *(_paragraph(finding, short) for finding in self)])

    def to_json(self, **more: Any) -> str:
        """The report as a JSON object: ``model``, ``problem``, ``loops``, ``lifted``, ``outcomes`` and ``findings``,
        and what else is given.

        Each finding has its `outcome` besides its attributes; all names are in full.
        """
        told = {
            "model": self.model,
            "problem": self.problem,
            "loops": len(self),
            "lifted": len(self.lifted),
            "outcomes": collections.Counter(map(outcome, self)),
            "findings": [{"outcome": outcome(finding), **dataclasses.asdict(finding)} for finding in self],
        }
        return json.dumps(told | more, indent=2)

    def to_html(self) -> str:
        """The report as one HTML page without scripts, with every loop's body and what stands for it as drawings."""
        from looplift.pages.page import Entry, render  # jinja2 is needed for nothing else here

        short = short_names(self)
        figures = self.figures or ((),) * len(self)
        entries = [
            Entry(
                title(finding),
                outcome(finding),
                [(label, [*map(short, told)]) for label, told in facts(finding)],
                drawn,
            )
            for finding, drawn in zip(self, figures, strict=True)
        ]
        return render(self.summary(), entries)


def title(finding: Finding) -> str:
    """How to name a loop to a person: type, name and, inside another graph, where."""
    name = f"{finding.op_type} {finding.node}" if finding.node else f"unnamed {finding.op_type}"
    return visible(name if finding.path in ("", "/") else f"{name} in {finding.path}")


def outcome(finding: Finding) -> str:
    """What became of a loop, in a word or two.

    ``lifted``: into recurrence nodes; ``vectorised``: into ordinary ops over all iterations, no custom node is needed;
    ``reduced``: a recurrence was lifted out of it, and a loop is left, of that recurrence alone or of what else there
    was; ``left, simplified``: it stays with less in it, or in a form that engines run faster; ``left``.
    """
    if finding.lifted:
        return "lifted" if finding.recurrence else "vectorised"
    if finding.recurrence:
        return "reduced"
    return "left, simplified" if finding.actions else "left"


def short_names(findings: Iterable[Finding]) -> Callable[[str], str]:
    """Shortens the long names that these findings speak of, and shows control characters in them."""
    short = shortener(line for finding in findings for _, lines in facts(finding) for line in lines)
    return lambda text: visible(short(text))


def _paragraph(finding: Finding, short: Callable[[str], str]) -> str:
    lines = [f"  {title(finding)}: {outcome(finding)}"]
    for label, told in facts(finding):
        head, *others = [short(sentence) for sentence in told]
        lines.append(_wrap(f"{label}:" if others else f"{label}: {head}", 4))
        lines += [_wrap(sentence, 6) for sentence in ([head, *others] if others else [])]
    return "\n".join(lines)


def facts(finding: Finding) -> list[tuple[str, list[str]]]:
    """What there is to tell of a loop, in sentences under labels; labels with nothing to tell are left out."""
    carries, others = _carries(finding)
    fewer = 0 < finding.left < finding.operators
    work = f"runs {finding.left:,} of {count(finding.operators, 'operator')}" if fewer else ""
    told = [
        ("reason", [finding.reason]),
        ("computes", others),
        ("trip count", [finding.trip_count]),
        ("carries", numbered(carries)),
        ("done", join_like(finding.actions)),
        (
            "an iteration",
            [work],
        ),
    ]
    return [(label, lines) for label, lines in told if any(lines)]


def _carries(finding: Finding) -> tuple[list[str], list[str]]:
    """A sentence for each carry, that of its recurrence if one was found; and the other recurrences."""
    found = {_subject(sentence): sentence for sentence in finding.recurrence.split("; ") if sentence}
    return [found.pop(_subject(carry), carry) for carry in finding.carries], list(found.values())


def _subject(sentence: str) -> str:
    return sentence.partition(": ")[0]


def numbered(carries: Sequence[str]) -> list[str]:
    """The carries by their number, the invariant ones together behind the others."""
    still = [(k, carry.removesuffix(STILL)) for k, carry in enumerate(carries, 1) if carry.endswith(STILL)]
    moving = [f"{k}. {carry}" for k, carry in enumerate(carries, 1) if not carry.endswith(STILL)]
    if not still:
        return moving
    numbers, names = (", ".join(column) for column in zip(*((str(k), name) for k, name in still), strict=True))
    return [*moving, f"{numbers}. {names}: {'never changes' if len(still) == 1 else 'never change'}"]


def _wrap(text: str, indent: int) -> str:
    return textwrap.fill(
        text,
        120,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )

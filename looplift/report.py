"""The report of `looplift.explain`: a sequence of findings that reads as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import overload

from looplift.passes.report import Finding


@dataclasses.dataclass(frozen=True)
class Report(Sequence[Finding]):
    """One finding per Loop and Scan of a model.

    Attributes:
        findings: in the order of the model.
        model: what the report is about, for the heading.
        problem: why the model could not be looked into; empty if it could.
    """

    findings: tuple[Finding, ...]
    model: str = "the model"
    problem: str = ""

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
        """One line: how many loops, how many are lifted."""
        if self.problem:
            return f"{self.model}: {self.problem}"
        if not self.findings:
            return f"{self.model}: no Loop or Scan"
        return f"{self.model}: {len(self.lifted)} of {_count(len(self), 'loop')} lifted"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(_text(finding) for finding in self.findings)])

    def to_json(self) -> str:
        """The report as a JSON object: ``model``, ``problem``, ``loops``, ``lifted`` and ``findings``."""
        return json.dumps(
            {
                "model": self.model,
                "problem": self.problem,
                "loops": len(self),
                "lifted": len(self.lifted),
                "findings": [dataclasses.asdict(finding) for finding in self.findings],
            },
            indent=2,
        )


def title(finding: Finding) -> str:
    """How to name a loop to a person: type, name and, inside another graph, where."""
    name = f"{finding.op_type} {finding.node}" if finding.node else f"unnamed {finding.op_type}"
    return name if finding.path in ("", "/") else f"{name} in {finding.path}"


def _text(finding: Finding) -> str:
    state = "lifted" if finding.lifted else "left"
    lines = [f"  {title(finding)}: {state}"]
    facts = (
        ("recurrence", finding.recurrence),
        ("trip count", finding.trip_count),
        *(("carry", carry) for carry in finding.carries),
        *(("done", action) for action in finding.actions),
        ("reason", finding.reason),
    )
    for label, fact in facts:
        if fact:
            indent = " " * 16
            lines.append(textwrap.fill(f"{label}: {fact}", 120, initial_indent="    ", subsequent_indent=indent))
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

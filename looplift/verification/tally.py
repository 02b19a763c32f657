"""Counts the cases of a check, and keeps the first difference."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Literal

import onnx_ir as ir

from looplift.verification.cases.made_up import Case
from looplift.verification.compare import Comparison, Tolerance, Value, compare
from looplift.verification.engines import Engine, Outcome, Pair
from looplift.verification.last_bits.draws import NO_DRAWS, Draws, draws_of_outputs
from looplift.verification.last_bits.excuses import Excused, Excuses, some
from looplift.verification.outcome import Check, Counterexample

_ATTEMPTS = 32
"""So often a model that draws random numbers may fail by them before it counts as one that fails."""


@dataclasses.dataclass(frozen=True)
class Output:
    """What the original says of one of its outputs: the rank that it declares, if any, and on what draws it depends."""

    name: str
    rank: int | None = None
    draws: Draws = NO_DRAWS


def outputs_of(model: ir.Model) -> list[Output]:
    """The outputs of the original."""
    draws = draws_of_outputs(model)
    return [
        Output(value.name or "", None if value.shape is None else len(value.shape), drawn)
        for value, drawn in zip(model.graph.outputs, draws, strict=True)
    ]


class Tally:
    """Counts cases and keeps the first difference."""

    def __init__(self) -> None:
        self.prepare((), 0, None)
        self._compared: set[str] = set()
        self._engines: dict[str, None] = {}  # an ordered set
        self._started: set[str] = set()
        self._failed: set[str] = set()
        self._late: set[str] = set()
        self._too_large: set[str] = set()
        self._reasons: collections.Counter[str] = collections.Counter()
        self._skipped: set[str] = set()
        self._ulps: dict[str, int] = {}
        self._random: dict[str, Draws] = {}
        self._last_bits: dict[tuple[str, str], Excused] = {}
        self._notes: dict[str, list[str]] = {}
        self._counterexample: Counterexample | None = None

    def prepare(self, outputs: Sequence[Output], ulp: int, excuses: Excuses | None) -> None:
        """What is known once the models are read: the outputs, how far apart results may be, and why."""
        self._outputs = outputs
        self._ulp = ulp
        self._excuses = excuses

    def empty(self) -> Tally:
        """Another one for the same models, without cases."""
        tally = Tally()
        tally.prepare(self._outputs, self._ulp, self._excuses)
        return tally

    @property
    def counterexample(self) -> Counterexample | None:
        """The first difference."""
        return self._counterexample

    @property
    def agrees(self) -> bool:
        """Whether no difference was found so far."""
        return self._counterexample is None

    def note(self, text: str, detail: str = "") -> None:
        """Keeps a note; the same one again is counted, with the first detail."""
        self._notes.setdefault(text, []).append(detail)

    def notes(self) -> tuple[str, ...]:
        """The notes so far, each once."""
        return tuple(_note(text, details) for text, details in self._notes.items())

    def start(self, case: Case) -> None:
        """A case begins."""
        self._started.add(case.label)

    @property
    def started(self) -> int:
        """How many cases began."""
        return len(self._started)

    @property
    def out_of(self) -> Literal["memory", "time"] | None:
        """What the original ran out of in every case so far, if there was one: of memory, or of either."""
        if not self._started or self._compared or self._started - self._too_large - self._late:
            return None
        return "time" if self._late else "memory"

    def differ(self, counterexample: Counterexample) -> None:
        """Keeps a difference, if it is the first."""
        self._counterexample = self._counterexample or counterexample

    def shrink(self, counterexample: Counterexample) -> None:
        """Puts a smaller one in the first difference's place."""
        case = f"{counterexample.case.partition(':')[0]}, made smaller"
        self._counterexample = dataclasses.replace(counterexample, case=case)

    def add(self, pair: Pair, case: Case, expected: Outcome, reference: list[Value] | None) -> bool:
        """Runs the rewritten models on a case and counts; returns whether other engines should run it too."""
        if expected.out_of_memory and case.label not in self._compared:
            self._too_large.add(case.label)
            self._add_failure(case, expected, expected)  # what is not known to fit is not tried again
            return False
        if expected.timed_out:
            self._late.add(case.label)
            self.note(f"{pair.name} on the original: {expected.error}", case.label)
            return True
        if expected.failed and case.label in self._compared:
            self.note(f"{pair.name} fails on the original where the interpreter does not", expected.error)
            return False
        for name, engine in pair.rewritten:
            got = self._run(engine, case)
            if expected.outputs is None or reference is None:
                self._add_failure(case, expected, got)
            elif got.timed_out and not _hangs(expected, got):
                self.note(f"{name} on the rewritten model: {got.error}", case.label)
            elif got.out_of_memory:
                self.note(f"{name} on the rewritten model: not enough memory, where the original has", got.error)
            elif got.outputs is None:
                message = f"the original gives a result, the rewritten model fails: {got.error}"
                self.differ(Counterexample(case.label, case.feeds, name, "", None, None, message))
            else:
                self._compare(pair, case, name, expected.outputs, got.outputs, reference)
        return not expected.failed

    def _run(self, engine: Engine, case: Case) -> Outcome:
        got = engine.run(case.feeds)
        if any(output.draws for output in self._outputs):
            for _ in range(_ATTEMPTS - 1):
                got = engine.run(case.feeds) if got.failed else got
        return got

    def _add_failure(self, case: Case, expected: Outcome, got: Outcome) -> None:
        if case.label not in self._failed | self._skipped:
            self._reasons[expected.error] += 1
        if got.failed:
            self._failed.add(case.label)
        elif case.label not in self._skipped:
            self._skipped.add(case.label)
            self.note("the original fails where the rewritten model gives a result", expected.error)

    def _compare(
        self,
        pair: Pair,
        case: Case,
        engine: str,
        expected: list[Value],
        got: list[Value],
        reference: list[Value],
    ) -> None:
        self._compared.add(case.label)
        self._engines[pair.name] = None
        for place, (one, other, right) in enumerate(zip(expected, got, reference, strict=True)):
            name = self._outputs[place].name
            result = self._compare_output(pair, case, place, one, other)
            if not result.equal and compare(right, other).equal:
                # The engine is wrong about the original: some are about bodies that return their own inputs.
                self.note(
                    f"{pair.name} runs the rewritten model as the standard says, the original not", result.message
                )
                continue
            if result.dtype:
                self._ulps[result.dtype] = max(self._ulps.get(result.dtype, 0), result.ulp)
            if not result.equal:
                self.differ(Counterexample(case.label, case.feeds, engine, name, one, other, result.message))

    def _compare_output(self, pair: Pair, case: Case, place: int, expected: Value, got: Value) -> Comparison:
        output = self._outputs[place]
        tolerance = Tolerance(self._ulp, shape_of_empty=pair.strict, zero_is_unknown=True, rank=output.rank)
        result = compare(expected, got, tolerance)
        if result.equal:
            return result
        if output.draws:
            self._random[output.name] = output.draws
            return compare(expected, got, dataclasses.replace(tolerance, numbers=False, shapes=not output.draws.shape))
        return self._excused(pair, case, place, (expected, got), tolerance, result)

    def _excused(
        self, pair: Pair, case: Case, place: int, values: tuple[Value, Value], tolerance: Tolerance, result: Comparison
    ) -> Comparison:
        """The result with last bits excused, where an engine decides about them, or with a hint that it is not these.

        Functions and products have the same bits everywhere in numpy; sums may be added in any order anywhere.
        """
        claims = self._excuses.claims(place, everywhere=pair.strict) if self._excuses is not None else ()
        if self._excuses is None or not claims:
            return result
        allowed = self._excuses.allowed(tolerance, case.feeds, place, everywhere=pair.strict)
        excused = compare(*values, allowed) if allowed is not None else result
        if allowed is None or not excused.equal:
            hint = f"more than rounding {some(claims)} in another way explains"
            return dataclasses.replace(result, message=f"{result.message}; {hint}")
        excuse = self._last_bits.setdefault((self._outputs[place].name, pair.name), Excused(claims))
        excuse.add(case.label, excused, measured=allowed.spread is not None)
        return excused

    def check(self, asked: int, given: Sequence[str] = (), *, allow_few: bool = False) -> Check:
        """The result.

        Args:
            asked: how many cases were to run.
            given: labels of those that the person gave.
            allow_few: see `Check`.
        """
        reasons = self._reasons.copy()
        if late := len(self._late - self._compared - self._failed - self._skipped):
            reasons["it took too long"] = late
        return Check(
            cases=len(self._compared),
            failures=len(self._failed - self._skipped),
            skipped=len(self._skipped),
            ulps=dict(self._ulps),
            counterexample=self._counterexample,
            engines=tuple(self._engines),
            notes=(
                *self.notes(),
                *(f"output {name!r} in {where}: {excuse}" for (name, where), excuse in self._last_bits.items()),
                *(_drawn(name, draws) for name, draws in self._random.items()),
            ),
            last_bits=tuple(dict.fromkeys(name for name, _ in self._last_bits)),
            started=self.started,
            asked=asked,
            reasons=dict(reasons.most_common()),
            random=tuple(self._random),
            outputs=len(self._outputs),
            given=len(given),
            given_compared=len(self._compared.intersection(given)),
            allow_few=allow_few,
        )


_HANGS = 20
"""A rewritten model without an answer after so many times what the original took is taken for one that never ends."""


def _hangs(expected: Outcome, got: Outcome) -> bool:
    return got.seconds > _HANGS * expected.seconds


def _drawn(name: str, draws: Draws) -> str:
    compared = (
        "its dtype is compared, its shape and numbers are not"
        if draws.shape
        else ("its dtype and shape are compared, its numbers are not")
    )
    return f"output {name!r} depends on random numbers, by {', '.join(draws.nodes)}: {compared}"


def _note(text: str, details: Sequence[str]) -> str:
    times = f" ({len(details)} times)" if len(details) > 1 else ""
    return f"{text}{times}" + (f", first: {details[0]}" if details[0] else "")

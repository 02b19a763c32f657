"""`verify`: runs the original and the rewritten model on the same inputs and compares bit for bit."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift import interop
from looplift.runtime.errors import LoopliftError
from looplift.verification.cases.made_up import Case, Cases, Feeds
from looplift.verification.cases.shrink import shrink
from looplift.verification.cases.trips import trip_inputs
from looplift.verification.compare import Value
from looplift.verification.deadline import run_within
from looplift.verification.engines import OnnxRuntime, Pair, has_onnxruntime
from looplift.verification.last_bits.excuses import Excuses
from looplift.verification.outcome import Check
from looplift.verification.pairs import interpreter_pair, longest_run, onnxruntime_pair
from looplift.verification.tally import Tally, outputs_of

SHARE_OF_SHRINKING = 0.25
"""Of the whole check's time, the most that goes into making a counterexample smaller."""


def verify(
    original: interop.ModelLike,
    model: interop.ModelLike,
    inputs: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    *,
    cases: int = 48,
    seed: int = 0,
    seconds: float = 60.0,
    ulp: int = 0,
    device: str = "numpy",
    onnxruntime: bool | None = None,
    allow_few: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Compares two models on inputs given and made up.

    Each case runs in our interpreter (the original; the rewritten with our kernels; the rewritten with our ops'
    definitions) and in ONNX Runtime (both models; the rewritten also with our kernels for it, where these are built).
    An original with ops that one of the two does not know runs in the other alone, and a note says so. Results count as
    equal if dtype, shape and bits are; any NaN equals any NaN. If both models fail on an input, they agree. The first
    difference is made smaller: few iterations, small dims, simple numbers.

    Args:
        original: a model of any kind.
        model: the rewritten one, with inputs and outputs of the same names.
        inputs: one set of inputs, or several; they are checked first.
        cases: how many sets are made up besides: all trip counts of -1, 0, 1, 2, 17 and 300, sizes of unknown dims
            from 0 to 17, special floats, halfway cases, random bits; the numbers that the models compare with or
            have as constants, and what is next to them; the rest in log scale.
        seed: the made-up inputs follow from it (and, where runs are slow, from how long they take).
        seconds: the check ends after this time, with what it found until then; a single run gets a quarter of it.
        ulp: elements may be so many units in the last place apart (for a model rewritten with ``exact=False``).
            Where a lifted model computes sums (MatMul, ReduceSum) for all iterations at once, or in ONNX Runtime
            functions such as Log, the last bits may differ without it, and a note says so: the engine, not the
            rewrite, decides in which order it adds, and how it rounds a function where in a tensor.
        device: ``"webgpu"`` runs the kernels there too.
        onnxruntime: also use ONNX Runtime; None: if it is installed.
        allow_few: the check is true even if the original failed in more than two thirds of the cases, and in some of
            the `inputs`, or without any.
        progress: called with the number of cases done and the number to do.

    Returns:
        A `Check`.

    Raises:
        LoopliftError: a model is refused, no engine takes the original, the two have different inputs or outputs, or
            the device is not there.
    """
    given = [inputs] if isinstance(inputs, Mapping) else list(inputs or ())
    run = _Run(given, cases, seed, seconds, ulp, device, onnxruntime, progress)
    if not run_within(seconds, lambda: run.work(original, model), run.close):
        run.tally.note(f"stopped after {run.tally.started} of {run.asked} cases: {seconds:.3g} s are over")
    return run.tally.check(run.asked, [_label(k) for k in range(len(given))], allow_few=allow_few)


HOPELESS = {"memory": 0.2, "time": 0.4}
"""Shares of the whole check's time after which it ends if the original ran out of it in all cases until then."""


@dataclasses.dataclass
class _Run:
    """One check while it runs."""

    given: Sequence[Mapping[str, Any]]
    cases: int
    seed: int
    seconds: float
    ulp: int
    device: str
    onnxruntime: bool | None
    progress: Callable[[int, int], None] | None
    tally: Tally = dataclasses.field(default_factory=Tally)
    engines: list[OnnxRuntime] = dataclasses.field(default_factory=list)
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def asked(self) -> int:
        """How many cases are to run."""
        return len(self.given) + self.cases

    def work(self, original: interop.ModelLike, model: interop.ModelLike) -> None:
        """Reads the models and runs the cases."""
        sources = interop.read(original), interop.read(model)
        for source in sources:
            source.require_data()
        models = interop.to_ir(sources[0]), interop.to_ir(sources[1])
        _require_same_ports(*models)
        excuses = Excuses(*models, seconds=longest_run(self.seconds))
        self.tally.prepare(outputs_of(models[0]), self.ulp, excuses)
        with contextlib.ExitStack() as stack:
            pairs = self._pairs(sources, models, stack)
            made = Cases(models, seed=self.seed, runs=_runs(pairs), endless=bool(pairs) and pairs[0].strict)
            for done, case in enumerate(self._todo(made)):
                if self.progress is not None:
                    self.progress(done, self.asked)
                self.tally.start(case)
                agreed, began = self.tally.agrees, time.monotonic()
                ran = _run_case(case, pairs, self.tally)
                made.learn(case, ran=ran, seconds=time.monotonic() - began)
                if agreed and not self.tally.agrees:
                    self._shrink(pairs, models[0])
                if (out := self.tally.out_of) and time.monotonic() - self.began > HOPELESS[out] * self.seconds:
                    all_so_far = f"the original ran out of {out} in all of the first {done + 1} cases"
                    self.tally.note(f"stopped after {done + 1} of {self.asked} cases: {all_so_far}")
                    break

    def _pairs(
        self, sources: Sequence[interop.Source], models: tuple[ir.Model, ir.Model], stack: contextlib.ExitStack
    ) -> list[Pair]:
        pairs = list(interpreter_pair(models, self.device, longest_run(self.seconds), self.tally))
        if self.onnxruntime or (self.onnxruntime is None and has_onnxruntime()):
            pairs += onnxruntime_pair(sources, models, self.seconds, self.tally, stack, self.engines)
        if not pairs and self.tally.agrees:
            raise LoopliftError(f"nothing can be compared: {'; '.join(self.tally.notes())}")
        return pairs

    def _todo(self, made: Cases) -> Iterator[Case]:
        yield from (Case(_label(k), _arrays(feeds)) for k, feeds in enumerate(self.given))
        yield from itertools.islice(made, self.cases)

    def _shrink(self, pairs: Sequence[Pair], model: ir.Model) -> None:
        """Looks for smaller inputs on which the same engine differs in the same way."""
        first = self.tally.counterexample
        if first is None or not first.feeds:
            return
        only = [_restricted(pair, first.engine) for pair in pairs if pair.strict or first.engine == pair.name]

        def differ(feeds: Feeds) -> bool:
            tally = self.tally.empty()
            _run_case(Case(first.case, feeds), only, tally)
            found = tally.counterexample
            if found is None or found.engine != first.engine or found.aspect != first.aspect:
                return False
            self.tally.shrink(found)
            return True

        shrink(first.feeds, model.graph.inputs, trip_inputs(model), differ, self.seconds * SHARE_OF_SHRINKING)

    def close(self) -> None:
        """Ends the processes that the work may be waiting for."""
        for engine in self.engines:
            engine.close()


def _restricted(pair: Pair, engine: str) -> Pair:
    """The pair with no other engine for the rewritten model; perhaps none, but a reference still."""
    return dataclasses.replace(pair, rewritten=tuple(each for each in pair.rewritten if each[0] == engine))


def _runs(pairs: Sequence[Pair]) -> Callable[[Feeds], bool] | None:
    """Whether the original gives a result, in the first engine that there is."""
    return (lambda feeds: not pairs[0].original.run(feeds).failed) if pairs else None


def _run_case(case: Case, pairs: Sequence[Pair], tally: Tally) -> bool:
    """Runs one case in every engine, the interpreter first: what it gives for the original is the reference.

    Returns:
        Whether the original gave a result.
    """
    reference: list[Value] | None = None
    for pair in pairs:
        expected = pair.original.run(case.feeds)
        reference = expected.outputs if reference is None else reference
        if not tally.add(pair, case, expected, reference):
            break
    return reference is not None


def _label(given: int) -> str:
    return f"given case {given}"


def _arrays(feeds: Mapping[str, Any]) -> Feeds:
    """Numbers as arrays, which ONNX Runtime wants; sequences and absent optionals as they are."""
    return {
        name: value if value is None or isinstance(value, list | tuple) else np.asarray(value)
        for name, value in feeds.items()
    }


def _require_same_ports(original: ir.Model, model: ir.Model) -> None:
    for kind in ("inputs", "outputs"):
        before, after = ([value.name for value in getattr(each.graph, kind)] for each in (original, model))
        if before != after:
            raise LoopliftError(f"the models have different {kind}: {before} and {after}; they can't be compared")

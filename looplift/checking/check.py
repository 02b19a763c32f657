"""`verify`: runs the original and the rewritten model on the same inputs and compares bit for bit."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift import interop
from looplift.checking import feeds as feeds_file
from looplift.checking.compare import Tolerance, Value, compare
from looplift.checking.engines import Engine, Interpreter, OnnxRuntime, Outcome, file_for_onnxruntime, has_onnxruntime
from looplift.checking.inputs import Case, Feeds, generate
from looplift.passes.over_time.last_bits import marks
from looplift.runtime.errors import LoopliftError

LONGEST_RUN = 30.0
"""Seconds; a single run that takes longer counts as an error."""


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
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Compares two models on inputs given and made up.

    Each case runs in our interpreter (the original; the rewritten with our kernels; the rewritten with our ops'
    definitions) and in ONNX Runtime (both models). An original with ops that one of the two does not know runs in the
    other alone, and a note says so. Results count as equal if dtype, shape and bits are; any NaN equals any NaN. If
    both models fail on an input, they agree.

    Args:
        original: a model of any kind.
        model: the rewritten one, with inputs and outputs of the same names.
        inputs: one set of inputs, or several; they are checked first.
        cases: how many sets are made up besides: all trip counts of -1, 0, 1, 2, 17 and 300, sizes of unknown dims
            from 0 to 17, special floats, halfway cases, random bits.
        seed: the made-up inputs follow from it.
        seconds: no further case begins after this time; the first always runs.
        ulp: elements may be so many units in the last place apart (for a model rewritten with ``exact=False``).
            Where a lifted model computes sums (MatMul, ReduceSum) for all iterations at once, or in ONNX Runtime
            functions such as Log, the last bits may differ without it, and a note says so: the engine, not the
            rewrite, decides in which order it adds, and how it rounds a function where in a tensor.
        device: ``"webgpu"`` runs the kernels there too.
        onnxruntime: also use ONNX Runtime; None: if it is installed.
        progress: called with the number of cases done and the number to do.

    Returns:
        A `Check`.

    Raises:
        LoopliftError: a model is refused, no engine takes the original, the two have different inputs or outputs, or
            the device is not there.
    """
    sources = interop.read(original), interop.read(model)
    for source in sources:
        source.require_data()
    models = interop.to_ir(sources[0]), interop.to_ir(sources[1])
    _require_same_ports(*models)
    given = [inputs] if isinstance(inputs, Mapping) else list(inputs or ())
    generated = itertools.islice(generate(models[0], seed=seed), cases)
    todo = itertools.chain((Case(f"given case {k}", _arrays(feeds)) for k, feeds in enumerate(given)), generated)
    outputs = [value.name or "" for value in models[0].graph.outputs]
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        tally = _Tally(outputs, ulp, marks(models[1]))
        pairs = list(_interpreter_pair(models, device, min(seconds, LONGEST_RUN), tally))
        if onnxruntime or (onnxruntime is None and has_onnxruntime()):
            pairs += _onnxruntime_pair(sources, models, seconds, tally, stack)
        if not pairs and tally.agrees:
            raise LoopliftError(f"nothing can be compared: {'; '.join(tally.notes())}")
        for done, case in enumerate(todo):
            if done and time.monotonic() > deadline:
                tally.note(f"stopped after {done} of {len(given) + cases} cases: {seconds:.0f} s are over")
                break
            if progress is not None:
                progress(done, len(given) + cases)
            _run_case(case, pairs, tally)
    return tally.check()


def _run_case(case: Case, pairs: Sequence[_Pair], tally: _Tally) -> None:
    """Runs one case in every engine, the interpreter first: what it gives for the original is the reference."""
    reference: list[Value] | None = None
    for pair in pairs:
        expected = pair.original.run(case.feeds)
        reference = expected.outputs if reference is None else reference
        if not tally.add(pair, case, expected, reference):
            return


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


@dataclasses.dataclass(frozen=True)
class _Pair:
    """The same engine with the original and with rewritten models; ``strict``: shapes of empty tensors count."""

    name: str
    original: Engine
    rewritten: tuple[tuple[str, Engine], ...]
    strict: bool


def _interpreter_pair(models: tuple[ir.Model, ir.Model], device: str, seconds: float, tally: _Tally) -> Iterator[_Pair]:
    try:
        original = Interpreter(models[0], seconds=seconds)
    except LoopliftError as error:  # an op of another domain, say
        tally.note(f"not run in the interpreter: {error}")
        return
    engines: list[tuple[str, Engine]] = [
        ("interpreter with kernels", Interpreter(models[1], seconds=seconds)),
        ("interpreter with definitions", Interpreter(models[1], seconds=seconds, definitions=True)),
    ]
    if device != "numpy":
        engines.append((f"kernels on {device}", Interpreter(models[1], seconds=seconds, device=device)))
    yield _Pair("interpreter", original, tuple(engines), strict=True)


def _onnxruntime_pair(
    sources: Sequence[interop.Source],
    models: Sequence[ir.Model],
    seconds: float,
    tally: _Tally,
    stack: contextlib.ExitStack,
) -> Iterator[_Pair]:
    if not has_onnxruntime():
        raise LoopliftError("onnxruntime is not installed; install looplift[ort]")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="looplift-")))
    engines: list[OnnxRuntime] = []
    for source, model in zip(sources, models, strict=True):
        engines.append(OnnxRuntime(file_for_onnxruntime(source, model, folder), seconds=min(seconds, LONGEST_RUN)))
        stack.callback(engines[-1].close)
    original, rewritten = engines
    try:
        original.wait_until_loaded()
    except LoopliftError as error:
        tally.note(f"not run in ONNX Runtime: {error}")
        return
    try:
        rewritten.wait_until_loaded()
    except LoopliftError as error:
        message = f"the original loads, the rewritten model does not: {error}"
        tally.differ(Counterexample("loading", {}, "ONNX Runtime", "", None, None, message))
        return
    yield _Pair("ONNX Runtime", original, (("ONNX Runtime", rewritten),), strict=False)


class _Tally:
    """Counts cases and keeps the first difference."""

    def __init__(self, outputs: Sequence[str], ulp: int, last_bits: frozenset[str]) -> None:
        self._outputs = outputs
        self._ulp = ulp
        self._last_bits = last_bits
        self._compared: set[str] = set()
        self._engines: dict[str, None] = {}  # an ordered set
        self._failed: set[str] = set()
        self._skipped: set[str] = set()
        self._ulps: dict[str, int] = {}
        self._notes: dict[str, list[str]] = {}
        self._counterexample: Counterexample | None = None

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

    def differ(self, counterexample: Counterexample) -> None:
        """Keeps a difference, if it is the first."""
        self._counterexample = self._counterexample or counterexample

    def add(self, pair: _Pair, case: Case, expected: Outcome, reference: list[Value] | None) -> bool:
        """Runs the rewritten models on a case and counts; returns whether other engines should run it too."""
        if expected.failed and case.label in self._compared:
            self.note(f"{pair.name} fails on the original where the interpreter does not", expected.error)
            return False
        for name, engine in pair.rewritten:
            got = engine.run(case.feeds)
            if expected.outputs is None or reference is None:
                self._add_failure(case, expected, got)
            elif got.outputs is None:
                message = f"the original gives a result, the rewritten model fails: {got.error}"
                self.differ(Counterexample(case.label, case.feeds, name, "", None, None, message))
            else:
                self._compare(pair, case, name, expected.outputs, got.outputs, reference)
        return not expected.failed

    def _add_failure(self, case: Case, expected: Outcome, got: Outcome) -> None:
        if got.failed:
            self._failed.add(case.label)
        elif case.label not in self._skipped:
            self._skipped.add(case.label)
            self.note("the original fails where the rewritten model gives a result", expected.error)

    def _compare(
        self,
        pair: _Pair,
        case: Case,
        engine: str,
        expected: list[Value],
        got: list[Value],
        reference: list[Value],
    ) -> None:
        self._compared.add(case.label)
        self._engines[pair.name] = None
        for name, one, other, right in zip(self._outputs, expected, got, reference, strict=True):
            result = compare(one, other, self._tolerance(pair))
            if not result.equal and compare(right, other).equal:
                # The engine is wrong about the original: some are about bodies that return their own inputs.
                self.note(
                    f"{pair.name} runs the rewritten model as the standard says, the original not", result.message
                )
                continue
            if result.equal and result.message:
                self.note(f"{result.message} in {pair.name}: an engine chooses how it adds and approximates", name)
            if result.dtype:
                self._ulps[result.dtype] = max(self._ulps.get(result.dtype, 0), result.ulp)
            if not result.equal:
                self.differ(Counterexample(case.label, case.feeds, engine, name, one, other, result.message))

    def _tolerance(self, pair: _Pair) -> Tolerance:
        """Functions and products have the same bits everywhere in numpy; sums may be added in any order anywhere."""
        last_bits = "sums" in self._last_bits or (bool(self._last_bits) and not pair.strict)
        return Tolerance(self._ulp, shape_of_empty=pair.strict, zero_is_unknown=True, last_bits=last_bits)

    def check(self) -> Check:
        """The result."""
        return Check(
            cases=len(self._compared),
            failures=len(self._failed - self._skipped),
            skipped=len(self._skipped),
            ulps=dict(self._ulps),
            counterexample=self._counterexample,
            engines=tuple(self._engines),
            notes=self.notes(),
        )


def _note(text: str, details: Sequence[str]) -> str:
    times = f" ({len(details)} times)" if len(details) > 1 else ""
    return f"{text}{times}" + (f", first: {details[0]}" if details[0] else "")

"""A program in every engine, as it is and optimized for both targets: what differs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as states

from looplift import interop, optimizer
from looplift.passes import pipeline
from looplift.passes.graph.last_bits import marks
from looplift.report import Report
from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError
from looplift.verification.compare import Tolerance, compare
from programs.generate import FIRST, Feeds, Program

Run = Callable[[Feeds], Sequence[Any]]
Expected = dict[str, dict[str, Sequence[Any] | None]]
"""By engine and inputs."""

TARGETS = ("kernel", "standard")
SESSION = "Session"
BARE = "ONNX Runtime without optimizers"
LEVELS = {
    "ONNX Runtime": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    BARE: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
MOST_ITERATIONS = 10_000
LONGEST_RUN = 3.0
"""Seconds, in ONNX Runtime."""

ORT_ERRORS = (
    RuntimeError,  # of inputs whose type numpy does not know, such as bfloat16
    *(
        getattr(states, name)
        for name in dir(states)
        if isinstance(getattr(states, name), type) and issubclass(getattr(states, name), Exception)
    ),
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where the optimized model is not the original.

    Attributes:
        kind: ``optimize``, ``model`` (what the checker says), ``load``, ``error`` or ``value``.
        target: of the optimization.
        engine: where it was seen.
        case: the name of the inputs.
        message: what differs.
    """

    kind: str
    target: str
    engine: str = ""
    case: str = ""
    message: str = ""

    def __str__(self) -> str:
        return ", ".join(word for word in (self.kind, self.target, self.engine, self.case, self.message) if word)


@dataclasses.dataclass
class Outcome:
    """What became of one program.

    Attributes:
        differences: empty if all is well.
        ran: engines in which the original gave a result for some inputs.
        as_written: those in which it did for the inputs it was written for.
        reports: of both targets.
    """

    differences: list[Difference]
    ran: set[str]
    as_written: set[str]
    reports: list[Report]


def check(program: Program, only: Difference | None = None) -> Outcome:
    """Optimizes and runs a program; `only` asks for nothing but this difference."""
    outcome = Outcome([], set(), set(), [])
    originals = {
        name: load
        for name, load in engines(program.model).items()
        if only is None or only.engine in ("", name) or name == SESSION
    }
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = everywhere(originals, survivable(program))
        outcome.ran = {name for name, results in expected.items() if any(r is not None for r in results.values())}
        outcome.as_written = {name for name, results in expected.items() if results.get(FIRST) is not None}
        if only is None or outcome.ran or only.kind in ("optimize", "model"):
            for target in TARGETS if only is None else (only.target,):
                outcome.differences += _target(program, target, expected, outcome)
    return outcome


@contextlib.contextmanager
def dropped() -> Iterator[list[str]]:
    """What is logged of results that broke a postcondition, and were dropped."""
    messages: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    pipeline.logger.addHandler(handler)
    try:
        yield messages
    finally:
        pipeline.logger.removeHandler(handler)


def _target(program: Program, target: str, expected: Expected, outcome: Outcome) -> Iterator[Difference]:
    try:
        with dropped() as messages:
            after, report = optimizer.lift(interop.read(program.model), target=target, exact=True)
    except Exception as error:  # any is a fault, but for a refusal of what the checker refuses
        if not (isinstance(error, LoopliftError) and fault(program.model)):
            yield Difference("optimize", target, message=f"{type(error).__name__}: {error}")
        return
    if messages and not fault(program.model):
        yield Difference("optimize", target, message=messages[0])
    outcome.reports.append(report)
    if after is None or not any(finding.lifted or finding.actions for finding in report.findings):
        return
    lifted = ir.to_proto(after)
    if outcome.ran and (broken := fault(lifted)) and not fault(program.model) and not lies(program, expected):
        yield Difference("model", target, message=broken)
    for name, load in engines(lifted, after, kernels=target == "kernel").items():
        pair = name.removesuffix(" by definitions")
        if pair in outcome.ran:
            yield from _engine(load, name, target, program, expected, _tolerance(after, name))


def _engine(
    load: Callable[[], Run], name: str, target: str, program: Program, expected: Expected, tolerance: Tolerance
) -> Iterator[Difference]:
    pair = name.removesuffix(" by definitions")
    shapes = [value.type.tensor_type for value in program.model.graph.output]
    ranks = [len(type_.shape.dim) if type_.HasField("shape") else None for type_ in shapes]
    try:
        run = load()
    except (LoopliftError, *ORT_ERRORS) as error:
        yield Difference("load", target, pair, message=str(error))
        return
    lying = lies(program, expected)
    for case, wanted in expected[pair].items():
        if wanted is None:
            continue
        right = expected.get(SESSION, {}).get(case)
        try:
            got = run(program.feeds[case])
        except (LoopliftError, *ORT_ERRORS) as error:
            if not _makes_up_extents(wanted, right):
                yield Difference("error", target, pair, case, str(error))
            continue
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            result = compare(one, other, dataclasses.replace(tolerance, rank=ranks[index]))
            # An engine may be wrong about the original: some are about bodies that return their own inputs.
            excused = (right is not None and compare(right[index], other).equal) or (
                lying and np.size(one) == np.size(other) == 0  # rows of no iteration have what the model declares
            )
            if not result.equal and not excused:
                yield Difference("value", target, pair, case, f"output {index}: {result.message}")


def _makes_up_extents(found: Sequence[Any], right: Sequence[Any] | None) -> bool:
    """Whether an engine gives stacks of no rows extents of its own: 0, of which others need not make sense."""
    pairs = zip(found, right or found, strict=True)
    return any(np.size(one) == np.size(other) == 0 and np.shape(one) != np.shape(other) for one, other in pairs)


def _tolerance(after: ir.Model, engine: str) -> Tolerance:
    """As `verify` has it."""
    marked, ours = marks(after), engine.startswith(SESSION)
    last_bits = "sums" in marked or (bool(marked) and not ours)
    half = "half" in marked and not ours
    return Tolerance(shape_of_empty=ours, zero_is_unknown=True, last_bits=last_bits, half=half)


def survivable(program: Program) -> dict[str, Feeds]:
    """The inputs without those at which ONNX Runtime ends the process: a Scan of opset 8 over a batch of none."""
    ends = bool(program.used["Scan"]) and any(o.domain == "" and o.version == 8 for o in program.model.opset_import)
    return {
        case: feeds for case, feeds in program.feeds.items() if not ends or all(array.size for array in feeds.values())
    }


def everywhere(loads: dict[str, Callable[[], Run]], feeds: dict[str, Feeds]) -> Expected:
    """What each engine gives; ONNX Runtime is not asked where our interpreter has an error to report: it may read
    beyond what is there, join what does not fit if it has no element, or end the process."""
    ours = results(loads[SESSION], feeds)
    legal = {case: inputs for case, inputs in feeds.items() if not ours or ours[case] is not None}
    return {name: ours if name == SESSION else results(load, legal) for name, load in loads.items()}


def results(load: Callable[[], Run], feeds: dict[str, Feeds]) -> dict[str, Sequence[Any] | None]:
    """What it gives for each set of inputs, None where it fails; nothing if it does not load."""
    try:
        run = load()
    except (LoopliftError, *ORT_ERRORS):
        return {}
    return {case: _result(run, inputs) for case, inputs in feeds.items()}


def _result(run: Run, inputs: Feeds) -> Sequence[Any] | None:
    try:
        return run(inputs)
    except (LoopliftError, *ORT_ERRORS):
        return None


def engines(
    proto: onnx.ModelProto, model: ir.Model | None = None, kernels: bool = False
) -> dict[str, Callable[[], Run]]:
    """What loads the model; for one with kernels our interpreter twice."""
    ours = {SESSION: {}} | ({"Session by definitions": {"definitions": True}} if kernels else {})
    loads: dict[str, Callable[[], Run]] = {
        name: functools.partial(_session, model or proto, **options) for name, options in ours.items()
    }
    serialized = proto.SerializeToString()
    return loads | {name: functools.partial(_onnxruntime, serialized, level) for name, level in LEVELS.items()}


def _session(model: Any, **options: Any) -> Run:
    session = Session(model, "numpy", max_iterations=MOST_ITERATIONS, **options)
    return lambda feeds: session.run(None, feeds)


def _onnxruntime(serialized: bytes, level: Any) -> Run:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return functools.partial(_run_watched, session)


def _run_watched(session: onnxruntime.InferenceSession, feeds: Feeds) -> Sequence[Any]:
    """Runs it; a run that does not end is an error."""
    options = onnxruntime.RunOptions()
    watch = threading.Timer(LONGEST_RUN, setattr, (options, "terminate", True))
    watch.start()
    try:
        return session.run(None, feeds, options)
    finally:
        watch.cancel()


def lies(program: Program, expected: Expected) -> bool:
    """Whether the model declares a rank or an extent of an output that it does not have: the checker may notice that
    only when the loop that hides it is gone."""
    declared = [value.type.tensor_type for value in program.model.graph.output]
    shapes = [[dim.dim_value if dim.HasField("dim_value") else None for dim in each.shape.dim] for each in declared]
    given = [results for each in expected.values() for results in each.values() if results is not None]
    return any(
        each.HasField("shape")
        and (
            len(shape) != np.ndim(result)
            or any(d not in (None, x) for d, x in zip(shape, np.shape(result), strict=True))
        )
        for results in given
        for each, shape, result in zip(declared, shapes, results, strict=True)
    )


def fault(model: onnx.ModelProto) -> str:
    """What the checker says of the model; empty if nothing."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return ""

"""`looplift bench`: the original against rewritten models, in ONNX Runtime and in our Session, on the same inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from looplift import interop, ort
from looplift.runtime.errors import LoopliftError
from looplift.session import Session
from looplift.verification.cases.made_up import Feeds
from looplift.verification.compare import Tolerance, Value, compare
from looplift.verification.deadline import run_within
from looplift.verification.engines import OnnxRuntime, Outcome, file_for_onnxruntime, has_onnxruntime
from looplift.verification.ort_worker import measure
from looplift.verification.pairs import has_our_ops

_WITH_KERNELS = "ONNX Runtime with kernels"

_GRACE = 1.0
"""Seconds after its time that a run may end in."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One model in one engine.

    Attributes:
        model: how it is called.
        engine: what ran it.
        milliseconds: median of the runs after the first, or of that if it took most of the time; None if it failed.
        runs: how many these are.
        times_faster: than the original in this engine; None for the original, or if one failed.
        same_bits: as the original's outputs in this engine; None as before.
        problem: why it failed.
    """

    model: str
    engine: str
    milliseconds: float | None = None
    runs: int = 0
    times_faster: float | None = None
    same_bits: bool | None = None
    problem: str = ""


_Measured = tuple[Outcome, list[float]]
_Measure = Callable[[interop.ModelLike], _Measured]


def bench(
    models: Mapping[str, interop.ModelLike],
    feeds: Feeds,
    *,
    repeat: int = 20,
    seconds: float = 5.0,
    device: str = "auto",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Row, ...]:
    """Measures models on the same inputs, each in ONNX Runtime (if installed; one thread) and in a `Session`.

    Where our kernels for ONNX Runtime are built, and a model has our ops, it is also run with these.

    Args:
        models: by name; the first one is the original, which the others are compared with.
        feeds: the inputs.
        repeat: runs after the first, which is not counted.
        seconds: of one model in one engine; one that has no answer by then is given up.
        device: of the session.
        progress: told what is measured next.

    Raises:
        LoopliftError: the device is not there.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="looplift-") as folder:
        chosen = Session(next(iter(models.values())), device).device.split(" ")[0]
        ours = {name for name, m in models.items() if has_our_ops(interop.to_ir(interop.read(m)))}
        with_kernels = ort.has_library() and bool(ours)
        known: dict[str, _Measured] = {}
        for engine, run in _engines(feeds, repeat, seconds, device, chosen, Path(folder), with_kernels):
            measured = []
            for name, model in models.items():
                # Kernels change nothing for a model that has none of our nodes.
                if engine != _WITH_KERNELS or name in ours:
                    progress(f"{name} in {engine}")
                    known[name] = run(model)
                measured.append((name, known[name]))
            rows += _rows(engine, measured)
    return tuple(rows)


def _engines(
    feeds: Feeds, repeat: int, seconds: float, device: str, name: str, folder: Path, with_kernels: bool
) -> Iterator[tuple[str, _Measure]]:
    if has_onnxruntime():
        yield "ONNX Runtime", lambda model: _in_onnxruntime(model, feeds, repeat, seconds, folder)
    if has_onnxruntime() and with_kernels:
        kernels = ort.library_path()
        yield _WITH_KERNELS, lambda m: _in_onnxruntime(m, feeds, repeat, seconds, folder, kernels)
    yield f"looplift on {name}", lambda model: _in_session(model, feeds, repeat, seconds, device)


def _in_onnxruntime(
    model: interop.ModelLike, feeds: Feeds, repeat: int, seconds: float, folder: Path, kernels: Path | None = None
) -> _Measured:
    source = interop.read(model)
    file = file_for_onnxruntime(source, interop.to_ir(source), folder)
    with contextlib.closing(OnnxRuntime(file, seconds=seconds + _GRACE, kernels=kernels)) as engine:
        try:
            engine.wait_until_loaded()
        except LoopliftError as error:
            return Outcome(None, str(error)), []
        outcome, taken = engine.measure(feeds, repeat=repeat, seconds=seconds)
        return (_late(seconds) if outcome.timed_out else outcome), taken


def _in_session(model: interop.ModelLike, feeds: Feeds, repeat: int, seconds: float, device: str) -> _Measured:
    session = Session(model, device)
    found: list[tuple[list[Value], list[float]]] = []
    try:
        in_time = run_within(
            seconds + _GRACE,
            lambda: found.append(measure(lambda: session.run(None, feeds), repeat, seconds)),
            lambda: None,
        )
    except LoopliftError as error:
        return Outcome(None, str(error)), []
    if not in_time or not found:
        return _late(seconds), []
    outputs, taken = found[0]
    return Outcome(outputs), taken


def _late(seconds: float) -> Outcome:
    return Outcome(None, f"no answer in {seconds:.3g} s (--seconds gives more)", timed_out=True)


def _rows(engine: str, measured: Sequence[tuple[str, _Measured]]) -> Iterator[Row]:
    (_, (expected, base)), *_ = measured
    for k, (name, (outcome, taken)) in enumerate(measured):
        if outcome.outputs is None:
            yield Row(name, engine, problem=outcome.error)
            continue
        row = Row(name, engine, statistics.median(taken) * 1e3, len(taken))
        if k and expected.outputs is not None:
            faster = statistics.median(base) / statistics.median(taken)
            row = dataclasses.replace(row, times_faster=faster, same_bits=_same_bits(expected.outputs, outcome.outputs))
        yield row


def _same_bits(expected: Sequence[Value], got: Sequence[Value]) -> bool:
    exact = Tolerance(0, shape_of_empty=False)
    return len(expected) == len(got) and all(
        compare(one, other, exact).equal for one, other in zip(expected, got, strict=True)
    )

"""The engines of a check: each with the original and with the rewritten model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from looplift import interop
from looplift.checking.engines import Engine, Interpreter, OnnxRuntime, Pair, file_for_onnxruntime, has_onnxruntime
from looplift.checking.outcome import Counterexample
from looplift.checking.tally import Tally
from looplift.runtime.errors import LoopliftError

LONGEST_RUN = 30.0
"""Seconds; a single run that takes longer counts as an error."""


def interpreter_pair(models: tuple[ir.Model, ir.Model], device: str, seconds: float, tally: Tally) -> Iterator[Pair]:
    """The interpreter, the rewritten model with kernels and with definitions; none, with a note, if it can't run it."""
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
    yield Pair("interpreter", original, tuple(engines), strict=True)


def onnxruntime_pair(
    sources: Sequence[interop.Source],
    models: Sequence[ir.Model],
    seconds: float,
    tally: Tally,
    stack: contextlib.ExitStack,
) -> Iterator[Pair]:
    """ONNX Runtime, if it loads the original; one that loads only that is a difference.

    Raises:
        LoopliftError: it is not installed.
    """
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
    yield Pair("ONNX Runtime", original, (("ONNX Runtime", rewritten),), strict=False)

"""The engines of a check: each with the original and with the rewritten model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from looplift import interop, ort
from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import DOMAIN
from looplift.verification.engines import Engine, Interpreter, OnnxRuntime, Pair, file_for_onnxruntime, has_onnxruntime
from looplift.verification.outcome import Counterexample
from looplift.verification.tally import Tally

LONGEST_RUN = 30.0
"""Seconds; a single run that takes longer is given up."""

SHARE_OF_A_RUN = 0.25
"""Of the whole check's time, the most that a single run may take."""


def longest_run(seconds: float) -> float:
    """Seconds that one run may take in a check of so many."""
    return min(seconds * SHARE_OF_A_RUN, LONGEST_RUN)


def interpreter_pair(models: tuple[ir.Model, ir.Model], device: str, seconds: float, tally: Tally) -> Iterator[Pair]:
    """The interpreter, the rewritten model with kernels and with definitions; none, with a note, if it can't run it."""
    try:
        original = Interpreter(models[0], seconds=seconds)
    except LoopliftError as error:  # an op of another domain, say
        tally.note(f"not run in the interpreter: {error}")
        return
    engines: list[tuple[str, Engine]] = [("interpreter with kernels", Interpreter(models[1], seconds=seconds))]
    if has_our_ops(models[1]):
        definitions = Interpreter(models[1], seconds=seconds, definitions=True)
        engines.append(("interpreter with definitions", definitions))
    if device != "numpy":
        engines.append((f"kernels on {device}", Interpreter(models[1], seconds=seconds, device=device)))
    yield Pair("interpreter", original, tuple(engines), strict=True)


def has_our_ops(model: ir.Model) -> bool:
    """Whether a model, or a function in it, imports the domain of our ops."""
    imports = (model.opset_imports, *(function.opset_imports for function in model.functions.values()))
    return any(DOMAIN in each for each in imports)


def onnxruntime_pair(
    sources: Sequence[interop.Source],
    models: Sequence[ir.Model],
    seconds: float,
    tally: Tally,
    stack: contextlib.ExitStack,
    running: list[OnnxRuntime],
) -> Iterator[Pair]:
    """ONNX Runtime, if it loads the original; one that loads only that is a difference.

    It runs the rewritten model by the definitions of our ops, and by our kernels where these are built.

    Its processes are added to `running` as they start, and end with the stack.

    Raises:
        LoopliftError: it is not installed.
    """
    if not has_onnxruntime():
        raise LoopliftError("onnxruntime is not installed; install looplift[ort]")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="looplift-", ignore_cleanup_errors=True)))
    files = [file_for_onnxruntime(source, model, folder) for source, model in zip(sources, models, strict=True)]

    def start(file: Path, kernels: Path | None = None) -> OnnxRuntime:
        running.append(OnnxRuntime(file, seconds=longest_run(seconds), kernels=kernels))
        stack.callback(running[-1].close)
        return running[-1]

    original, rewritten = start(files[0]), {"ONNX Runtime": start(files[1])}
    if ort.has_library() and has_our_ops(models[1]):
        rewritten["ONNX Runtime with kernels"] = start(files[1], ort.library_path())
    try:
        original.wait_until_loaded()
    except LoopliftError as error:
        tally.note(f"not run in ONNX Runtime: {error}")
        return
    for name, engine in rewritten.items():
        try:
            engine.wait_until_loaded()
        except LoopliftError as error:
            message = f"the original loads, the rewritten model does not: {error}"
            tally.differ(Counterexample("loading", {}, name, "", None, None, message))
            return
    yield Pair("ONNX Runtime", original, tuple(rewritten.items()), strict=False)

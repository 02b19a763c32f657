"""The command line: ``looplift optimize | explain | verify | bench | run | devices | kernels``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

from looplift import messages
from looplift.cli.codes import FAILED, INTERRUPTED, UNEXPECTED
from looplift.cli.quiet import others_silent


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code (see `codes`).

    Nothing heavy is imported before, so that an interrupt at any moment ends in one exit code and no traceback.
    """
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without one, Mesa complains on standard error
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    from looplift.cli.options import parser

    options = parser().parse_args(arguments)
    with others_silent(options.debug):
        try:
            code: int = importlib.import_module(f"looplift.cli.{options.command}").run(options)
            return code
        except MemoryError:
            told, code = "out of memory: the model, or its inputs, are too large for this machine", FAILED
        except Exception as error:
            if options.debug:
                traceback.print_exc()
            told, code = _told(error, options)
    messages.complain(told)
    return code


def _told(error: Exception, options: argparse.Namespace) -> tuple[str, int]:
    """What to say of an error, and the exit code: errors that nobody foresaw are ours."""
    from looplift.runtime.errors import LoopliftError

    if isinstance(error, LoopliftError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), FAILED
    from looplift import interop
    from looplift.runtime.text import visible

    for path in filter(None, (getattr(options, "original", None), getattr(options, "model", None))):
        # What the schemas of ops say is taken for granted everywhere: where it does not hold, the model is at fault.
        try:
            fault = interop.schema_fault(interop.read(path))
        except LoopliftError as refusal:
            return str(refusal), FAILED
        if fault:
            return f"{visible(path)} is not valid ONNX: {visible(fault)}", FAILED
    words = visible(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return (
        f"an error that should not happen: {words[:300]}; please report it, with the model and what --debug prints",
        UNEXPECTED,
    )

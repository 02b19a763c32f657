"""The command line: ``looplift optimize | explain | verify | bench | run | devices | kernels``."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Sequence

from looplift.cli.codes import FAILED, INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code (see `codes`)."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without one, Mesa complains on standard error
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    from looplift.cli.options import parser

    options = parser().parse_args(arguments)
    from looplift import console
    from looplift.runtime.errors import LoopliftError

    try:
        code: int = importlib.import_module(f"looplift.cli.{options.command}").run(options)
        return code
    except LoopliftError as error:
        console.complain(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        console.complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    return FAILED

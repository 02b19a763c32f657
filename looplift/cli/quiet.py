"""Standard error belongs to looplift: what other libraries write there, from Python or from C++, is dropped."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from looplift import messages


@contextlib.contextmanager
def others_silent(debug: bool) -> Iterator[None]:
    """Within the block only `messages` go to standard error; with `debug`, everybody does."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold what the terminal's encoding has not
    if debug or sys.stderr is None:
        yield
        return
    ours = sys.stderr
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        if _is_real(ours):
            ours.flush()
            copy = os.dup(2)
            stack.callback(os.close, copy)
            stack.callback(os.dup2, copy, 2)
            os.dup2(nowhere.fileno(), 2)
            ours = stack.enter_context(
                open(copy, "w", encoding=ours.encoding, errors="backslashreplace", buffering=1, closefd=False)
            )
        stack.callback(setattr, sys, "stderr", sys.stderr)
        sys.stderr = nowhere
        stack.enter_context(messages.going_to(ours))
        yield


def _is_real(stream: object) -> bool:
    """Whether it writes to file descriptor 2, which C++ does, too."""
    try:
        return stream.fileno() == 2  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, OSError, ValueError):
        return False

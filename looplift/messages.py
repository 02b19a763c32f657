"""Where looplift's own lines for standard error go; light, since it is needed before anything else is imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TextIO

_stream: list[TextIO] = []


def stream() -> TextIO | None:
    """Standard error, or what stands for it while that is closed to other libraries; None if there is none."""
    return _stream[-1] if _stream else sys.stderr


@contextlib.contextmanager
def going_to(ours: TextIO) -> Iterator[None]:
    """Within the block, `stream` is this."""
    _stream.append(ours)
    try:
        yield
    finally:
        _stream.pop()


def complain(message: str) -> None:
    """One line on standard error; what it quotes has to be `visible`."""
    print(f"looplift: error: {' '.join(message.split())}", file=stream())

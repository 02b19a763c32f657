"""Bounds the memory of a check: what it makes up is small, but a model may ask for anything."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path

LEAST = 1 << 30
"""Bytes that a check may take in any case."""

TIMES_THE_MODEL = 8
"""So many times the bytes of the weights may be added: each engine has some of its own."""

_STATUS = Path("/proc/self/status")


@contextlib.contextmanager
def at_most(more: int) -> Iterator[None]:
    """Lets this process, and each that it starts meanwhile, take so many bytes more than it has now, in Linux.

    An attempt to take more is a MemoryError. It is the whole process that is bounded, so this is for commands.
    """
    if not _STATUS.is_file():
        yield
        return
    resource = importlib.import_module("resource")  # which not every system has
    kind = resource.RLIMIT_DATA
    soft, hard = resource.getrlimit(kind)
    bound = _taken() + more
    others = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min([bound, *others]), hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _taken() -> int:
    """Bytes that the process has as data."""
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
    return int(fields["VmData"].split()[0]) * 1024


def allowance(weights: int) -> int:
    """The bytes that a check may take, of models with so many bytes of weights."""
    return LEAST + TIMES_THE_MODEL * weights

"""Allocation of outputs whose size the input *values* decide: too large is the user's error, not a crash."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import Array

SMALL = 1 << 26
"""Bytes that are asked for without looking at the memory that is left: looking takes as long as a small kernel."""


def allocate(shape: tuple[int, ...], dtype: np.dtype[np.generic], what: str) -> Array:
    """An uninitialised array of ``shape`` and ``dtype``, for the output that ``what`` names.

    Raises:
        LoopliftError: it does not fit in the memory that is available now.
    """
    size = math.prod(shape) * dtype.itemsize
    limit = _available_bytes() if size > SMALL else None
    message = f"{what} of shape {list(shape)} ({dtype}) needs {size:,} bytes"
    if limit is not None and size > limit:
        advice = f"{message} and {limit:,} are available: run fewer iterations, or leave it unused"
        raise LoopliftError(advice) from MemoryError(message)
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise LoopliftError(f"{message}, which can't be allocated: run fewer iterations, or leave it unused") from error


def require_room(what: str) -> None:
    """Raises:
    LoopliftError: less memory than `SMALL` is available now, in which `what` grows bit by bit.
    """
    limit = _available_bytes()
    if limit is not None and limit < SMALL:
        advice = f"{what}, and only {limit:,} bytes are available: run fewer iterations, or leave it unused"
        raise LoopliftError(advice) from MemoryError(what)


def _available_bytes() -> int | None:
    """What the kernel and the control group still grant; None where the system does not tell (outside Linux)."""
    limits = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in fields:
            limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").is_file() and (group / "memory.current").is_file():
        most = (group / "memory.max").read_text().strip()
        if most != "max":
            limits.append(int(most) - int((group / "memory.current").read_text()))
    return min(limits) if limits else None

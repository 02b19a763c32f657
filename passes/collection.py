"""Python's garbage collector, told to look less often while a model is optimized."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

OBJECTS = 100_000
"""New objects after which it looks. It goes by 700 otherwise, through a whole graph again and again, which takes a
quarter of the time; so many take some tens of megabytes."""

_lock = threading.Lock()
_inside: list[tuple[int, int, int]] = []


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Inside, objects are collected seldom; afterwards as before, once all threads that are inside have left."""
    with _lock:
        _inside.append(gc.get_threshold() if not _inside else _inside[0])
        young, *older = _inside[0]
        if young:  # it may be switched off
            gc.set_threshold(max(young, OBJECTS), *older)
    try:
        yield
    finally:
        with _lock:
            before = _inside.pop()
            if not _inside:
                gc.set_threshold(*before)

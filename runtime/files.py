"""Files that others wrote: only regular ones are read, and only up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import LoopliftError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def kind_of(mode: int) -> str:
    """What a file is that is not regular, in words; empty for a regular one."""
    if stat.S_ISREG(mode):
        return ""
    return next((name for test, name in _KINDS if test(mode)), "no regular file")


def regular_size(path: str | os.PathLike[str]) -> int:
    """The bytes of a regular file; it is not opened, since opening a pipe waits for its other end.

    Raises:
        LoopliftError: it is a folder, a pipe, a device or a socket, or its name can't be one.
        OSError: it is not there, or may not be looked at.
    """
    try:
        found = os.stat(path)
    except ValueError as error:  # a NUL in the name
        raise LoopliftError(f"can't read {os.fspath(path)!r}: {error}") from error
    if kind := kind_of(found.st_mode):
        raise LoopliftError(f"can't read {os.fspath(path)}: it is {kind}, not a file")
    return found.st_size


def read_bounded(path: Path, largest: int) -> str:
    """The text of a regular file, UTF-8.

    Raises:
        LoopliftError: it is not regular, larger than `largest` bytes, not UTF-8, or can't be read.
    """
    try:
        if regular_size(path) > largest:
            raise LoopliftError(f"{path} is larger than {largest:,} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise LoopliftError(f"can't read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise LoopliftError(f"{path} is not UTF-8 text") from error

"""Where commands write: checked before any work begins."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from looplift.runtime.errors import LoopliftError
from looplift.runtime.files import kind_of


def require_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Refuses outputs that can't be written, or that would take the place of something else.

    Args:
        outputs: the files by the option that names them; None where it is not given.
        inputs: what the command reads, and must not be overwritten.

    Raises:
        LoopliftError: a folder is not there; an output is a folder, a pipe or a device, an input, or another output.
    """
    read = {_identity(path): os.fspath(path) for path in inputs}
    written: dict[object, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        _require_writable(path)
        identity = _identity(path)
        if identity in read:
            raise LoopliftError(f"can't write {path}: the command reads {read[identity]}; give {option} another name")
        if identity in written:
            raise LoopliftError(f"{written[identity]} and {option} are the same file, {path}; give one another name")
        written[identity] = option


def counterexample(options: argparse.Namespace, wanted: bool = True) -> dict[str, str]:
    """Where a counterexample goes, by the option that says so: not onto inputs, unless told; nowhere if not wanted."""
    if not wanted:
        return {}
    read = {_identity(path) for path in options.inputs}
    free = (name for name in ("counterexample.npz", "counterexample-2.npz") if _identity(name) not in read)
    return {"--counterexample": options.counterexample or next(free, "counterexample-3.npz")}


def _require_writable(path: str) -> None:
    if "\0" in path or not path:
        raise LoopliftError(f"can't write {path!r}: it is not the name of a file")
    target = Path(os.path.realpath(path))  # a link is written through
    if target.is_symlink():
        raise LoopliftError(f"can't write {path}: it is a link that leads back to itself")
    if not target.parent.is_dir():
        raise LoopliftError(f"can't write {path}: there is no folder {target.parent}")
    if target.exists() and (kind := kind_of(target.stat().st_mode)):
        raise LoopliftError(f"can't write {path}: it is {kind}")


def _identity(path: str | os.PathLike[str]) -> object:
    """Equal for two names of one file, links of either kind included."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return found.st_dev, found.st_ino

"""Where commands write."""

from __future__ import annotations

from pathlib import Path

from looplift.runtime.errors import LoopliftError


def require_folder(path: str) -> None:
    """Refuses an output that can't be written, before any work.

    Raises:
        LoopliftError: the folder is not there, or it is a folder itself.
    """
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise LoopliftError(f"can't write {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise LoopliftError(f"can't write {path}: it is a folder")

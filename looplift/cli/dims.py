"""The options that say how large dims are, and which are equal."""

from __future__ import annotations

from collections.abc import Sequence

from looplift.runtime.errors import LoopliftError


def sizes(given: Sequence[str]) -> dict[str, int]:
    """What ``--dim NAME=SIZE`` says.

    Raises:
        LoopliftError: it says something else.
    """
    found = {}
    for text in given:
        name, _, size = text.rpartition("=")
        if not (name and size.isdecimal() and len(size) < 19):
            raise LoopliftError(f"--dim {text}: write NAME=SIZE, such as N=1000")
        found[name] = int(size)
    return found


def pairs(given: Sequence[str]) -> list[tuple[str, str]]:
    """What ``--same-dim A=B`` says.

    Raises:
        LoopliftError: it says something else.
    """
    found = []
    for text in given:
        left, _, right = text.rpartition("=")
        if not (left and right):
            raise LoopliftError(f"--same-dim {text}: write A=B, such as batch=n or x:0=y:0")
        found.append((left, right))
    return found

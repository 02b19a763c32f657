"""Words for people: exporters' long names made short, lists of like sentences made one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_BOUNDARY = "/_.:-"
_NAME = re.compile(r"[^\s'\",;()\[\]]*[^\s'\",;()\[\]:.]")
_QUOTED = re.compile(r"'[^']*'")


def shortener(texts: Iterable[str], longest: int = 32) -> Callable[[str], str]:
    """A function that shortens the long names in these texts: ``sequential_2_1_gru_1_while_gru_cell_1_kernel_0:0``
    to ``sequential…kernel_0:0``.

    The same name always becomes the same, different names stay different: of the two ends, more of the second is kept
    where two names would look the same.

    Args:
        texts: all that will be shortened.
        longest: characters; names up to this length stay.
    """
    names = dict.fromkeys(name for text in texts for name in _NAME.findall(text))
    taken = {name for name in names if len(name) <= longest}
    short: dict[str, str] = {}
    for name in names:
        if len(name) > longest:
            short[name] = _short(name, longest, taken)
            taken.add(short[name])
    return lambda text: _NAME.sub(lambda match: short.get(match[0], match[0]), text)


def _short(name: str, longest: int, taken: set[str]) -> str:
    first = longest // 3
    head = name[: _boundary(name, range(first, 3, -1)) or first]
    for room in range(longest - first - 2, len(name) - len(head)):
        start = _boundary(name, range(len(name) - room - 1, len(name) - 6))
        tail = name[len(name) - room if start is None else start + 1 :]
        if f"{head}…{tail}" not in taken:
            return f"{head}…{tail}"
    return name


def _boundary(name: str, places: range) -> int | None:
    return next((place for place in places if name[place] in _BOUNDARY), None)


def join_like(sentences: Sequence[str]) -> list[str]:
    """Sentences that differ only in one quoted name, joined: ``read 'a' from outside (so too 'b', 'c')``."""
    groups: dict[str, list[str]] = {}
    for sentence in sentences:
        quoted = _QUOTED.findall(sentence)
        groups.setdefault(sentence.replace(quoted[0], "''") if len(quoted) == 1 else sentence, []).append(sentence)
    return [_joined(group) for group in groups.values()]


def _joined(group: Sequence[str]) -> str:
    first, *others = group
    return first if not others else f"{first} (so too {', '.join(_QUOTED.findall(other)[0] for other in others)})"


def count(number: int, noun: str) -> str:
    """``1 loop``, ``2 loops``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

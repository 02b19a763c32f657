"""Text from elsewhere, made fit to be read."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode's categories of characters that are not seen but do something: controls, marks of direction, halves."""


def visible(text: str) -> str:
    """The text with characters that a terminal or a page would obey, or hide, written as escapes: ``\\x1b``.

    Names of a model may hold any character: one could rewrite the lines around it, or turn them from right to left.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _HIDDEN else each for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")

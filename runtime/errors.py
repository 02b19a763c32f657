"""The one error that a user of looplift meets."""

from __future__ import annotations

from .text import visible


class LoopliftError(Exception):
    """Something is wrong with the input: a model, a tensor, a file, a device.

    The message is one line that says what is wrong, where (node name, path in the graph) and what to do. Whatever
    control characters the names in it have are shown as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(" ".join(message.split())))

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


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error came about because there is not enough memory."""
    return isinstance(error, MemoryError) or (error.__cause__ is not None and ran_out_of_memory(error.__cause__))

"""The one error that a user of looplift meets."""

from __future__ import annotations


class LoopliftError(Exception):
    """Something is wrong with the input: a model, a tensor, a file, a device.

    The message is one line that says what is wrong, where (node name, path in the graph) and what to do.
    """

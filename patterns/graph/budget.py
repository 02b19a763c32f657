"""The one budget for what is computed while a model is optimized: constants that are folded, loops that are tried out.

How large a node's result gets is known from the shapes of its inputs, and from the contents of those that give
shapes, before it is computed (`result_elements`). A `Budget` bounds the bytes of each result and the work of all
together; what does not fit is left alone, and the budget keeps the reason. It remembers what was computed, too, so that
no pass does it anew.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift.patterns.graph.operators import TRAITS, Trait
from looplift.patterns.graph.refusal import Refusal

Array = np.ndarray[Any, Any]

LARGEST_RESULT = 1 << 24
"""Bytes of one result."""

MOST_WORK = 1 << 30
"""Bytes of all results of one model together, each node counted as `A_NODE` at least."""

A_NODE = 4096
"""Bytes that could be written in the time in which onnx's reference implementation calls an operator."""

MOST_KEPT = 1 << 26
"""Bytes of results that are remembered for one model."""


def result_elements(op_type: str, inputs: Sequence[Array | None], axis: int = 0) -> int | None:
    """The most elements that the result of an operator may have; None if that is not known of it.

    Args:
        op_type: an operator of the default domain.
        inputs: its operands.
        axis: its attribute of that name.
    """
    given = [array for array in inputs if array is not None]
    shapes = [array.shape for array in given]
    if op_type == "ConstantOfShape":
        return math.prod(abs(int(dim)) for dim in given[0].reshape(-1))
    if op_type == "Range":
        return _range_elements(*(array.reshape(-1)[0] for array in given))
    if op_type in TRAITS[Trait.BROADCASTS]:
        return _broadcast_elements(shapes)
    if op_type == "Expand":
        return _broadcast_elements([shapes[0], tuple(int(dim) for dim in given[1].reshape(-1))])
    if op_type == "Concat":
        return sum(array.size for array in given)
    if op_type == "Gather":
        rest = [extent for k, extent in enumerate(shapes[0]) if k != axis % max(len(shapes[0]), 1)]
        return int(math.prod(rest) * given[1].size)
    if op_type == "NonZero":
        return int(given[0].size * max(given[0].ndim, 1))
    return int(max(given[0].size, given[0].ndim, 1)) if op_type in TRAITS[Trait.NO_LARGER] else None


def _broadcast_elements(shapes: Sequence[Sequence[int]]) -> int:
    """Of shapes that broadcast, and a bound where they don't."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return math.prod(0 if 0 in dims else max(map(abs, dims)) for dims in zip(*padded, strict=True))


def _range_elements(start: Any, limit: Any, delta: Any) -> int | None:
    if not all(math.isfinite(number) for number in (start, limit, delta)) or not delta:
        return None
    if all(isinstance(number, np.integer) for number in (start, limit, delta)):
        return max(0, -((int(start) - int(limit)) // int(delta)))
    return max(0, math.ceil((float(limit) - float(start)) / float(delta)))


@dataclasses.dataclass
class Budget:
    """What may still be computed for one model, and what was.

    Attributes:
        work: bytes that may still be made.
        refused: why nodes were left alone.
    """

    work: int = MOST_WORK
    refused: dict[ir.Node, Refusal] = dataclasses.field(default_factory=dict)
    _kept: dict[Hashable, Any] = dataclasses.field(default_factory=dict)
    _kept_bytes: int = 0

    def spend(self, node: ir.Node, inputs: Sequence[Array | None], largest: int = LARGEST_RESULT) -> Refusal | None:
        """Takes what a node will cost out of the budget; why it may not be computed where that is too much.

        Args:
            node: of the default domain.
            inputs: its operands.
            largest: bytes that its result may take.
        """
        refusal = self._over(node, inputs, largest)
        if refusal is not None:
            self.refused.setdefault(node, refusal)
        return refusal

    def _over(self, node: ir.Node, inputs: Sequence[Array | None], largest: int) -> Refusal | None:
        try:
            elements = result_elements(node.op_type, inputs, node.attributes.get_int("axis", 0))
        except (IndexError, TypeError, ValueError):
            return Refusal(f"the inputs of {node.op_type} are not what it takes", node)
        if elements is None:
            return Refusal(f"how large the result of {node.op_type} gets is not known before it is computed", node)
        size = elements * max([8, *(array.itemsize for array in inputs if array is not None)])
        if size > largest:
            return Refusal(f"{node.op_type} would take {size:,} bytes, more than is computed to optimize a model", node)
        if size + A_NODE > self.work:
            return Refusal(f"to compute {node.op_type} too, beside what was computed, takes too long", node)
        self.work -= size + A_NODE
        return None

    def kept(self, key: Hashable) -> Any | None:
        """What was kept under this key."""
        return self._kept.get(key)

    def keep(self, key: Hashable, result: Any, size: int) -> None:
        """Keeps a result of so many bytes, if there is room."""
        if self._kept_bytes + size <= MOST_KEPT:
            self._kept_bytes += size
            self._kept[key] = result


_current: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("looplift.budget", default=None)


def budget() -> Budget:
    """The budget of the model at hand; a new one outside `one_budget`, for each question."""
    return _current.get() or Budget()


@contextlib.contextmanager
def one_budget() -> Iterator[Budget]:
    """One budget for all that is computed inside, by whatever pass."""
    made = Budget()
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


__all__ = ["Budget", "budget", "one_budget", "result_elements"]

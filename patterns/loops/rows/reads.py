"""Reads of one row per iteration of a tensor from outside the loop, at an index that counts.

``Gather(x, i)`` along any axis, the proven row cuts (`patterns.loops.rows.cuts`), and what index arithmetic makes of
both: the row in iteration k is ``first + stride * k``.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.types import Dim, TensorType, Types
from looplift.patterns.graph.values import defined_in
from looplift.patterns.graph.view import View
from looplift.patterns.loops.index import Index, index_of
from looplift.patterns.loops.rows.cuts import row_cuts
from looplift.patterns.loops.trip import Trip


@dataclasses.dataclass(frozen=True)
class RowRead:
    """Reads row ``index`` of `data` along `axis`; `kept` axes of extent 1 stand in the result where `axis` was."""

    node: ir.Node
    data: ir.Value
    axis: int
    index: Index
    kept: int

    @property
    def row(self) -> ir.Value:
        """What is read."""
        return self.node.outputs[0]

    @property
    def what(self) -> tuple[int, int, Index, int]:
        """Equal for reads that give the same rows."""
        return id(self.data), self.axis, self.index, self.kept

    def type(self, types: Types) -> TensorType:
        """Type of a row."""
        whole = types[self.data]
        assert whole.shape is not None
        return TensorType(whole.dtype, (*whole.shape[: self.axis], *(1,) * self.kept, *whole.shape[self.axis + 1 :]))

    def order(self, length: Dim, types: Types) -> int | None:
        """1 if iteration k reads row k of `length` rows, -1 if from the last to the first, None if others are read."""
        extent = (types[self.data].shape or ())[self.axis]
        if extent is None or extent != length:
            return None
        if self.index == Index(0, 1):
            return 1
        last = extent - 1 if isinstance(extent, int) else -1
        return -1 if self.index in (Index(-1, -1), Index(last, -1)) else None

    def leads(self, types: Types) -> bool:
        """Whether the rows lie one behind the other in memory: no axis before theirs has more than one entry."""
        return all(dim == 1 for dim in (types[self.data].shape or ())[: self.axis])


def row_reads(view: View, outer: Types, trip: Trip) -> tuple[list[RowRead], Types]:
    """The row reads of a body, and the body's types given that row cuts cut one row.

    Only tensors of known element type and rank, and only rows that differ from iteration to iteration.

    Args:
        view: the loop.
        outer: facts outside it.
        trip: its trip count.
    """
    cuts, types = row_cuts(view, outer, trip)
    found = [RowRead(cut.node, cut.data, cut.axis, cut.index, 1) for cut in cuts.values() if cut.index is not None]
    found += [read for node in view.body if (read := row_read(node, view, types)) is not None]
    return [read for read in found if _is_stack(read.data, view, types) and read.index.stride != 0], types


def row_read(node: ir.Node, view: View, types: Types) -> RowRead | None:
    """What a Gather by a counting index reads; None if the node is something else, or its types are not known."""
    if not is_standard(node, "Gather"):
        return None
    data, indices = node.inputs
    rank, shape = types[data].rank, types[indices].shape
    index = index_of(indices, view, types)
    axis = node.attributes.get_int("axis", 0)
    if data is None or not rank or shape is None or index is None or has_references(node):
        return None
    if any(dim != 1 for dim in shape) or not -rank <= axis < rank:
        return None
    return RowRead(node, data, axis % rank, index, len(shape))


def _is_stack(data: ir.Value, view: View, types: Types) -> bool:
    return not defined_in(data, view.body) and types[data].dtype is not None


__all__ = ["RowRead", "row_read", "row_reads"]

"""What a person is told about each loop of a model."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """One Loop or Scan of the original model.

    Attributes:
        node: its name.
        op_type: ``Loop`` or ``Scan``.
        path: the graph it stands in, such as ``/``, ``/cond:then_branch`` or ``function domain::name``.
        lifted: whether no Loop or Scan is left of it.
        recurrence: what it computes, in words; empty if that was not found out.
        reason: why it is left, or what is left of it; empty if lifted.
        trip_count: how many iterations run, in words.
        carries: a sentence for each carried value.
        actions: what was done to it, in order.
        operators: how many an iteration runs.
        unequal: whether it stays since extents are not known to be equal.
        left: how many of them are left in loops, of this one or of those that stand for it.
    """

    node: str
    op_type: str
    path: str
    lifted: bool
    recurrence: str = ""
    reason: str = ""
    trip_count: str = ""
    carries: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    operators: int = 0
    left: int = 0
    unequal: bool = False

"""How many iterations a loop runs, where that is known before it starts.

Loop: ``min(M, ...)`` with a cond that the body passes through or holds true (rules 1 and 2 of the operator: M <= 0
or a false cond run nothing; the cond that the body returns is obeyed). Scan: the length of its scan inputs.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.constants import scalar
from looplift.patterns.graph.refusal import Obligation, Refusal
from looplift.patterns.graph.shapes import entries
from looplift.patterns.graph.types import Dim, Types
from looplift.patterns.graph.values import source
from looplift.patterns.graph.view import LoopView, ScanInput, View


@dataclasses.dataclass(frozen=True)
class Counted:
    """A Loop that runs M times, or not at all where `condition` is given and false.

    `static`: the count if it is a compile-time constant. `extent`: the count as an extent, if it is one for certain.
    """

    max_trip: ir.Value
    condition: ir.Value | None
    static: int | None
    extent: Dim

    @property
    def fact(self) -> Obligation:
        """The discharged obligation, for proofs and reports."""
        times = str(self.static) if self.static is not None else f"'{self.max_trip.name}'"
        unless = f", none if '{self.condition.name}' is false" if self.condition is not None else ""
        return Obligation("the trip count is known before the loop starts", f"{times} iterations{unless}")


@dataclasses.dataclass(frozen=True)
class Scanned:
    """A Scan that runs once per element of `over`; `static` and `extent` as for `Counted`."""

    over: ScanInput
    static: int | None
    extent: Dim

    @property
    def fact(self) -> Obligation:
        """The discharged obligation, for proofs and reports."""
        times = "one iteration" if self.static is None else f"{self.static} iterations, one"
        rows = f"for each element of '{self.over.outer.name}' along axis {self.over.axis}"
        return Obligation("the trip count is known before the loop starts", f"{times} {rows}")


Trip = Counted | Scanned


def trip_of(view: View, types: Types) -> Trip | Refusal:
    """The trip count of a loop, or why it is not known before the loop starts."""
    if isinstance(view, LoopView):
        return _counted(view, types)
    if view.sequence_lengths is not None:
        return Refusal("sequence_lens gives each batch entry a length of its own", view.node)
    over = view.scan_inputs[0]
    shape = types[over.outer].shape
    axis = 1 if view.batched else over.axis
    extent = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return Scanned(over, extent if isinstance(extent, int) else None, extent)


def _counted(view: LoopView, types: Types) -> Counted | Refusal:
    passes_on = source(view.condition_out) is view.condition_in
    if not passes_on and scalar(view.condition_out, view.opset) is not True:
        test = view.condition_out
        return Refusal(f"the exit test '{test.name}' is computed in the body", test.producer(), general=True)
    if view.max_trip is None:
        return Refusal("nothing bounds the loop: M is absent and the cond never changes", view.node)
    initial = scalar(view.condition, view.opset) if view.condition is not None else True
    condition = None if initial is True else view.condition
    limit = scalar(view.max_trip, view.opset)
    static = None
    if initial is False:
        static = 0
    elif isinstance(limit, int) and condition is None:
        static = max(limit, 0)
    extent: Dim = static
    if static is None and condition is None:
        found = entries(view.max_trip, lambda value: types[value].shape, view.opset)
        extent = found[0] if found is not None and len(found) == 1 else None
    return Counted(view.max_trip, condition, static, extent)


def surely_runs(trip: Trip) -> bool:
    """Whether at least one iteration runs, whatever the inputs are."""
    return isinstance(trip.extent, int) and trip.extent > 0

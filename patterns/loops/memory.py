"""How much memory the values of all iterations take, against what the loop's own tensors take already.

A loop holds one iteration's values; computed for all iterations at once, every value is held for each of them. That
is no loss where the model keeps a tensor of that size anyway (a scan input, a scan output, a tensor read row by
row), and can be a large one where it does not.
"""

from __future__ import annotations

import dataclasses
import math

import onnx_ir as ir

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import is_used
from looplift.patterns.graph.view import View
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.trip import Trip

MAX_BYTES = 2**31
"""Where the trip count is known: a stack may take this much, or `MAX_RATIO` times what the loop keeps anyway."""

MAX_RATIO = 256
"""Where it is not: how many times larger one element may be than the largest that the loop keeps anyway.

256 is the head size of the largest attention heads, whose states are matrices over vectors of that length.
"""

SMALL = 64
"""Elements per iteration that are always held."""


@dataclasses.dataclass(frozen=True)
class Footprint:
    """The bound for one loop: `kept` is the largest element, in numbers, that the model keeps for every iteration."""

    kept: int
    trip: Trip

    def refusal(self, value: ir.Value, types: Types) -> Refusal | None:
        """Why the value may not be held for all iterations, or None. Unknown extents are taken to be small."""
        fact = types[value]
        elements = math.prod(dim for dim in fact.shape or () if isinstance(dim, int))
        if elements <= max(SMALL, self.kept):
            return None
        size = 8 if fact.dtype is None else max(1, int(fact.dtype.itemsize))
        if self.trip.static is not None:
            if self.trip.static * elements * size <= MAX_BYTES:
                return None
            amount = f"{self.trip.static * elements * size / 2**30:.1f} GiB"
        elif elements <= MAX_RATIO * self.kept:
            return None
        else:
            amount = f"{elements} numbers per iteration"
        return Refusal(f"'{value.name}' would be held for every iteration at once ({amount})", value.producer())


def footprint_of(view: View, types: Types, dependence: Dependence, trip: Trip) -> Footprint:
    """The bound for a loop, from its scan inputs, used scan outputs and the rows that it reads."""
    kept = [item.element for item in view.scan_inputs]
    kept += [out.element for out in view.scan_outputs if out.stacked is not None and is_used(out.stacked)]
    for node in view.body:
        if node.op_type in ("Gather", "Slice") and len(node.inputs) > 1:
            data, index = node.inputs[:2]
            if (
                data is not None
                and index is not None
                and dependence.invariant(data)
                and not dependence.invariant(index)
            ):
                kept.append(node.outputs[0])
    sizes = [math.prod(d for d in types[value].shape or () if isinstance(d, int)) for value in kept]
    return Footprint(max(sizes, default=0), trip)

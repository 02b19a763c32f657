"""Row shapes of the loops that stay, written where engines look for them."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.body_types import types_around, types_inside
from looplift.passes.walk import places
from looplift.patterns.types import is_public
from looplift.patterns.view import LoopView, is_loop, view_of


def declare_rows(model: ir.Model) -> None:
    """Declares the shape of what a Loop's body stacks, where it has none: proven, not what was declared before.

    A Loop of no iterations makes stacks of no rows. ONNX Runtime reads their rank, and the other extents, off the body,
    and what was declared of carried values there is gone by now (`infer_shapes.forget_declared`). Preserves bits.

    Legality: (1) the shape holds in every iteration, by inference from what the loop is given; (2) only a value without
    a shape gets one, of known extents and symbols that the model itself uses.
    """
    for place in places(model):
        for node in place.graph:
            view = view_of(node, place.opset) if is_loop(node) else None
            if isinstance(view, LoopView):
                _declare(model, view)


def _declare(model: ir.Model, view: LoopView) -> None:
    bare = [output.element for output in view.scan_outputs if output.element.shape is None]
    if not bare:
        return
    types = types_inside(view, types_around(model, view.node))
    for element in bare:
        fact = types[element]
        if fact.dtype is not None and fact.shape is not None:
            element.type = element.type or ir.TensorType(fact.dtype)
            element.shape = ir.Shape([dim if is_public(dim) else None for dim in fact.shape])

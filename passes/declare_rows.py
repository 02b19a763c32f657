"""Row shapes of the loops that stay, written where engines look for them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from looplift.passes.body_types import types_around, types_inside
from looplift.passes.infer_shapes import infer_shapes
from looplift.passes.walk import places
from looplift.patterns.types import is_public
from looplift.patterns.view import LoopView, ScanOutput, is_loop, view_of

RANK = "looplift.rank"


def note_ranks(model: ir.Model) -> None:
    """Notes, on what Loops stack, the rank that engines infer from what the model declares, until `declare_rows`.

    To be called while the declarations are there. It is not trusted, and no pass reads it.
    """
    if not any(output.element.shape is None for output in _stacked(model)):
        return
    inferred = model.clone()
    infer_shapes(inferred)
    for output, known in zip(_stacked(model), _stacked(inferred), strict=True):
        if output.element.shape is None and known.element.shape is not None:
            output.element.metadata_props[RANK] = str(len(known.element.shape))


def declare_rows(model: ir.Model) -> None:
    """Declares the shape of what a Loop's body stacks, where it has none: proven, not what was declared before.

    A Loop of no iterations makes stacks of no rows. ONNX Runtime reads their rank, and the other extents, off the body,
    and what was declared of carried values there is gone by now (`shapes.forget_declared`). Where nothing can be
    proven, the rank stays that which engines inferred before (`note_ranks`). Preserves bits.

    Legality: (1) the shape holds in every iteration, by inference from what the loop is given; (2) only a value without
    a shape gets one, of known extents and symbols that the model itself uses.
    """
    for view in list(_views(model)):
        _declare(model, view)
    for place in places(model):
        for output in (output for node in place.graph for output in node.outputs):
            output.metadata_props.pop(RANK, None)


def _views(model: ir.Model) -> Iterator[LoopView]:
    for place in places(model):
        for node in place.graph:
            view = view_of(node, place.opset) if is_loop(node) else None
            if isinstance(view, LoopView):
                yield view


def _stacked(model: ir.Model) -> Iterator[ScanOutput]:
    return (output for view in _views(model) for output in view.scan_outputs)


def _declare(model: ir.Model, view: LoopView) -> None:
    bare = [output.element for output in view.scan_outputs if output.element.shape is None]
    if not bare:
        return
    types = types_inside(view, types_around(model, view.node))
    for element in bare:
        fact, rank = types[element], element.metadata_props.get(RANK)
        if fact.dtype is not None and fact.shape is not None:
            element.type = element.type or ir.TensorType(fact.dtype)
            element.shape = ir.Shape([dim if is_public(dim) else None for dim in fact.shape])
        elif rank is not None:
            element.shape = ir.Shape([None] * int(rank))

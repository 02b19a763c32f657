"""Row shapes of the loops that stay, written where engines look for them."""

from __future__ import annotations

import onnx_ir as ir

from looplift.passes.graph.body_types import types_around, types_inside
from looplift.passes.graph.infer import infer_shapes
from looplift.patterns.graph.view import ScanView, View
from looplift.patterns.graph.walk import places, views

RANK = "looplift.rank"


def note_ranks(model: ir.Model) -> None:
    """Notes, on what loops stack, the rank that engines infer from what the model declares, until `declare_rows`.

    To be called while the declarations are there. It is not trusted, and no pass reads it.
    """
    if not any(element.shape is None for view in views(model) for element in _read(view)):
        return
    inferred = model.clone()
    infer_shapes(inferred)
    for view, known in zip(views(model), views(inferred), strict=True):
        for element, other in zip(_read(view), _read(known), strict=True):
            if element.shape is None and other.shape is not None:
                element.metadata_props[RANK] = str(len(other.shape))


def declare_rows(model: ir.Model) -> None:
    """Declares the shape of what a loop's body stacks, where it has none: proven, not what was declared before.

    ONNX Runtime runs no Scan of whose body's outputs it does not know the rank. A Loop of no iterations makes stacks of
    no rows: ONNX Runtime reads their rank, and the other extents, off the body, and what was declared of carried values
    there is gone by now (`shapes.forget_declared`). Where nothing can be proven, the rank stays that which engines
    inferred before (`note_ranks`). Preserves bits.

    Legality: (1) the shape holds in every iteration, by inference from what the loop is given; (2) only a value without
    a shape gets one, of known extents and symbols that the model itself uses.
    """
    for view in list(views(model)):
        _declare(model, view)
    for place in places(model):
        for output in (output for node in place.graph for output in node.outputs):
            output.metadata_props.pop(RANK, None)


def _read(view: View) -> list[ir.Value]:
    """Outputs of the body whose ranks engines want to know."""
    states = [carry.updated for carry in view.carries] if isinstance(view, ScanView) else []
    return [*states, *(output.element for output in view.scan_outputs)]


def _declare(model: ir.Model, view: View) -> None:
    bare = [element for element in _read(view) if element.shape is None]
    if not bare:
        return
    types = types_inside(view, types_around(model, view.node))
    for element in bare:
        fact, rank = types[element], element.metadata_props.get(RANK)
        if fact.dtype is not None and fact.shape is not None:
            element.type = element.type or ir.TensorType(fact.dtype)
            element.shape = fact.public_shape
        elif rank is not None:
            element.shape = ir.Shape([None] * int(rank))

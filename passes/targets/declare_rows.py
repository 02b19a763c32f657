"""Row shapes of the loops that stay, written where engines look for them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.graph.body_types import types_around, types_inside
from looplift.passes.graph.infer import infer_shapes
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.values import nodes_within
from looplift.patterns.graph.view import LoopView, ScanView, View
from looplift.patterns.graph.walk import places, views

INFERRED = "looplift.inferred"

SMALL = 64
"""Elements of a constant that may be an axis, or a shape."""


def note_rows(model: ir.Model) -> None:
    """Notes, on what loops stack, the shape that engines infer from what the model declares, until `declare_rows`.

    An extent that they don't infer is a question mark; empty: they infer no rank, either. To be called while the
    declarations are there. It is not trusted, and no pass reads it.
    """
    if not any(element.shape is None for view in views(model) for element in _read(view)):
        return
    inferred = model.clone()
    for view in list(views(inferred)):
        _copy_constants(view)
    infer_shapes(inferred)
    for view, known in zip(views(model), views(inferred), strict=True):
        for element, other in zip(_read(view), _read(known), strict=True):
            if element.shape is None:
                element.metadata_props[INFERRED] = _written(other.shape)


def _written(shape: ir.Shape | None) -> str:
    """The extents in brackets; nothing if the rank is not known."""
    if shape is None:
        return ""
    return f"[{' '.join(str(dim) if isinstance(dim, int) else '?' for dim in shape)}]"


def _read_back(text: str) -> list[int | None]:
    return [int(dim) if dim.isdigit() else None for dim in text.strip("[]").split()]


def _copy_constants(view: View) -> None:
    """Puts small constants from outside into the body: engines know them there, onnx's inference does not."""
    captured: dict[ir.Value, ir.Value] = {}
    for node in nodes_within(view.body):
        for k, value in enumerate(node.inputs):
            tensor = None if value is None or value.graph is view.body else constant(value, view.opset)
            if value is None or tensor is None or tensor.size > SMALL:
                continue
            if value not in captured:
                copy = ir.node("Constant", [], {"value": ir.tensor(tensor)})
                view.body.insert_before(view.body[0], copy)
                captured[value] = copy.outputs[0]
            node.replace_input_with(k, captured[value])


def declare_rows(model: ir.Model) -> None:
    """Declares the shape of what a loop's body stacks, where it has none: proven, not what was declared before.

    ONNX Runtime runs no Scan of whose body's outputs it does not know the rank. A Loop of no iterations makes stacks of
    no rows: ONNX Runtime reads their rank, and the other extents, off the body, and what was declared of carried values
    there is gone by now (`shapes.forget_declared`). What can't be proven stays what engines inferred before
    (`note_rows`); where they inferred not even a rank, a Loop's rows stay of unknown rank. Preserves bits.

    Legality: (1) the shape holds in every iteration, by inference from what the loop is given; (2) only a value without
    a shape gets one, of known extents and symbols that the model itself uses.
    """
    for view in list(views(model)):
        _declare(model, view)
    for place in places(model):
        for output in (output for node in place.graph for output in node.outputs):
            output.metadata_props.pop(INFERRED, None)


def _read(view: View) -> list[ir.Value]:
    """Outputs of the body whose ranks engines want to know."""
    states = [carry.updated for carry in view.carries] if isinstance(view, ScanView) else []
    return [*states, *(output.element for output in view.scan_outputs)]


def _declare(model: ir.Model, view: View) -> None:
    bare = [element for element in _read(view) if element.shape is None]
    if isinstance(view, LoopView):
        bare = [element for element in bare if element.metadata_props.get(INFERRED) != ""]
    if not bare:
        return
    types = types_inside(view, types_around(model, view.node))
    for element in bare:
        fact, noted = types[element], element.metadata_props.get(INFERRED)
        inferred = _read_back(noted) if noted else None
        if fact.dtype is not None and fact.shape is not None:
            element.type = element.type or ir.TensorType(fact.dtype)
            element.shape = fact.public_shape
        elif inferred is not None:
            element.shape = ir.Shape([None] * len(inferred))
        if inferred is not None and isinstance(view, LoopView):
            _complete(element, inferred)


def _complete(element: ir.Value, inferred: Sequence[int | None]) -> None:
    """Declares the extents that are not known as the engine inferred them: of rows of no iteration it gives these."""
    dims = list(element.shape or ())
    if len(dims) == len(inferred):
        known = [dim if isinstance(dim, int) or dim.value is not None else None for dim in dims]
        element.shape = ir.Shape(
            [one if one is not None else other for one, other in zip(known, inferred, strict=True)]
        )

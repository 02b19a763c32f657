"""What engines want of every Loop, once all that is known of the model is known to them, too."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import rebuild
from looplift.passes.graph.emit import Emitter
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import Carry, LoopView
from looplift.patterns.graph.walk import views

FREE = 11
"""Opset from which on a Loop may carry nothing (Loop-1 has one `v_initial` at least)."""


def carry_something(model: ir.Model) -> None:
    """Gives each Loop of an opset before 11 that carries nothing a truth value to carry, which nothing reads.

    Preserves bits. To be called last: `DropDead` would take it out again.
    """
    for view in list(views(model)):
        if not isinstance(view, LoopView) or view.carries or view.opset >= FREE:
            continue
        emit = Emitter(view.opset, Types())
        initial = emit.const(np.zeros((), np.bool_))
        emit.insert_before(view.node)
        previous = ir.Value(name="carried", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
        same = ir.node("Identity", [previous])
        same.outputs[0].type, same.outputs[0].shape = previous.type, previous.shape
        view.body.append(same)
        rebuild(dataclasses.replace(view, carries=(Carry(0, initial, previous, same.outputs[0], None),)))


def shape_conditions(model: ir.Model) -> None:
    """Gives each Loop its cond in the shape that its body declares, a scalar or a vector of one, where they differ.

    Engines give the body's cond input its declared rank, and refuse a cond of another if they know it; before it was
    not known. Preserves bits: a cond has one element.
    """
    for view in list(views(model)):
        if not isinstance(view, LoopView) or view.condition is None or view.condition_in.shape is None:
            continue
        rank, wanted = types_around(model, view.node)[view.condition].rank, len(view.condition_in.shape)
        if rank is None or rank == wanted or wanted > 1:
            continue
        emit = Emitter(view.opset, Types())
        condition = emit.op("Reshape", [view.condition, emit.const([1] * wanted)])
        emit.insert_before(view.node)
        view.node.replace_input_with(1, condition)

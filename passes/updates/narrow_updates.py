"""Updates that are computed in a wider type than the state has, in the state's own type."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around, types_inside
from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import Trait, has, is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import behind
from looplift.patterns.graph.view import View
from looplift.patterns.graph.walk import Place
from looplift.patterns.loops.dependence import Dependence

D = ir.DataType

WIDER = {D.FLOAT16: (D.FLOAT, D.DOUBLE), D.FLOAT: (D.DOUBLE,), D.INT32: (D.INT64,)}
"""Types to compute in, by the types of states. The others are left out: ONNX Runtime can't add them."""


@dataclasses.dataclass(frozen=True)
class NarrowUpdates:
    """Rewrites ``Cast<narrow>(Cast<wide>(v) + Cast<wide>(s))`` as ``v + s`` in the body of a loop, and so Sub and Mul.

    Legal if
    1. v is a carried value or depends on one (what does not can stay as it is);
    2. the types are one of the pairs in `WIDER`: float16 in float or double, float in double, int32 in int64. Both
       types of the pair are known, and the Cast names its own (no reference to an attribute of a function);
    3. of floats: both operands are narrow values made wide, or constants that the narrow type holds. The wide type has
       more than twice the digits of the narrow one, and two more: a sum that is rounded to it and then to the narrow
       type is rounded as if at once (Figueroa, When is double rounding innocuous?, 1995). Products are exact in it;
    4. of integers: sum, difference and product are those of a ring, and a Cast that drops high bits keeps them, so an
       operand may be any value, cast by itself;
    5. the wide result is made in the same graph and has no other reader, also not the graph itself;
    6. of floats: nothing in the body computes the operands or reads the result, which is returned. Side by side, ONNX
       Runtime does not round between nodes of float16, and fuses such as Conv and Mul, to other last bits.

    Preserves bits.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        del journal

        def visit(view: View, place: Place) -> bool:
            casts = [node for node in view.body if _narrows(node)]
            if not casts:
                return False
            types = types_inside(view, types_around(model, view.node))
            dependence = Dependence(view, types)
            return any([_rewrite(node, place.opset, types, dependence) for node in casts])

        return sweep_loops(model, visit)


def _narrows(node: ir.Node) -> bool:
    """A Cast of a sum, difference or product that only it reads."""
    if not is_standard(node, "Cast") or node.inputs[0] is None:
        return False
    if node.attributes["to"].is_ref():
        return False
    wide = node.inputs[0].producer()
    return (
        wide is not None
        and wide.graph is node.graph
        and is_standard(wide)
        and wide.op_type in ("Add", "Sub", "Mul")
        and len(wide.outputs[0].uses()) == 1
        and not wide.outputs[0].is_graph_output()
    )


def _rewrite(cast: ir.Node, opset: int, types: Types, dependence: Dependence) -> bool:
    narrow, result = ir.DataType(cast.attributes["to"].as_int()), cast.inputs[0]
    wide = result.producer() if result is not None else None
    if result is None or wide is None or not _may_be_narrowed(cast, narrow, types[result].dtype):
        return False
    if not any(dependence.reaches(carry.previous, cast.outputs[0]) for carry in dependence.view.carries):
        return False
    emit = Emitter(opset, types)
    operands = [_narrowed(value, narrow, types, emit, dependence.view.body) for value in wide.inputs]
    if None in operands:
        return False
    updated = emit.op(wide.op_type, operands)
    updated.type, updated.shape = cast.outputs[0].type, cast.outputs[0].shape
    emit.insert_before(cast)
    replace_value(cast.outputs[0], updated)
    dependence.view.body.remove([cast, wide], safe=True)
    return True


def _may_be_narrowed(cast: ir.Node, narrow: ir.DataType, wide: ir.DataType | None) -> bool:
    return wide in WIDER.get(narrow, ()) and (narrow == D.INT32 or _is_only_returned(cast.outputs[0]))


def _is_only_returned(value: ir.Value) -> bool:
    """Whether a value is read by nothing but the end of the body, through copies or not."""
    copies = behind(value, lambda part: (user.outputs[0] for user, _ in part.uses()))
    return all(is_standard(user, "Identity") for part in copies for user, _ in part.uses())


def _is_only_read(value: ir.Value, body: ir.Graph) -> bool:
    """Whether a value comes into the body from outside, or is a part of such a one."""

    def maker(part: ir.Value) -> ir.Node | None:
        node = part.producer()
        return node if node is not None and node.graph is body else None

    def moved(part: ir.Value) -> Sequence[ir.Value | None]:
        node = maker(part)
        return () if node is None else node.inputs[:1]

    return all((node := maker(part)) is None or has(node, Trait.MOVES) for part in behind(value, moved))


def _narrowed(
    value: ir.Value | None, narrow: ir.DataType, types: Types, emit: Emitter, body: ir.Graph
) -> ir.Value | None:
    """The operand in the narrow type, or None where it is not known to have a place there."""
    if value is None:
        return None
    node = value.producer()
    if is_standard(node, "Cast") and node.inputs[0] is not None:
        origin = node.inputs[0]
        if types[origin].dtype == narrow and (narrow == D.INT32 or _is_only_read(origin, body)):
            return origin
    if narrow == D.INT32:
        return emit.op("Cast", [value], {"to": ir.AttrInt64("to", int(narrow))})
    number = constant(value, emit.opset)
    if number is None:
        return None
    with np.errstate(all="ignore"):
        small = number.astype(narrow.numpy())
        same = np.array_equal(small.astype(number.dtype), number)
    return emit.const(small) if same else None

"""Division by a power of two as a multiplication, which recurrences are made of."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.graph.body_types import types_around
from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.sweeps import sweep_loops
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import Array, constant
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import View
from looplift.patterns.graph.walk import Place
from looplift.patterns.loops.dependence import Dependence


@dataclasses.dataclass(frozen=True)
class QuotientsIntoProducts:
    """Rewrites ``v / 4`` as ``v * 0.25`` in the body of a loop.

    Legal if
    1. v depends on a carried value (the others can stay as they are);
    2. it is divided by constants of float16, float or double that are powers of two or minus such, as are their
       reciprocals, none of them subnormal, none infinite: both results are then the same number rounded once;
    3. the two have one shape: the reciprocals stand as the divisors do.

    Preserves bits.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        del journal

        def visit(view: View, place: Place) -> bool:
            divisions = [node for node in view.body if _divides(node)]
            if not divisions:
                return False
            dependence = Dependence(view, types_around(model, view.node).with_body(view))
            return any([_rewrite(node, place.opset, dependence) for node in divisions])

        return sweep_loops(model, visit)


def _divides(node: ir.Node) -> bool:
    return is_standard(node, "Div")


def _rewrite(node: ir.Node, opset: int, dependence: Dependence) -> bool:
    dividend, divisor = node.inputs[0], constant(node.inputs[1], opset)
    if dividend is None or divisor is None or not _inverts_exactly(divisor):
        return False
    if not any(dependence.reaches(carry.previous, dividend) for carry in dependence.view.carries):
        return False
    emit = Emitter(opset, Types())
    product = emit.op("Mul", [dividend, emit.const(np.asarray(1 / divisor, divisor.dtype))])
    product.type, product.shape = node.outputs[0].type, node.outputs[0].shape
    emit.insert_before(node)
    replace_value(node.outputs[0], product)
    dependence.view.body.remove(node, safe=True)
    return True


def _inverts_exactly(divisor: Array) -> bool:
    """Whether all are powers of two (or minus such), with a reciprocal in the range of normal numbers."""
    if divisor.dtype not in (np.float16, np.float32, np.float64) or not np.isfinite(divisor).all():
        return False
    tiny, size = np.finfo(divisor.dtype).tiny, np.abs(divisor)
    mantissa, _ = np.frexp(size)
    return bool((mantissa == 0.5).all() and (size >= tiny).all() and (1 / size.astype(np.float64) >= tiny).all())

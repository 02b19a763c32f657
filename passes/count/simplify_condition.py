"""Gives a Loop whose exit test does not depend on the iteration the form that runs a counted number of times."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from looplift.passes.count.count_while_loops import counted
from looplift.passes.graph.edit import constant_node, insert_before, rebuild
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant, scalar
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.values import defined_in, source
from looplift.patterns.graph.view import LoopView, view_of
from looplift.patterns.graph.walk import loops


@dataclasses.dataclass(frozen=True)
class SimplifyCondition:
    """Rewrites an exit test that is the same in every iteration; M then says how many run.

    The exit test is the body's cond output, seen through Identity and through And with the cond input or with true:
    while an iteration runs, the cond input is true. The test may be

    1. the cond input or a constant true: it becomes Identity(cond input);
    2. the very value that the node takes as its cond, both seen through Identity: an iteration runs only where it is
       true, and it stays what it is, so again Identity. Where the node takes none, this says nothing;
    3. a constant false: at most one iteration runs, M becomes min(M, 1);
    4. another outer value `c` of one element (shape [] or [1], declared): M becomes `c ? M : min(M, 1)`, if there is M.

    After that, a cond that is a constant true is left out, if there is M.

    In an And of two tests, neither of which is the cond input or true, the And itself is the test. The arithmetic of 3
    and 4 needs integers in Constant and in Less or Min: opset 9, else the loop stays. Where the node has no cond, 3
    and 4 obey the body's cond, as engines do, although the table in the Loop specification says that it is
    ignored; 1 holds under both readings. Preserves bits. Source: Loop in the operator specification, "Operator inputs
    defined as (max_trip_count, condition_var)".
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Changes the model in place; tells whether anything changed."""
        changed = False
        for node, place in loops(model):
            view = view_of(node, place.opset)
            if isinstance(view, LoopView):
                changed |= _simplify(view, journal)
        return changed


def _simplify(view: LoopView, journal: Journal) -> bool:
    test = _exit_test(view)
    before = view
    if _holds_while_running(test, view):
        if not _is_copy_of_condition(view):
            view = counted(view, view.max_trip, view.condition)
            journal.did(view.node, "made the exit test, which is always true, a copy of the cond input")
    else:
        limit = _limit(test, view)
        if limit is None:
            return False
        reading = "" if view.condition is not None else " (cond is left out: the body's cond is obeyed)"
        view = counted(view, limit, view.condition)
        journal.did(view.node, f"moved the exit test, the same in every iteration, into the trip count{reading}")
    if view.max_trip is not None and view.condition is not None and scalar(view.condition, view.opset) is True:
        view = rebuild(dataclasses.replace(view, condition=None))
        journal.did(view.node, "left out the cond, which is true")
    return view is not before


def _exit_test(view: LoopView) -> ir.Value:
    """What decides about the next iteration, given that this one runs."""
    value = source(view.condition_out)
    while is_standard(node := value.producer(), "And"):
        sides = [source(side) for side in node.inputs if side is not None]
        open_sides = [side for side in sides if side is not view.condition_in and scalar(side, view.opset) is not True]
        if len(open_sides) == 2:
            return value
        value = open_sides[0] if open_sides else view.condition_in
    return value


def _holds_while_running(test: ir.Value, view: LoopView) -> bool:
    if test is view.condition_in or scalar(test, view.opset) is True:
        return True
    return view.condition is not None and test is source(view.condition)


def _is_copy_of_condition(view: LoopView) -> bool:
    node = view.condition_out.producer()
    return node is not None and node.op_type == "Identity" and node.inputs[0] is view.condition_in


def _limit(test: ir.Value, view: LoopView) -> ir.Value | None:
    """The trip count under a constant false or captured test; None if the test is neither or can't be moved."""
    if scalar(test, view.opset) is False:
        nodes, limit = _at_most_once(view)
    elif _is_outer(test, view) and _has_one_element(test) and view.max_trip is not None:
        nodes, once = _at_most_once(view)
        if once is None:
            return None
        limit = _count(ir.node("Where", inputs=[test, view.max_trip, once]))
        nodes = [*nodes, *_producers(limit)]
    else:
        return None
    insert_before(view.node, nodes)
    return limit


def _is_outer(value: ir.Value, view: LoopView) -> bool:
    return not defined_in(value, view.body)


def _has_one_element(value: ir.Value) -> bool:
    return value.shape is not None and tuple(value.shape) in ((), (1,))


def _at_most_once(view: LoopView) -> tuple[list[ir.Node], ir.Value | None]:
    """min(M, 1) and the nodes that compute it; None where the opset has no op for it, or no integer Constant."""
    if view.opset < 9:
        return [], None
    known = np.array(1) if view.max_trip is None else constant(view.max_trip, view.opset)
    if known is not None:
        node = constant_node("once", np.minimum(known, 1).astype(np.int64))
        return [node], node.outputs[0]
    assert view.max_trip is not None
    one = constant_node("one", np.array(1, np.int64))
    if view.opset >= 12:
        limit = _count(ir.node("Min", inputs=[view.max_trip, one.outputs[0]]), like=view.max_trip)
        return [one, *_producers(limit)], limit
    less = ir.node("Less", inputs=[view.max_trip, one.outputs[0]])
    less.outputs[0].dtype, less.outputs[0].shape = ir.DataType.BOOL, view.max_trip.shape
    limit = _count(ir.node("Where", inputs=[less.outputs[0], view.max_trip, one.outputs[0]]), like=view.max_trip)
    return [one, less, *_producers(limit)], limit


def _count(node: ir.Node, like: ir.Value | None = None) -> ir.Value:
    value = node.outputs[0]
    value.dtype, value.shape = ir.DataType.INT64, like.shape if like is not None else None
    return value


def _producers(value: ir.Value) -> list[ir.Node]:
    node = value.producer()
    return [] if node is None else [node]

"""Operators whose axes move back by the leading ones: reductions, reshapes, joins."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from looplift.passes.vectorize.context import OverTime, Rule
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import TRAITS, Trait
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.slices import known_axes
from looplift.patterns.loops.trip import surely_runs

AXES_AS_INPUT_FROM = 18
"""Reductions take their axes as an input from opset 18 on; ReduceSum from 13."""


def shifted(over: OverTime, node: ir.Node, axes: Sequence[int], rank: int) -> list[int]:
    """Axes that a node names, of an element of `rank` axes, as axes of its stack; refused if the element lacks one."""
    absent = next((axis for axis in axes if not -rank <= axis < rank), None)
    if absent is not None:
        raise Refused(Refusal(f"{node.op_type} along axis {absent} of {rank}", node))
    return [axis % rank + over.lead for axis in axes]


def _known(over: OverTime, node: ir.Node, value: ir.Value, what: str) -> list[int]:
    array = constant(value, over.view.opset)
    if array is None:
        raise Refused(Refusal(f"the {what} of {node.op_type} are not constant", node))
    return [int(x) for x in array.reshape(-1)]


def _axes(over: OverTime, node: ir.Node) -> list[int]:
    """The axes that an operator names, as attribute or input; none if it names none."""
    axes = known_axes(node, over.view.opset)
    if axes is None:
        raise Refused(Refusal(f"the axes of {node.op_type} are not constant", node))
    return axes


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def reduction(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Reduce*: over the element's axes. The order in which an engine adds along an axis is its own."""
    value, rank, axes = _first(node), over.rank(_first(node)), _axes(over, node)
    if not axes:
        if node.attributes.get_int("noop_with_empty_axes", 0):
            raise Refused(Refusal(f"{node.op_type} with empty axes", node))
        axes = list(range(rank))
    if rank == 0:
        raise Refused(Refusal(f"{node.op_type} of a scalar", node))
    axes = shifted(over, node, axes, rank)
    attributes: dict[str, ir.Attr | int | list[int]] = {"keepdims": node.attributes.get_int("keepdims", 1)}
    from_opset = 13 if node.op_type == "ReduceSum" else AXES_AS_INPUT_FROM
    if over.view.opset < from_opset:
        return [over.emit.op(node.op_type, [over.stack(value)], {**attributes, "axes": axes})]
    return [over.emit.op(node.op_type, [over.stack(value), over.emit.const(axes)], attributes)]


def axis_attribute(default: int, since: int = 1) -> Rule:
    """A rule for operators with one `axis` attribute, counted in the element's axes."""

    def rule(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
        if over.view.opset < since:
            raise Refused(Refusal(f"{node.op_type} before opset {since} flattens its input", node))
        value, rank = _first(node), over.rank(_first(node))
        if rank == 0:
            raise Refused(Refusal(f"{node.op_type} of a scalar", node))
        (axis,) = shifted(over, node, [node.attributes.get_int("axis", default)], rank)
        return [over.emit.op(node.op_type, [over.stack(value)], {**node.attributes, "axis": axis})]

    return rule


def squeeze(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Squeeze: only with its axes named, or known from the shape."""
    value, rank, axes = _first(node), over.rank(_first(node)), _axes(over, node)
    if not axes:
        shape = over.types[value].shape or ()
        if not all(isinstance(dim, int) for dim in shape):
            raise Refused(Refusal("which axes Squeeze drops is not known", node))
        axes = [axis for axis, dim in enumerate(shape) if dim == 1]
    return [over.emit.squeeze(over.stack(value), shifted(over, node, axes, rank))]


def unsqueeze(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Unsqueeze: axes count in the result."""
    value, axes = _first(node), _axes(over, node)
    return [over.emit.unsqueeze(over.stack(value), sorted(shifted(over, node, axes, over.rank(value) + len(axes))))]


def transpose(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Transpose: the leading axes stay in front."""
    value, rank = _first(node), over.rank(_first(node))
    perm = node.attributes.get_ints("perm", range(rank)[::-1])
    return [over.emit.transpose(over.stack(value), [*range(over.lead), *(over.lead + axis for axis in perm)])]


def reshape(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Reshape and Flatten: the leading extents stay, the element's new ones are numbers or extents it had before."""
    value, result = _first(node), over.types[node.outputs[0]]
    before, after = over.types[value].shape, result.shape
    if before is None or after is None or not all(isinstance(dim, int) or dim in before for dim in after):
        raise Refused(Refusal(f"the shape that {node.op_type} makes is not known", node))
    emit, stack = over.emit, over.stack(value)
    numbers = [dim for dim in after if isinstance(dim, int)]
    if len(numbers) == len(after) and 0 not in numbers:
        return [emit.op("Reshape", [stack, emit.const([0] * over.lead + numbers)])]
    if None in after:
        raise Refused(Refusal(f"the shape that {node.op_type} makes is not known", node))
    shape = emit.op("Shape", [stack])
    parts = [emit.slice(shape, 0, over.lead, 0)]
    for dim in after:
        axis = over.lead + before.index(dim) if dim in before else 0
        parts.append(emit.const([dim]) if isinstance(dim, int) else emit.slice(shape, axis, axis + 1, 0))
    return [over.reshaped(stack, emit.op("Concat", parts, {"axis": 0}), result, node)]


def concat(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Concat: invariant parts are repeated."""
    (axis,) = shifted(over, node, [node.attributes.get_int("axis", 0)], over.rank(_first(node)))
    return [over.emit.op("Concat", [over.stack(x) for x in node.inputs if x is not None], {"axis": axis})]


def split(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """Split: sizes as they are."""
    (axis,) = shifted(over, node, [node.attributes.get_int("axis", 0)], over.rank(_first(node)))
    sizes = [over.outside(x) for x in node.inputs[1:] if x is not None]
    copy = ir.Node(
        "",
        "Split",
        [over.stack(_first(node)), *sizes],
        [*(a for a in node.attributes.values() if a.name != "axis"), ir.AttrInt64("axis", axis)],
        num_outputs=len(node.outputs),
    )
    return over.emit.add(copy).outputs


def cumulative(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """CumSum: along an axis of the element."""
    assert node.inputs[1] is not None
    axes = shifted(over, node, _known(over, node, node.inputs[1], "axes"), over.rank(_first(node)))
    if len(axes) != 1:
        raise Refused(Refusal(f"CumSum along {len(axes)} axes", node))
    return [over.emit.op(node.op_type, [over.stack(_first(node)), over.emit.const(axes[0])], dict(node.attributes))]


def _widened(over: OverTime, stack: ir.Value, k: ir.Value, axis: int, rank: int) -> ir.Value:
    """The stack; where it has no rows, with k more entries along the axis: TopK fails of fewer even so."""
    emit = over.emit
    none = emit.op("Cast", [emit.op("Equal", [over.trip_count(), emit.const(0)])], {"to": int(ir.DataType.INT64)})
    more = emit.op("Reshape", [emit.op("Mul", [k, none]), emit.const([1])])
    pads = [emit.const([0] * (rank + axis)), more, emit.const([0] * (rank - 1 - axis))]
    return emit.op("Pad", [stack, emit.op("Concat", pads, {"axis": 0})])


def top_k(over: OverTime, node: ir.Node) -> Sequence[ir.Value]:
    """TopK: of each element, as many in every iteration; only sorted, where ties and their order are defined."""
    value, k = _first(node), node.inputs[1] if len(node.inputs) > 1 else None
    if k is None or not node.attributes.get_int("sorted", 1) or over.view.opset < 11:
        raise Refused(
            Refusal("TopK before opset 11, or unsorted, leaves the order of equal elements to the engine", node)
        )
    if over.varies(k):
        raise Refused(Refusal("the number of elements that TopK takes varies", node))
    (axis,) = shifted(over, node, [node.attributes.get_int("axis", -1)], over.rank(value))
    stack, shape, number = over.stack(value), over.types[value].shape, constant(k, over.view.opset)
    extent = None if shape is None else shape[axis - over.lead]
    enough = number is not None and isinstance(extent, int) and bool((number <= extent).all())
    if not enough and not surely_runs(over.trip):
        stack = _widened(over, stack, over.outside(k), axis, over.rank(value) + over.lead)
    attributes = [*(a for a in node.attributes.values() if a.name != "axis"), ir.AttrInt64("axis", axis)]
    copy = ir.Node("", "TopK", [stack, over.outside(k)], attributes, num_outputs=len(node.outputs))
    return over.emit.add(copy).outputs


RULES: dict[str, Rule] = {
    **dict.fromkeys(TRAITS[Trait.REDUCES], reduction),
    "ArgMax": axis_attribute(0),
    "ArgMin": axis_attribute(0),
    "Concat": concat,
    "CumSum": cumulative,
    "Flatten": reshape,
    "Hardmax": axis_attribute(-1, since=13),
    "LogSoftmax": axis_attribute(-1, since=13),
    "Reshape": reshape,
    "Softmax": axis_attribute(-1, since=13),
    "Split": split,
    "Squeeze": squeeze,
    "TopK": top_k,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}

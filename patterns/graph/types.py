"""Element types and shapes of values, the values of a loop body among them, from facts alone.

What a body *declares* about its inputs and inner values is not trusted: exporters get it wrong, and ONNX's own
inference drops the shapes of carried values. So a body is inferred anew: its iteration number and scan elements
have the types that the node gives them, a carry starts with the type of its initial value, and the dimensions
that one trip round the body does not preserve are given up until nothing changes (a fixed point from above).

Single nodes are inferred with onnx's own per-operator functions (`onnx.shape_inference.infer_node_outputs`), which are
believed about shapes only where they were compared with what engines compute (`Trait.INFERRED`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from looplift.patterns.graph.constants import constant_tensor
from looplift.patterns.graph.operator_types import MICROSOFT, NOT_IN_ONNX, Fact, contributed_types, operator_types
from looplift.patterns.graph.operators import Trait, has, has_references, is_standard
from looplift.patterns.graph.own_nodes import initial, is_recurrence, series
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.shapes import (
    PRIVATE,
    Dim,
    broadcast_to,
    broadcasts_into,
    entries,
    expanded,
    is_public,
    range_extent,
    reshaped,
    sliced_shape,
    spoken,
)
from looplift.patterns.graph.values import defined_in, has_subgraphs, subgraphs
from looplift.patterns.graph.view import LoopView, View, is_any_loop, view_of


@dataclasses.dataclass(frozen=True)
class TensorType:
    """Element type and shape of a tensor; None is unknown, for the shape also the rank."""

    dtype: ir.DataType | None = None
    shape: tuple[Dim, ...] | None = None

    @property
    def pair(self) -> Fact:
        """Element type and shape."""
        return self.dtype, self.shape

    @property
    def rank(self) -> int | None:
        """Number of axes, if known."""
        return None if self.shape is None else len(self.shape)

    @property
    def public_type(self) -> ir.TensorType | None:
        """The element type, as a model declares it."""
        return None if self.dtype is None else ir.TensorType(self.dtype)

    @property
    def public_shape(self) -> ir.Shape | None:
        """The shape as a model may declare it: without the symbols that this module made up."""
        return None if self.shape is None else ir.Shape([dim if is_public(dim) else None for dim in self.shape])

    def same_shape(self, other: TensorType) -> bool:
        """Whether both have, for certain, the same extents."""
        return self.shape is not None and self.shape == other.shape and None not in self.shape

    def __str__(self) -> str:
        dtype = self.dtype.name.lower() if self.dtype is not None else "?"
        return dtype + ("[...]" if self.shape is None else f"[{', '.join(map(spoken, self.shape))}]")


UNKNOWN = TensorType()


def tensor_shape(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """The shape of a tensor that is at hand."""
    return tuple(dim for dim in tensor.shape if isinstance(dim, int))


def outer_type(value: ir.Value | None) -> TensorType:
    """What the IR says of a value outside the body under question.

    An extent with no name gets a symbol of its own, so that "the same as that one" can be said of it.
    """
    if value is None:
        return UNKNOWN
    tensor = None if value.is_graph_input() else constant_tensor(value)
    if tensor is not None:
        return TensorType(tensor.dtype, tensor_shape(tensor))
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return UNKNOWN
    shape = None
    if value.shape is not None:
        shape = tuple(
            dim if isinstance(dim, int) else (dim.value or f"{value.name}{PRIVATE}{id(value)}.{axis}")
            for axis, dim in enumerate(value.shape)
        )
    return TensorType(value.dtype, shape)


class Types:
    """Types of values by identity: known ones of a body first, then what the IR says."""

    def __init__(
        self,
        known: Mapping[int, TensorType] | None = None,
        alive: tuple[object, ...] = (),
        loops: _LoopTypes | None = None,
    ) -> None:
        self._known = dict(known or {})
        self._alive = alive  # identities hold only while what they name lives, in the graph or not
        self._loops = loops  # while a body is inferred: nothing changes meanwhile

    def __getitem__(self, value: ir.Value | None) -> TensorType:
        """The type of a value; `UNKNOWN` where nothing is known (or it is no tensor)."""
        if value is None:
            return UNKNOWN
        known = self._known.get(id(value))
        return known if known is not None else outer_type(value)

    def with_body(self, view: View, assumed: Mapping[int, TensorType] | None = None) -> Types:
        """These facts and those of a loop's body, given what is `assumed` of some of its values (by identity)."""
        alive = (*self._alive, *view.body.inputs, *(output for node in view.body for output in node.outputs))
        outer = self if self._loops is not None else Types(self._known, self._alive, _LoopTypes())
        return Types({**self._known, **_body_types(view, outer, assumed or {})}, alive, self._loops)

    def while_unchanged(self) -> Types:
        """The same facts, where bodies are inferred one after the other and nothing changes between them."""
        return Types(self._known, self._alive, _LoopTypes())

    def at_large(self) -> Types:
        """The same facts, for a time in which bodies may change."""
        return Types(self._known, self._alive)

    def one_iteration(self, view: View, assumed: Mapping[int, TensorType]) -> Types:
        """The types in one iteration that starts as these facts say, given what is `assumed` of some values."""
        facts = {id(value): self[value] for value in view.body.inputs}
        _infer_graph(view.body, facts, self, view.opset, assumed)
        return Types({**self._known, **facts}, self._alive)

    def with_value(self, value: ir.Value, fact: TensorType) -> Types:
        """These facts and one more."""
        return Types({**self._known, id(value): fact}, (*self._alive, value))


def _body_types(view: View, outer: Types, assumed: Mapping[int, TensorType]) -> dict[int, TensorType]:
    state = [_element(outer[carry.initial], 0 if view.batched else None) for carry in view.carries]
    while True:
        facts = _inputs(view, outer, state)
        _infer_graph(view.body, facts, outer, view.opset, assumed)
        merge = _widen if isinstance(view, LoopView) else _refine
        widened = [
            merge(before, facts.get(id(carry.updated)) or outer[carry.updated])
            for carry, before in zip(view.carries, state, strict=True)
        ]
        if widened == state:
            return facts
        state = widened


def _inputs(view: View, outer: Types, state: list[TensorType]) -> dict[int, TensorType]:
    facts = {id(carry.previous): fact for carry, fact in zip(view.carries, state, strict=True)}
    if isinstance(view, LoopView):
        # Engines hand the iteration number over with the rank that the body declares: none, or one element.
        for value, dtype in ((view.iteration, ir.DataType.INT64), (view.condition_in, ir.DataType.BOOL)):
            rank_one = value.shape is not None and len(value.shape) == 1
            facts[id(value)] = TensorType(dtype, (1,) if rank_one else ())
    else:
        for item in view.scan_inputs:
            whole = outer[item.outer]
            batch = 1 if view.batched else 0
            if view.batched:
                whole = _element(whole, 0)
            facts[id(item.element)] = _element(whole, item.axis if not batch else 0)
    return facts


def _element(whole: TensorType, axis: int | None) -> TensorType:
    """The type without one axis."""
    if axis is None or whole.shape is None:
        return whole
    if not -len(whole.shape) <= axis < len(whole.shape):
        return TensorType(whole.dtype, None)
    axis %= len(whole.shape)
    return TensorType(whole.dtype, whole.shape[:axis] + whole.shape[axis + 1 :])


def _widen(before: TensorType, after: TensorType) -> TensorType:
    """What holds of both. A Loop's carry may change shape; its element type may not."""
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return TensorType(before.dtype, None)
    return TensorType(
        before.dtype, tuple(x if x == y else None for x, y in zip(before.shape, after.shape, strict=True))
    )


def _refine(before: TensorType, after: TensorType) -> TensorType:
    """A Scan's state may not change shape, so what is known of either end is known of both; extents only grow known."""
    if before.shape is None:
        return TensorType(before.dtype, after.shape)
    if after.shape is None or len(before.shape) != len(after.shape):
        return before
    merged = tuple(y if isinstance(y, int) else x for x, y in zip(before.shape, after.shape, strict=True))
    return TensorType(before.dtype, merged)


def graph_types(graph: ir.Graph | ir.Function, opset: int) -> Types:
    """What follows of every value that a graph and the branches in it compute; what they declare of it is not read."""
    facts: dict[int, TensorType] = {}
    work: list[ir.Graph | ir.Function] = [graph]
    while work:
        each = work.pop()
        _infer_graph(each, facts, Types(facts), opset, {})
        work.extend(inner for node in each if node.op_type == "If" for inner in subgraphs(node))
    return Types(facts)


def _infer_graph(
    graph: ir.Graph | ir.Function,
    facts: dict[int, TensorType],
    outer: Types,
    opset: int,
    assumed: Mapping[int, TensorType],
) -> None:
    """Adds the types of every node output of this graph (not of graphs nested in it)."""
    for value in graph.initializers.values() if isinstance(graph, ir.Graph) else ():
        if id(value) not in facts:
            facts[id(value)] = outer_type(value)
    known = Types({**outer._known, **facts}, loops=outer._loops)
    for node in graph:
        for output, fact in zip(node.outputs, infer_node(node, known, opset), strict=True):
            facts[id(output)] = known._known[id(output)] = assumed.get(id(output), fact)


def infer_node(node: ir.Node, known: Types, opset: int) -> tuple[TensorType, ...]:
    """Types of a node's outputs from those of its inputs; `UNKNOWN` where the operator's inference gives none."""
    nothing = tuple(UNKNOWN for _ in node.outputs)
    if is_standard(node, "If"):
        return _infer_if(node, known, opset)
    if is_recurrence(node):
        return _recurrence_types(node, known)[: len(node.outputs)]
    if is_any_loop(node):
        return _loop_types(node, known, opset) or nothing
    if has_references(node) or has_subgraphs(node):
        return nothing
    if node.domain == MICROSOFT or node.op_type in NOT_IN_ONNX:
        read = [None if value is None else known[value].pair for value in node.inputs]
        return tuple(TensorType(*fact) for fact in contributed_types(node, read, opset))
    if not is_standard(node):
        return nothing
    if node.op_type == "Constant":
        tensor = constant_tensor(node.outputs[0])
        return nothing if tensor is None else (TensorType(tensor.dtype, tensor_shape(tensor)),)
    facts = operator_types(node, [None if value is None else known[value].pair for value in node.inputs], opset)
    found = (TensorType(*fact) for fact in facts)
    return tuple(TensorType(fact.dtype, _computed_shape(node, fact, known, opset)) for fact in found)


def _loop_types(node: ir.Node, known: Types, opset: int) -> tuple[TensorType, ...] | None:
    """Of a loop in the body: what holds of a carry before and after every iteration, and rows of one shape."""
    view = view_of(node, opset)
    if isinstance(view, Refusal) or view.batched:
        return None
    memory = known._loops or _LoopTypes()
    result = memory.seen(node, known)
    if result is None:
        inner = Types(known._known, known._alive, memory).with_body(view)
        finals = [inner[carry.previous] for carry in view.carries]
        stacks = [_stacked(inner[output.element], output.axis) for output in view.scan_outputs]
        result = tuple([*finals, *stacks][: len(node.outputs)])
        memory.note(node, known, result)
    return result


class _LoopTypes:
    """The types of loops inside a body, by the types of all that they read, while the body is inferred.

    A body is gone through again until its types stay the same, and so would be the bodies in it each time: from the
    outermost on that doubles with every level.
    """

    def __init__(self) -> None:
        self._found: dict[ir.Node, list[tuple[Types, tuple[TensorType, ...]]]] = {}
        self._read: dict[ir.Node, tuple[ir.Value, ...]] = {}

    def seen(self, node: ir.Node, known: Types) -> tuple[TensorType, ...] | None:
        """What was found of this loop when all that it reads was of the same types."""
        if node not in self._found:
            return None
        read = self._read_by(node)
        same = (result for before, result in self._found[node] if all(before[x] == known[x] for x in read))
        return next(same, None)

    def _read_by(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """What `reads` gives, each value once; by what the loops inside read, which is kept, too."""
        if node not in self._read:
            found = [value for value in node.inputs if value is not None]
            for body in subgraphs(node):
                inner = [value for each in body for value in self._read_by(each)]
                found += [value for value in (*inner, *body.outputs) if not defined_in(value, body)]
            self._read[node] = tuple(dict.fromkeys(found))
        return self._read[node]

    def note(self, node: ir.Node, known: Types, result: tuple[TensorType, ...]) -> None:
        """Keeps what was found."""
        self._found.setdefault(node, []).append((known, result))


def _stacked(row: TensorType, axis: int) -> TensorType:
    if row.shape is None or not -len(row.shape) - 1 <= axis <= len(row.shape):
        return TensorType(row.dtype)
    axis %= len(row.shape) + 1
    return TensorType(row.dtype, (*row.shape[:axis], None, *row.shape[axis:]))


def _recurrence_types(node: ir.Node, known: Types) -> tuple[TensorType, TensorType]:
    """Final state and stacked states. AddStep's state may grow in the first step; the others' keeps its shape."""
    state = known[initial(node)]
    time: Dim = None
    for k, timed in series(node).items():
        element = known[node.inputs[k]].shape
        if timed and element:
            time = element[0]
        elif node.op_type == "AddStep" and not _broadcasts_into(element, state.shape):
            return TensorType(state.dtype), TensorType(state.dtype)
    return state, TensorType(state.dtype, None if state.shape is None else (time, *state.shape))


def _broadcasts_into(element: tuple[Dim, ...] | None, shape: tuple[Dim, ...] | None) -> bool:
    """Whether a sum with an element of the first shape has the second shape, or fails."""
    if element is None or shape is None or len(element) > len(shape):
        return False
    pairs = zip(reversed(element), reversed(shape), strict=False)
    return all(broadcasts_into(x, y) or (isinstance(y, int) and y != 1) for x, y in pairs)


def _infer_if(node: ir.Node, known: Types, opset: int) -> tuple[TensorType, ...]:
    """What holds of the results of both branches."""
    results = []
    for branch in subgraphs(node):
        facts: dict[int, TensorType] = {}
        _infer_graph(branch, facts, known, opset, {})
        results.append([facts.get(id(value)) or known[value] for value in branch.outputs])
    if len(results) != 2 or any(len(facts) != len(node.outputs) for facts in results):
        return tuple(UNKNOWN for _ in node.outputs)
    return tuple(_in_both(*facts) for facts in zip(*results, strict=True))


def _in_both(left: TensorType, right: TensorType) -> TensorType:
    return _widen(left, right) if left.dtype == right.dtype else UNKNOWN


def _computed_shape(node: ir.Node, fact: TensorType, known: Types, opset: int) -> tuple[Dim, ...] | None:
    """The shape that inference finds, if it was audited.

    An op that is told its result's shape by a tensor gets it from there, where the graph computes that from shapes.
    """
    if not has(node, Trait.INFERRED):
        return None
    if has(node, Trait.BROADCASTS):
        return broadcast_to(fact.shape, [known[value].shape for value in node.inputs])
    if node.op_type not in ("ConstantOfShape", "Expand", "Range", "Reshape", "Slice") or fact.dtype is None:
        return fact.shape
    if node.op_type == "Slice":
        return sliced_shape(node, known[node.inputs[0]].shape, opset)
    if fact.shape is not None and None not in fact.shape:
        return fact.shape

    def shape_of(value: ir.Value) -> tuple[Dim, ...] | None:
        return known[value].shape

    before = shape_of(node.inputs[0]) if node.inputs[0] is not None else None
    if node.op_type == "Range":
        return (range_extent(node, shape_of, opset),)
    target = entries(node.inputs[-1], shape_of, opset)
    if node.op_type == "ConstantOfShape":
        shape = target
    elif node.op_type == "Expand":
        shape = expanded(before, target)
    else:
        shape = reshaped(before, target, allow_zero=node.attributes.get_int("allowzero", None) == 1)
    return fact.shape if shape is None else shape


__all__ = [
    "UNKNOWN",
    "Dim",
    "TensorType",
    "Types",
    "graph_types",
    "infer_node",
    "is_public",
    "outer_type",
    "tensor_shape",
]

"""What of a node's surroundings decides about its last bits: what the quirks named there hang on.

Seen to change nothing: elementwise operators of float32 and double among themselves (but for the quotient), data
movement, Gemm and what follows it, bias and Gelu or Softmax, whether a carried value or one from outside is read where
both have a known shape and neither is constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir

from looplift.patterns.engines.onnxruntime.kernels import HALF, IN_HALF, LAID_OUT, REACH
from looplift.patterns.engines.onnxruntime.placement import (
    Stacked,
    depth_without_copies,
    reader_minds,
    rows,
    stacked,
    writer_minds,
)
from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.values import has_subgraphs, is_used, nodes_within, reads, source, subgraphs

_FUSED_AFTER_CONV = frozenset(
    "Add AveragePool BatchNormalization Clip Concat Elu GlobalAveragePool HardSigmoid LeakyRelu MaxPool Mul Relu "
    "Sigmoid Sum Tanh".split()
)
_QUANTIZE = frozenset({"DequantizeLinear", "QuantizeLinear"})
_PRODUCTS = frozenset({"FusedMatMul", "Gemm", "MatMul"})

PARTNERS: Mapping[str, frozenset[str]] = {
    **{name: frozenset({"Conv", "ConvTranspose"}) for name in _FUSED_AFTER_CONV},
    "Add": frozenset({"Conv", "ConvTranspose", "MatMul", "Mul"}),
    "BatchNormalization": frozenset({"Conv", "ConvTranspose", "MatMul", "Reshape", "Transpose"}),
    "Cast": frozenset({"ConvInteger", "MatMulInteger"}),
    "Div": frozenset({"Gemm", "MatMul"}),
    "Erf": frozenset({"Div", "Mul"}),
    "Gemm": frozenset({"Div", "Mul", "Transpose"}),
    "LayerNormalization": frozenset({"Add"}),
    "MatMul": frozenset({"Div", "Mul", "Transpose"}),
    "MatMulInteger": frozenset({"DynamicQuantizeLinear"}),
    "Mul": frozenset({"Cast", "Conv", "ConvTranspose", "Div", "Gemm", "MatMul"}),
    "Sum": frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"}),
}
"""For an operator, those in front of it that may become one with it, in one graph."""

THROUGH = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""What may stand between a product and the Transpose of an operand."""

SHAPED = frozenset({"Add", "LayerNormalization"})
"""Operators that become one with those in front of them only where shapes are known; so does a normalising Mul."""

SCALED = frozenset({"Div", "Mul"})
"""Operators that become one with a neighbour only where one of their operands is constant."""


_Extents = tuple["int | str | None", ...]


@dataclasses.dataclass(frozen=True)
class Tie:
    """One thing around a node that may decide about its last bits.

    Attributes:
        kind: ``packed``, ``half``, ``placed``, ``row``, or the operator in front that may become one with this one.
        operand: the input through which; of what is placed, the output.
        partner: the number of the node in front, None for a constant.
        shared: whether others read what the partner makes, too.
        shapes: those that are known of both nodes' inputs, where it matters; symbols by the order in which they come.
        constants: which of both nodes' inputs are constant, where it matters.
        depths: inside how many stacks or tensors it lies, as the model stands, and without its copies.
    """

    kind: str
    operand: int
    partner: int | None = None
    shared: bool = False
    shapes: tuple[_Extents | None, ...] = ()
    constants: tuple[bool, ...] = ()
    depths: tuple[int, int] = (0, 0)


Numbers = Callable[[ir.Node], "int | None"]
"""Tells nodes apart, also in a copy of the model."""


def ties(graph: ir.Graph | ir.Function, number: Numbers) -> dict[int, frozenset[Tie]]:
    """For each numbered node in the graph and the graphs in it what its last bits hang on; nodes without a tie too.

    A node may move to another place, and lose or get neighbours, without other bits, if its ties stay what they are.

    Args:
        graph: with its types and shapes as an engine infers them.
        number: of a node; None or less than 0 for one that is not asked about.
    """
    found: dict[int, frozenset[Tie]] = {}
    opset = graph.opset_imports.get("", 1)
    places = {id(value): depth for value, depth in stacked(graph, opset)}
    read = set(map(id, rows(graph, opset)))
    known: Known = {}
    inlined = homes(graph, known)
    for node, outside in _nodes(graph, ()):
        mark = number(node)
        if mark is not None and mark >= 0:
            tied = frozenset((*_ties(node, outside, number, known, inlined), *_places(node, places, read)))
            found[mark] = found.get(mark, frozenset()) | tied
    return found


def _places(node: ir.Node, places: Stacked, read: set[int]) -> Iterator[Tie]:
    """Where what the node makes, and reads, lies inside other tensors; nodes with graphs make it by those inside."""
    if has_subgraphs(node):
        return
    for k, value in enumerate(node.outputs):
        depths = places.get(id(value), 0), depth_without_copies(value, places)
        if any(depths) and writer_minds(node, value.dtype):
            yield Tie("placed", k, depths=depths)
    for k, operand in enumerate(node.inputs):
        if operand is not None and reader_minds(node, operand.dtype):
            depths = int(id(operand) in read), int(id(source(operand)) in read)
            if any(depths):
                yield Tie("row", k, depths=depths)


Known = dict[ir.Value, bool]
"""Which values are constant, as far as that was asked; holds while nothing changes."""


def is_constant(value: ir.Value, known: Known | None = None) -> bool:
    """Whether the engine may know the value when it loads the model: a constant, or computed from constants alone.

    Args:
        value: of any graph.
        known: what was found of others, and will be; else the model is gone through anew for each value.
    """
    known = {} if known is None else known
    work = [value]
    while work:
        part = work[-1]
        node = part.producer()
        operands = () if part in known or node is None else tuple(reads(node))
        unknown = [operand for operand in operands if operand not in known]
        if unknown and all(known.get(operand, True) for operand in operands):
            work.extend(unknown)
            continue
        work.pop()
        if part not in known:
            given = part.is_initializer() and not part.is_graph_input()
            known[part] = given if node is None else all(known[operand] for operand in operands if operand in known)
    return known[value]


_Graphs = tuple["ir.Graph | ir.Function", ...]


def _nodes(graph: ir.Graph | ir.Function, outside: _Graphs) -> Iterator[tuple[ir.Node, _Graphs]]:
    """Every node with the graphs it stands in, its own first."""
    around = (graph, *outside)
    for node in graph:
        yield node, around
        for inner in subgraphs(node):
            yield from _nodes(inner, around)


def _ties(node: ir.Node, around: _Graphs, number: Numbers, known: Known, inlined: Homes) -> Iterator[Tie]:
    if not is_standard(node):
        return
    reach = REACH.get(node.op_type, -1)
    for k, value in enumerate(node.inputs):
        if value is None:
            continue
        if reach >= 0 and k in LAID_OUT.get(node.op_type, (1,)) and value.dtype in (None, ir.DataType.FLOAT):
            near = 0 <= _distance(value, around) <= reach
            if near and is_constant(value, known):
                yield Tie("packed", k)
        for maker in _makers(node, value):
            if _in_place(maker, node, inlined) and is_standard(maker) and _may_join(node, maker):
                yield _tie(node, k, maker, number, known)
        for nearest in unrounded(node, value, inlined):
            yield Tie("half", k, number(nearest))


def unrounded(node: ir.Node, value: ir.Value, inlined: Homes) -> Iterator[ir.Node]:
    """The nodes whose results, an operand of this one, the engine need not round: all compute in float32.

    A single operator on float16 between such nodes moves numbers in float32, too.
    """
    maker = _in_place(_maker(value), node, inlined)
    if maker is None:
        return
    moved = maker.op_type in IN_HALF
    half = node.op_type not in IN_HALF and any(output.dtype in HALF for output in node.outputs)
    quantized = not moved and not {maker.op_type, node.op_type}.isdisjoint(_QUANTIZE)
    if not (half or value.dtype in HALF or quantized) or node.op_type in IN_HALF:
        return
    if not moved:
        yield maker
    elif _moves_alone(maker, inlined):
        for operand in _halves(maker):
            further = _in_place(_maker(operand), node, inlined)
            if further is not None:
                yield further


def _moves_alone(node: ir.Node, inlined: Homes) -> bool:
    """Whether all float16 that a node moves comes from, and goes to, nodes of one graph that compute in float32."""
    if has_subgraphs(node) or any(output.is_graph_output() for output in node.outputs):
        return False
    makers = [_maker(operand) for operand in _halves(node)]
    inside = [_in_place(maker, node, inlined) for maker in makers if maker is not None]
    readers = [user for output in node.outputs for user, _ in _readers(output)]
    return all(
        other is not None and is_standard(other) and other.op_type not in IN_HALF
        for other in (*inside, *(_in_place(user, node, inlined) for user in readers))
    )


def _halves(node: ir.Node) -> Iterator[ir.Value]:
    return (value for value in node.inputs if value is not None and value.dtype in HALF)


Homes = Mapping[int, "ir.Graph | ir.Function"]
"""For each branch that the engine inlines, since its condition is constant, by its id the graph it becomes part of."""


def homes(graph: ir.Graph | ir.Function, known: Known) -> dict[int, ir.Graph | ir.Function]:
    """See `Homes`; of all branches within the graph, outer ones first."""
    found: dict[int, ir.Graph | ir.Function] = {}
    for node in nodes_within(graph):
        condition = node.inputs[0] if is_standard(node, "If") else None
        if condition is not None and node.graph is not None and is_constant(condition, known):
            found |= {id(branch): found.get(id(node.graph), node.graph) for branch in subgraphs(node)}
    return found


def _in_place(other: ir.Node | None, node: ir.Node, inlined: Homes) -> ir.Node | None:
    """The other node, if it stands in the same graph as this one once branches that are chosen already are inlined."""
    same = other is not None and inlined.get(id(other.graph), other.graph) is inlined.get(id(node.graph), node.graph)
    return other if same else None


def _may_join(node: ir.Node, maker: ir.Node) -> bool:
    """Whether the engine may make one node of both, or of both and others."""
    if (node.op_type, maker.op_type) == ("Add", "Mul"):  # of a normalisation
        return any(made is not None and _divides_by_root(made) for made in map(_maker, maker.inputs))
    return maker.op_type in PARTNERS.get(node.op_type, frozenset())


def _divides_by_root(node: ir.Node) -> bool:
    root = _maker(node.inputs[1]) if node.op_type == "Div" else None
    return root is not None and root.op_type == "Sqrt"


def _maker(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else source(value).producer()


def _makers(node: ir.Node, value: ir.Value) -> Iterator[ir.Node]:
    """What makes the operand; for a product also through what may stand between."""
    maker = _maker(value)
    while maker is not None:
        yield maker
        further = node.op_type in _PRODUCTS and maker.op_type in THROUGH and len(maker.inputs) > 0
        maker = _maker(maker.inputs[0]) if further else None


def _tie(node: ir.Node, k: int, maker: ir.Node, number: Numbers, known: Known) -> Tie:
    made = maker.outputs[0]
    read = [value for value in (*node.inputs, *maker.inputs) if value is not None]
    shaped = node.op_type in SHAPED or (node.op_type == "Mul" and _divides_by_root(maker))
    scaled = node.op_type in SCALED or maker.op_type in SCALED
    return Tie(
        maker.op_type,
        k,
        number(maker),
        shared=made.is_graph_output() or len({id(user) for user, _ in _readers(made)}) > 1,
        shapes=_shapes(read) if shaped else (),
        constants=tuple(is_constant(value, known) for value in read) if scaled else (),
    )


def _readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Who reads a value, through copies."""
    for user, k in value.uses():
        if is_standard(user, "Identity"):
            yield from _readers(user.outputs[0])
            if user.outputs[0].is_graph_output():
                yield user, k
        elif any(is_used(output) for output in user.outputs):
            yield user, k


def _shapes(values: Sequence[ir.Value]) -> tuple[_Extents | None, ...]:
    """The shapes, in which a symbol is called by the place where it first comes: only which are the same matters."""
    names: dict[str, str] = {}

    def extent(dim: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(dim, int) or dim.value is None:
            return dim if isinstance(dim, int) else None
        return names.setdefault(dim.value, str(len(names)))

    return tuple(None if value.shape is None else tuple(map(extent, value.shape)) for value in values)


def _distance(value: ir.Value, around: _Graphs) -> int:
    """How many graphs further out a constant stands; -1 if it is not found."""
    node = value.producer()
    home = value.graph if node is None else node.graph
    return next((k for k, graph in enumerate(around) if graph is home or getattr(graph, "graph", None) is home), -1)


__all__ = ["Tie", "homes", "is_constant", "ties", "unrounded"]

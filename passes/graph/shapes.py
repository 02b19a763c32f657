"""The extents of a model's values by proof: from what engines enforce, node by node.

What a model declares of a value that it computes is no proof: no engine checks it. Nor is what ONNX's inference makes
of a whole model, which believes those declarations, and is wrong for some operators (`patterns.graph.types` has the
rules that bodies and graphs are inferred with here). What is sure: the ranks and numbers of the graph's inputs, which
engines check; their symbols, each of one size everywhere (an assumption that the README names); tensors that are at
hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from looplift.patterns.graph.shapes import JOINT, PRIVATE, Dim, parts
from looplift.patterns.graph.types import Types, infer_node, is_public, tensor_shape
from looplift.patterns.graph.values import subgraphs, with_inner
from looplift.patterns.graph.view import LoopView, ScanView, is_any_loop, well_formed
from looplift.patterns.graph.walk import places, views

_DECLARED = "looplift.declared_inside"

_MADE_UP = "looplift.names"
"""Key in a graph's ``meta``: the names of extents that were made up for values of it, with the value and the axis."""

NOTE = "looplift.declared"
"""Key in the ``meta`` of a body's input or output: the shape that the model declared of it."""


@dataclasses.dataclass(frozen=True)
class Declared:
    """Shapes that a model declared, to be declared again at the end: of its interface. `NOTE` has those of bodies."""

    inputs: tuple[ir.Shape | None, ...]
    outputs: tuple[ir.Shape | None, ...]

    def restore(self, model: ir.Model) -> None:
        """Declares them again, and takes away the names that extents got."""
        model.graph.meta.pop(_MADE_UP, None)
        for graph in (place.graph for place in places(model)):
            for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
                if value.shape is not None and not all(dim is None or is_public(dim) for dim in _dims(value.shape)):
                    value.shape = ir.Shape([dim if is_public(dim) else None for dim in _dims(value.shape)])
        _declare_again(model)
        for value in _ports(model):
            noted = value.meta.pop(NOTE, value.shape)
            if noted is not None and _agree(noted, None if value.shape is None else _dims(value.shape)):
                value.shape = noted
        for value, given in zip(model.graph.inputs, self.inputs, strict=True):
            value.shape = given
        for value, given in zip(model.graph.outputs, self.outputs, strict=True):
            value.shape = value.shape if given is None else given


def _declare_again(model: ir.Model) -> None:
    """Declares what values have that still stand where they stood, unless what is known of them contradicts.

    An engine that knows more or fewer shapes may compute a body otherwise, with other last bits (`patterns.engines`).
    """
    every = list(places(model))
    facts = {id(view.body): Types().with_body(view) for view in views(model)}
    for graph in (place.graph for place in every):
        known = facts.get(id(graph), Types())
        for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
            shape, home = value.meta.pop(_DECLARED, (None, None))
            proven = None if value.shape is None else _dims(value.shape)
            if home is graph and _agree(shape, known[value].shape) and _agree(shape, proven):
                value.shape = shape


def _agree(declared: ir.Shape, known: Sequence[Dim] | None) -> bool:
    """Whether both may be the shape of one tensor."""
    return known is None or (
        len(declared) == len(known)
        and all(
            one == other or not (isinstance(one, int) and isinstance(other, int))
            for one, other in zip(declared, known, strict=True)
        )
    )


def forget_declared(model: ir.Model) -> Declared:
    """Takes away all declared shapes that no engine enforces; the inputs' extents that have no name get one.

    The ranks of a Loop's iteration number and cond input stay, too: engines obey them.
    """
    graph = model.graph
    for value in _ports(model):
        if value.shape is not None:
            value.meta[NOTE] = value.shape
    shapes = [
        [None if value.shape is None else ir.Shape(value.shape) for value in each]
        for each in (graph.inputs, graph.outputs)
    ]
    obeyed = {id(value) for value in graph.inputs}
    for view in views(model):
        if isinstance(view, LoopView):
            obeyed |= {id(view.iteration), id(view.condition_in)}
    for place in places(model):
        for value in (*place.graph.inputs, *(output for node in place.graph for output in node.outputs)):
            if id(value) not in obeyed:
                if value.shape is not None:
                    value.meta[_DECLARED] = (value.shape, place.graph)
                value.shape = None
    _name_inputs(graph)
    return Declared(tuple(shapes[0]), tuple(shapes[1]))


def _ports(model: ir.Model) -> Iterator[ir.Value]:
    """What engines read of a body: the extents of stacks without rows, the ranks of what a Scan gives."""
    for view in views(model):
        yield from (output.element for output in view.scan_outputs)
        if isinstance(view, ScanView):
            yield from (*view.body.inputs, *(carry.updated for carry in view.carries))


def _name_inputs(graph: ir.Graph) -> None:
    """So that "the same extent as that one" survives from value to value. An input's default has its say, too."""
    taken = {dim for value in graph.inputs for dim in _dims(value.shape) if isinstance(dim, str)}
    for value in graph.inputs:
        if value.shape is None:
            continue
        dims: list[Dim] = [None if _means_nothing(dim) else dim for dim in _dims(value.shape)]
        if value.const_value is not None:
            default = tensor_shape(value.const_value)
            if len(default) != len(dims):
                value.shape = None
                continue
            dims = [None if isinstance(dim, int) and dim != x else dim for dim, x in zip(dims, default, strict=True)]
        for axis, dim in enumerate(dims):
            name = f"{value.name}{PRIVATE}{axis}"
            while dim is None and name in taken:
                name += PRIVATE
            dims[axis] = name if dim is None else dim
        taken |= {dim for dim in dims if isinstance(dim, str)}
        value.shape = ir.Shape(dims)


def _means_nothing(dim: Dim) -> bool:
    """Whether an extent is no number, or has a name that would be taken for several."""
    return dim < 0 if isinstance(dim, int) else dim is not None and JOINT in dim


def prove_shapes(model: ir.Model) -> bool:
    """Gives the values of every graph the shapes that can be proven. Preserves bits: nothing is computed.

    Legality: (1) every extent follows from what `forget_declared` leaves by the rules of `patterns.graph.types`; (2) of
    an extent that is known already, only the name changes.
    """
    graph = model.graph
    return prove(list(graph), Types(), model.opset_imports.get("", 1), names_of(graph))


def name_extents(model: ir.Model) -> bool:
    """The same for what feeds loops: again after a loop was rewritten, since what it stacks may feed the next loop."""
    graph, feeds = model.graph, feeding_loops(model.graph)
    return prove([node for node in graph if node in feeds], Types(), model.opset_imports.get("", 1), names_of(graph))


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of extents that hold wherever they are read.

    Attributes:
        given: those of the graph's inputs.
        made_up: of extents that nothing is known of, when they first came up: in the graph itself, each of whose
            nodes runs once, so that a name means one number. By which value they came up, with the axis.
    """

    given: frozenset[Dim]
    made_up: dict[str, tuple[ir.Value, int]]

    def new(self, value: ir.Value, axis: int) -> str:
        """A name for an extent of this value."""
        name = f"{value.name}{PRIVATE}{len(self.made_up)}.{axis}"
        while name in self.made_up or name in self.given:
            name += PRIVATE
        self.made_up[name] = value, axis
        return name

    def worth(self, dim: Dim, value: ir.Value | None = None) -> int:
        """How much an extent says: a number more than a given name, and that more than one made up, or made of others;
        least the one that was made up for this very value; nothing a name that is no one's."""
        if dim is None or isinstance(dim, int):
            return 0 if dim is None else 4
        if dim in self.given:
            return 3
        if not all(part in self.given or part in self.made_up for part in parts(dim)):
            return 0
        return 1 if dim in self.made_up and self.made_up[dim][0] is value else 2


def names_of(graph: ir.Graph) -> Names:
    """The names of extents that there are in a graph."""
    given = frozenset(dim for value in graph.inputs for dim in _dims(value.shape) if isinstance(dim, str))
    return Names(given, graph.meta.setdefault(_MADE_UP, {}))


def prove(nodes: list[ir.Node], known: Types, opset: int, names: Names, *, inside: bool = False) -> bool:
    """What `prove_shapes` does, for some nodes of the model's graph or of one inside it, given what is known there."""
    changed = False
    for node in nodes:
        for value, fact in zip(node.outputs, infer_node(node, known, opset), strict=True):
            if fact.dtype is not None and value.type is None:
                value.type, changed = ir.TensorType(fact.dtype), True
            if fact.shape is not None and isinstance(value.type, ir.TensorType):
                changed |= _improve(value, fact.shape, names, inside=inside)
        view = well_formed(node, opset)
        facts = known if view is None else known.with_body(view)
        for inner in subgraphs(node):
            changed |= prove(list(inner), facts, opset, names, inside=True)
    return changed


def _improve(value: ir.Value, shape: tuple[Dim, ...], names: Names, *, inside: bool) -> bool:
    """Takes what says more than what is known."""
    old = [None] * len(shape) if value.shape is None else _dims(value.shape)
    if len(old) != len(shape):
        return False
    dims = [
        new if names.worth(new, value) > names.worth(before, value) else before
        for before, new in zip(old, shape, strict=True)
    ]
    if not inside:
        dims = [names.new(value, axis) if names.worth(dim) == 0 else dim for axis, dim in enumerate(dims)]
    if value.shape is not None and dims == old:
        return False
    value.shape = ir.Shape(dims)
    return True


def _dims(shape: ir.Shape | None) -> list[Dim]:
    return [dim if isinstance(dim, int) else dim.value for dim in shape or ()]


def feeding_loops(graph: ir.Graph) -> set[ir.Node]:
    """The nodes of the graph whose values reach a loop, directly or through others, inner graphs included."""
    found: set[ir.Node] = set()
    work = [node for node in graph if any(is_any_loop(inner) for inner in with_inner(node))]
    while work:
        node = work.pop()
        read = [value for reader in with_inner(node) for value in reader.inputs if value is not None]
        for maker in (value.producer() for value in read):
            if maker is not None and maker.graph is graph and maker not in found:
                found.add(maker)
                work.append(maker)
    return found

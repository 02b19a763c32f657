"""Asks when the model runs whether extents are equal that a loop's kernel needs equal, where nothing proves that.

The loop stands in both branches of an If. In the one for equal extents, what the loop reads is first reshaped to the
extents that it has in that case, each taken from one value: from there on they are equal by structure, and what proves
shapes needs to know nothing of the question.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from looplift.passes.graph.body_types import types_inside
from looplift.passes.graph.edit import replace_value
from looplift.passes.graph.emit import Emitter
from looplift.patterns.engines.onnxruntime.kernels import PRODUCTS
from looplift.patterns.graph.operators import Trait, has
from looplift.patterns.graph.shapes import Dim, parts, remedy, spoken
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import graphs_within, held_nodes, is_used, nodes_within, reads
from looplift.patterns.graph.view import LoopView, View, well_formed
from looplift.patterns.graph.walk import every_loop

OLDEST = 14
"""Opset. Before it, Reshape takes an extent of 0 for another."""

Extent = int | tuple[str, int]
"""A number, or a value of the model's graph by name, and an axis of it."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What a loop needs.

    Attributes:
        loop: its number, as `every_loop` counts.
        equal: groups of extents that have to be the same; the others take the first one.
        renamed: of the values that the loop reads, by name, the axes in a group, and which.
        words: the extents, for people.
        remedy: what a person can do so that there is no question.
    """

    loop: int
    equal: tuple[tuple[Extent, ...], ...]
    renamed: dict[str, dict[int, int]]
    words: str
    remedy: str


def questions(model: ir.Model, numbers: Iterable[int]) -> Iterator[Question]:
    """Which extents would have to be equal for loops of the model's own graph.

    Args:
        model: with proven shapes, and names for all extents (`passes.graph.shapes`).
        numbers: of the loops.
    """
    chosen = set(numbers)
    for number, (node, place) in enumerate(every_loop(model)):
        view = well_formed(node, place.opset)
        if number not in chosen or place.graph is not model.graph or view is None or place.opset < OLDEST:
            continue
        if any(inner.op_type in PRODUCTS for inner in held_nodes(node)):
            continue  # one graph further in, their weights may be packed no more, and the last bits be others
        question = _question(number, view)
        if question is not None:
            yield question


def _question(number: int, view: View) -> Question | None:
    shapes = {value.name: Types()[value].shape or () for value in reads(view.node) if value.name}
    found: dict[Dim, Extent] = {}
    for name, shape in shapes.items():
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and len(parts(dim)) == 1:
                found.setdefault(dim, (name, axis))
    groups = [group for group in _groups(view, found) if len(group) > 1]
    if not groups:
        return None
    renamed: dict[str, dict[int, int]] = {}
    for (name, shape), (k, group) in itertools.product(shapes.items(), enumerate(groups)):
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and dim != group[0] and parts(dim) <= set(group):
                renamed.setdefault(name, {})[axis] = k
    equal = tuple(tuple(dim if isinstance(dim, int) else found[dim] for dim in group) for group in groups)
    words = "; ".join(" and ".join(map(spoken, group)) for group in groups)
    return Question(number, equal, renamed, words, remedy(groups))


def _groups(view: View, known: Iterable[Dim]) -> list[tuple[int | str, ...]]:
    """Extents that come together in the loop's first iteration, those of what it reads and numbers."""
    group_of: dict[int | str, frozenset[int | str]] = {}
    for axis in _meetings(view):
        atoms = {part for dim in axis for part in (parts(dim) if isinstance(dim, str) else (dim,))}
        met = frozenset(dim for dim in atoms if dim not in (None, 1) and (isinstance(dim, int) or dim in known))
        joined = met.union(*(group_of.get(dim, frozenset()) for dim in met))
        if sum(isinstance(dim, int) for dim in joined) < 2:
            group_of.update(dict.fromkeys(joined, joined))
    order = dict.fromkeys(group_of.values())
    return [tuple(sorted(group, key=lambda dim: (isinstance(dim, str), str(dim)))) for group in order]


def _meetings(view: View) -> Iterator[tuple[Dim, ...]]:
    """The extents, axis by axis, that are combined, and those of a state before and after an iteration."""
    types = types_inside(view, Types())
    for carry in view.carries if isinstance(view, LoopView) else ():
        types = types.with_value(carry.previous, Types()[carry.initial])
    once = types.one_iteration(view, {})
    pairs = [[once[carry.previous], once[carry.updated]] for carry in view.carries]
    pairs += [[once[x] for x in node.inputs if x is not None] for node in view.body if has(node, Trait.BROADCASTS)]
    for facts in pairs:
        shapes = [fact.shape for fact in facts if fact.shape is not None]
        if len(shapes) == len(facts):
            yield from itertools.zip_longest(*map(reversed, shapes), fillvalue=1)


def ask(model: ir.Model, asked: Sequence[Question]) -> None:
    """Puts these loops of a model, unchanged since, into the branches of an If each.

    Legality: (1) one branch has the loop as it is; (2) the other has it, too, and reads values of the same elements: a
    Reshape to extents that are the same numbers, or it would not be that branch. Preserves bits.
    """
    values = {value.name: value for value in (*model.graph.inputs, *model.graph.initializers.values())}
    values |= {value.name: value for node in model.graph for value in node.outputs}
    loops = every_loop(model)
    for question in asked:
        node, place = loops[question.loop]
        _ask(node, question, values, place.opset)


def _ask(loop: ir.Node, question: Question, values: dict[str | None, ir.Value], opset: int) -> None:
    graph = loop.graph
    assert isinstance(graph, ir.Graph)
    emit = Emitter(opset, Types())
    extents = [[_extent(each, values, emit) for each in group] for group in question.equal]
    tests = [emit.op("Equal", [first, other]) for first, *others in extents for other in others]
    condition = emit.squeeze(functools.reduce(lambda one, other: emit.op("And", [one, other]), tests), [0])
    emit.insert_before(loop)
    olds = [value for value in loop.outputs if is_used(value)]
    node = ir.Node("", "If", [condition], num_outputs=len(olds), name=f"{loop.name or 'loop'}/same_shapes")
    graph.insert_before(loop, node)
    for old, new in zip(olds, node.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        replace_value(old, new)
        values[old.name] = new  # which another loop may ask about
    graph.remove(loop)
    otherwise = ir.Graph([], olds, nodes=[loop], name="as_it_was")
    equal = otherwise.clone(allow_outer_scope_values=True)
    equal.name = "same_shapes"
    for name, axes in question.renamed.items():
        _rename(equal, values[name], {axis: extents[k][0] for axis, k in axes.items()}, opset)
    node.attributes.add(ir.AttrGraph("then_branch", equal))
    node.attributes.add(ir.AttrGraph("else_branch", otherwise))


def _extent(each: Extent, values: dict[str | None, ir.Value], emit: Emitter) -> ir.Value:
    """As a tensor of one element."""
    if isinstance(each, int):
        return emit.const([each])
    name, axis = each
    return emit.slice(emit.op("Shape", [values[name]]), axis, axis + 1, 0)


def _rename(graph: ir.Graph, value: ir.Value, axes: dict[int, ir.Value], opset: int) -> None:
    """Lets a graph read the value with these extents."""
    emit = Emitter(opset, Types())
    rank = max(axes) + 1
    own = emit.op("Shape", [value])
    pieces = [axes[k] if k in axes else emit.slice(own, k, k + 1, 0) for k in range(rank)]
    pieces.append(emit.slice(own, rank, 2**63 - 1, 0))
    shaped = emit.op("Reshape", [value, emit.op("Concat", pieces, {"axis": 0})], {"allowzero": 1})
    for node in list(nodes_within(graph)):
        for k, read in enumerate(node.inputs):
            if read is value:
                node.replace_input_with(k, shaped)
    for inner in graphs_within(graph):
        for k, returned in enumerate(inner.outputs):
            if returned is value:
                inner.outputs[k] = shaped
    emit.insert_before(graph[0])

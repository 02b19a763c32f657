"""Numbers at which models may change their mind: what is compared, where tables end, which constants there are.

A fault at exactly 5 trips, from 64 rows on or where an input is 12345 shows only there. The number is written in one
of the two models as a rule, and a slice backward from what it is compared with says which inputs have to reach it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from looplift.patterns.graph.constants import constant, constant_tensor
from looplift.patterns.graph.operators import is_standard
from looplift.runtime.ops import DOMAIN
from looplift.verification.cases.trips import Behind, Slices
from looplift.verification.compare import Array, is_float

Number = int | float

_Key = tuple[str, tuple[Number, ...]]

Ranks = tuple[tuple[Number, ...], ...]
"""Numbers, the most telling first: compared in one model only, constants of one only, compared in both, of both."""

_COMPARING = (
    "Equal Greater GreaterOrEqual Less LessOrEqual Min Max Clip Mod Sub Div Gather Slice Range OneHot Pad Where".split()
)
_INDEXED = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "Scatter": 1, "ScatterElements": 1, "ScatterND": 1}
_INDEXED |= {"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2, "OneHot": 0}
_SIZING = {"Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2), "Pad": (1,)}
_SIZING |= {"TopK": (1,), "Split": (1,), "OneHot": (1,), "Unsqueeze": (1,), "Squeeze": (1,), "Trilu": (1,)}

_FEW = 64
"""Elements: of a larger constant, only the ends are of interest."""

_MOST_STEPS = 100_000
"""Values that are looked at when comparisons are followed backward; after that, they count as any other constant."""


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Numbers worth trying.

    Attributes:
        dims: for the unknown dims of an input, by its name.
        trips: for inputs that decide how often loops run.
        values: for the elements of an input, by its name.
        sizes: fixed dims in the models, the sizes that unknown dims may have to agree with.
        indices: inputs that are used as indices: what the axes that they point into are, as far as it is known.
        sizing: inputs that are used as shapes, or lengths.
    """

    dims: Mapping[str, Ranks]
    trips: Ranks
    values: Mapping[str, Ranks]
    sizes: tuple[int, ...]
    indices: Mapping[str, tuple[int | str, ...]]
    sizing: frozenset[str]


@dataclasses.dataclass(frozen=True)
class _Found:
    """A number and what it may be compared with; ``behind`` None: anything."""

    number: Number
    behind: Behind | None


def thresholds(models: Sequence[ir.Model], counted: frozenset[str]) -> Thresholds:
    """What the models have.

    Args:
        models: the original and, where there is one, the rewritten one; the inputs are the first's.
        counted: names of the inputs that decide how often loops run.
    """
    names = [value.name or "" for value in models[0].graph.inputs]
    slices = [Slices(model) for model in models]
    compared = [list(_comparisons(*pair)) for pair in zip(models, slices, strict=True)]
    counts = [collections.Counter(each.key for each in comparisons) for comparisons in compared]
    common = counts[0] & counts[-1] if len(counts) > 1 else collections.Counter[_Key]()
    found = [
        collections.Counter([*_followed(comparisons, each, common), *_anything(model, each)])
        for model, each, comparisons in zip(models, slices, compared, strict=True)
    ]
    dims, values, trips = (collections.defaultdict[str, list[list[Number]]](_ranks) for _ in range(3))
    for item, rank in _ranked(found):
        behind = item.behind
        known = behind is not None and (behind.values or behind.shapes or behind.iterations)
        reached = behind.values if behind is not None and known else names
        for name in reached:
            values[name][rank].append(item.number)
        if not known or behind is None or behind.iterations or counted.intersection(reached):
            trips[""][rank].append(item.number)
        for name in behind.shapes if behind is not None and known else names:
            dims[name][rank].append(item.number)
    indices, sizing = _uses(slices[0])
    sizes = dict.fromkeys(size for each in slices for size in _fixed_sizes(each))
    return Thresholds(
        {name: _frozen(dims[name]) for name in names},
        _frozen(trips[""]),
        {name: _frozen(values[name]) for name in names},
        tuple(sizes),
        indices,
        sizing,
    )


def _ranks() -> list[list[Number]]:
    return [[], [], [], []]


def _frozen(ranks: list[list[Number]]) -> Ranks:
    return tuple(tuple(dict.fromkeys(numbers)) for numbers in ranks)


def _ranked(found: Sequence[collections.Counter[_Found]]) -> Iterator[tuple[_Found, int]]:
    for item in dict.fromkeys(itertools.chain(*found)):
        common = len(found) > 1 and found[0][item] == found[1][item]
        yield item, 2 * common + (item.behind is None)


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """Of values with numbers; the key is the same for the same one in the other model."""

    key: _Key
    values: Sequence[ir.Value]


def _comparisons(model: ir.Model, slices: Slices) -> Iterator[_Comparison]:
    for node in (node for graph in _own_graphs(model, slices) for node in graph if is_standard(node, *_COMPARING)):
        arrays = [constant(value, _opset(model, node)) for value in node.inputs]
        numbers = [number for array in arrays if array is not None for number in _numbers(array)]
        numbers += [int(dim) for dim in _extents(node) if isinstance(dim, int)]
        others = [
            value for value, array in zip(node.inputs, arrays, strict=True) if value is not None and array is None
        ]
        if numbers and others:
            yield _Comparison((node.op_type, tuple(numbers)), others)


def _followed(
    comparisons: Iterable[_Comparison], slices: Slices, common: collections.Counter[_Key]
) -> Iterator[_Found]:
    """The numbers with what they are compared with; those that only one model has first, as long as there is time."""
    last = slices.steps + _MOST_STEPS
    for each in sorted(comparisons, key=lambda each: common[each.key]):
        if slices.steps < last:
            behind = slices.behind(each.values)
            yield from (_Found(number, behind) for number in each.key[1])


def _anything(model: ir.Model, slices: Slices) -> Iterator[_Found]:
    """All constants."""
    for graph in _own_graphs(model, slices):
        yield from (_Found(number, None) for number in _constants(graph, model))


def _own_graphs(model: ir.Model, slices: Slices) -> list[ir.Graph]:
    """All but the definitions of our ops."""
    ours = {id(function.graph) for key, function in model.functions.items() if key[0] == DOMAIN}
    return [graph for graph in slices.graphs() if id(graph) not in ours]


def _opset(model: ir.Model, node: ir.Node) -> int:
    return node.version or model.opset_imports.get("", 1)


def _constants(graph: ir.Graph, model: ir.Model) -> Iterator[Number]:
    tensors = [value.const_value for value in graph.initializers.values()]
    for node in graph:
        if is_standard(node, "Constant"):
            tensors.append(constant_tensor(node.outputs[0]))
        elif node.op_identifier() in model.functions or not is_standard(node, "Cast"):
            floats_only = node.op_identifier() not in model.functions
            yield from _attributes(node, floats_only=floats_only)
    for tensor in tensors:
        if tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.size <= _FEW:
            yield from _numbers(tensor.numpy())


def _attributes(node: ir.Node, *, floats_only: bool) -> Iterator[Number]:
    """Numbers of attributes; whole ones of the standard's ops are axes and the like."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.FLOAT:
            yield attribute.as_float()
        elif attribute.type == ir.AttributeType.INT and not floats_only:
            yield attribute.as_int()


def _numbers(array: Array) -> Iterator[Number]:
    """The finite elements of a small array, the ends of a large one."""
    if not (is_float(array.dtype) or array.dtype.kind in "iu"):
        return
    flat = array.reshape(-1)
    if flat.size > _FEW:
        flat = flat[[0, -1]]
    for element in flat.tolist() if flat.dtype.kind in "fiu" else flat.astype(np.float32).tolist():
        if math.isfinite(element):
            yield element


def _fixed_sizes(slices: Slices) -> Iterator[int]:
    for graph in slices.graphs():
        tensors = [value.const_value for value in graph.initializers.values()]
        tensors += [constant_tensor(node.outputs[0]) for node in graph if is_standard(node, "Constant")]
        shapes = [tensor.shape for tensor in tensors if tensor is not None]
        shapes += [value.shape for value in graph.inputs if value.shape is not None]
        yield from (int(dim) for shape in shapes for dim in shape if isinstance(dim, int) and dim > 1)


def _extents(node: ir.Node) -> list[int | str]:
    """The axes that a node's indices point into: sizes, or names of dims."""
    if not is_standard(node, *_INDEXED) or node.op_type.startswith(("Sequence", "OneHot")):
        return []
    data = node.inputs[0]
    shape = data.shape if data is not None else None
    if data is not None and shape is None:
        tensor = constant_tensor(data)
        shape = tensor.shape if tensor is not None and isinstance(tensor.shape, ir.Shape) else None
    if data is None or shape is None or not len(shape):
        return []
    axis = node.attributes.get_int("axis", 0) or 0
    axes = range(len(shape)) if node.op_type.endswith("ND") else [axis % len(shape)]
    dims = [(axis, shape[axis]) for axis in axes]
    return [dim if isinstance(dim, int) else dim.value or f"{data.name} axis {axis}" for axis, dim in dims]


def _uses(slices: Slices) -> tuple[dict[str, tuple[int | str, ...]], frozenset[str]]:
    """Inputs that are indices, with the extents of what they point into; inputs that are shapes."""
    indices: dict[str, list[int | str]] = {}
    sizing: list[ir.Value] = []
    last = slices.steps + _MOST_STEPS
    for node in (node for graph in slices.graphs() for node in graph):
        for op_types, places in ((_INDEXED, [_INDEXED.get(node.op_type, 0)]), (_SIZING, _SIZING.get(node.op_type, ()))):
            if not is_standard(node, *op_types):
                continue
            operands = [node.inputs[place] for place in places if place < len(node.inputs)]
            given = [value for value in operands if value is not None and constant_tensor(value) is None]
            if op_types is _SIZING:
                sizing += given
            elif given and slices.steps < last:
                for name in slices.behind(given).values:
                    indices.setdefault(name, []).extend(_extents(node))
    return {name: tuple(dict.fromkeys(extents)) for name, extents in indices.items()}, slices.behind(sizing).values


def candidates(ranks: Sequence[Sequence[Number]], dtype: np.dtype[np.generic] | None = None) -> list[Number]:
    """The numbers, what lies between them, one more and one less, their negatives, the next ones to them.

    Args:
        ranks: thresholds; all that comes of the more telling ones comes first.
        dtype: of floats, for the next ones; None for whole numbers.
    """
    return list(dict.fromkeys(itertools.chain(*(_around(numbers, dtype) for numbers in ranks))))


def _around(numbers: Sequence[Number], dtype: np.dtype[np.generic] | None) -> Iterator[Number]:
    middles = _between(numbers)
    levels: list[list[Number]] = [list(numbers), middles, [n + 1 for n in numbers], [n - 1 for n in numbers]]
    levels += [[-number for number in (*numbers, *middles)]]
    if dtype is None:
        return (round(number) for level in levels for number in level if math.isfinite(number))
    levels += [[_next(number, end, dtype) for number in numbers] for end in (math.inf, -math.inf)]
    return itertools.chain(*levels)


def _between(numbers: Sequence[Number]) -> list[Number]:
    """Between neighbours of one sign, in log scale; beyond the last, twice as much."""
    found: list[Number] = []
    ordered = sorted(set(numbers))
    for low, high in itertools.pairwise(ordered):
        if low * high > 0 and high - low > 1:
            found.append(math.copysign(math.sqrt(abs(low)) * math.sqrt(abs(high)), low))
        elif low != high:
            found.append(low / 2 + high / 2)
    return [*found, 2 * ordered[-1]] if ordered else []


def _next(number: Number, end: float, dtype: np.dtype[np.generic]) -> Number:
    if dtype.kind != "f":
        return number
    with np.errstate(all="ignore"):
        return float(np.nextafter(np.asarray(number, dtype), np.asarray(end, dtype)))

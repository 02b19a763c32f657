"""What a person says of the sizes of a model's inputs: written into the model, where engines and passes read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import onnx_ir as ir

from looplift.runtime.errors import LoopliftError

Dim = int | str | tuple[str, int]
"""A size, a name, or input and axis of a dim that has no name."""


@dataclasses.dataclass(frozen=True)
class AssumedDims:
    """Sizes of input dims, and which of them are equal.

    A dim is named as the model names it, or, also one without a name, by input and axis: ``x:0``.

    Attributes:
        sizes: by name.
        same: pairs of names.
    """

    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    same: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sizes or self.same)

    def write_into(self, model: ir.Model) -> None:
        """Declares them, in place, of the inputs, and of the outputs that have dims of these names.

        Engines refuse inputs of other sizes than declared; that two dims are equal they do not check.

        Raises:
            LoopliftError: no input has such a dim, or a dim would have two sizes.
        """
        dims = _dims(model)
        groups = {dim: frozenset({dim}) for dim in dims.values()}
        for pair in self.same:
            both = frozenset[Dim]().union(*(groups[_find(name, dims)] for name in pair))
            groups.update(dict.fromkeys(both, both))
        sizes = {_find(name, dims): size for name, size in self.sizes.items()}
        told = {dim: group for dim, group in groups.items() if len(group) > 1 or dim in sizes}
        new = {dim: _meant(group, sizes, taken=dims.keys()) for dim, group in told.items()}
        for value in (*model.graph.inputs, *model.graph.outputs):
            own = _dims_of(value)
            if not new.keys().isdisjoint(own):
                found = [new.get(dim, dim) for dim in own]
                value.shape = ir.Shape([None if isinstance(dim, tuple) else dim for dim in found])


def _dims_of(value: ir.Value) -> list[Dim]:
    if value.shape is None:
        return []
    named = (dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return [(value.name or "", axis) if dim is None else dim for axis, dim in enumerate(named)]


def _dims(model: ir.Model) -> dict[str, Dim]:
    """The dims of the inputs by all names that they go by."""
    found: dict[str, Dim] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(_dims_of(value)):
            found[f"{value.name}:{axis}"] = dim
            if isinstance(dim, str):
                found.setdefault(dim, dim)
    return found


def _find(name: str, dims: Mapping[str, Dim]) -> Dim:
    if name not in dims:
        names = sorted({*(dim for dim in dims.values() if isinstance(dim, str))})
        has = f"it has {', '.join(map(repr, names))}" if names else "they have no names"
        raise LoopliftError(f"no input of the model has a dim {name!r}: {has}; INPUT:AXIS, such as x:0, goes for any")
    return dims[name]


def _meant(group: frozenset[Dim], sizes: Mapping[Dim, int], taken: Collection[str]) -> int | str:
    """What dims that are equal become: a size, the name that one of them has, or one made up of an input's."""
    found = {sizes[dim] for dim in group & sizes.keys()} | {dim for dim in group if isinstance(dim, int)}
    if len(found) > 1:
        raise LoopliftError(f"a dim can't have two sizes: {' and '.join(map(str, sorted(found)))}, of {_words(group)}")
    names = sorted(dim for dim in group if isinstance(dim, str))
    if found:
        return found.pop()
    if names:
        return names[0]
    name = "{}_{}".format(*min(dim for dim in group if isinstance(dim, tuple)))
    while name in taken:
        name += "_"
    return name


def _words(group: frozenset[Dim]) -> str:
    return ", ".join(sorted("{}:{}".format(*dim) if isinstance(dim, tuple) else str(dim) for dim in group))

"""Where boxes and edges go: layers from top to bottom.

Source: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures" (1981): longest
paths give the layers, edges that pass layers are cut by bends, barycenters order the layers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Container, Sequence

GAP, ROW = 18.0, 54.0
_SWEEPS = 8

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Centres of the boxes, the points that each edge passes, and the size of the whole."""

    centres: tuple[Point, ...]
    paths: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]], late: Container[int] = ()) -> Layout:
    """Lays out an acyclic graph whose edges lead from lower to higher indices.

    Args:
        widths: of the boxes.
        edges: pairs of box indices.
        late: boxes without incoming edges that stand right above their first reader instead of on top.
    """
    levels = _levels(len(widths), edges, late)
    all_widths, chains = list(widths), []
    for start, end in edges:  # a bend of width 0 in every layer that the edge passes
        bends = range(len(all_widths), len(all_widths) + levels[end] - levels[start] - 1)
        levels += range(levels[start] + 1, levels[end])
        all_widths += [0.0] * len(bends)
        chains.append([start, *bends, end])
    neighbours: list[list[int]] = [[] for _ in all_widths]
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    layers = _ordered(levels, neighbours)
    across = _positions(layers, all_widths, neighbours)
    left = min((x - width / 2 for x, width in zip(across, all_widths, strict=True)), default=0.0)
    points = [(x - left, (level + 0.5) * ROW) for x, level in zip(across, levels, strict=True)]
    right = max((x + width / 2 for (x, _), width in zip(points, all_widths, strict=True)), default=0.0)
    paths = tuple(tuple(points[k] for k in chain) for chain in chains)
    return Layout(tuple(points[: len(widths)]), paths, right, len(layers) * ROW)


def _levels(count: int, edges: Sequence[tuple[int, int]], late: Container[int]) -> list[int]:
    levels = [0] * count
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        levels[end] = max(levels[end], levels[start] + 1)
    starts = {start for start, _ in edges}
    for k in range(count):
        if k not in starts:
            levels[k] = max(levels)  # results stand at the bottom
        elif k in late:
            levels[k] = min(levels[end] for start, end in edges if start == k) - 1
    return levels


def _ordered(levels: Sequence[int], neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    layers: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for k, level in enumerate(levels):
        layers[level].append(k)
    place = {k: float(i) for layer in layers for i, k in enumerate(layer)}
    for sweep in range(_SWEEPS):
        step = 1 if sweep % 2 else -1
        for layer in layers[::-step]:
            near = {k: [place[n] for n in neighbours[k] if levels[n] == levels[k] + step] for k in layer}
            layer.sort(key=lambda k: sum(near[k]) / len(near[k]) if near[k] else place[k])
            place.update({k: float(i) for i, k in enumerate(layer)})
    return layers


def _positions(
    layers: Sequence[Sequence[int]], widths: Sequence[float], neighbours: Sequence[Sequence[int]]
) -> list[float]:
    """Each box as near to the mean of its neighbours as order and gaps allow."""
    across = [0.0] * len(widths)
    for sweep in range(_SWEEPS):
        for layer in layers[:: 1 if sweep % 2 else -1]:
            wanted = [sum(across[n] for n in neighbours[k]) / max(len(neighbours[k]), 1) for k in layer]
            offsets = [0.0]
            for left, right in itertools.pairwise(layer):
                offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + GAP)
            slack = [want - offset for want, offset in zip(wanted, offsets, strict=True)]
            for k, offset, fit in zip(layer, offsets, _rising(slack), strict=True):
                across[k] = offset + fit
    return across


def _rising(numbers: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to the numbers (pool adjacent violators)."""
    pools: list[list[float]] = []
    for number in numbers:
        pools.append([number])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return [_mean(pool) for pool in pools for _ in pool]


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)

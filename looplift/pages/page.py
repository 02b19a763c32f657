"""The page: findings in words, figures as inline SVG. One file, no scripts, nothing from the network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import jinja2

from looplift.pages.layout import ROW, Point, layout
from looplift.pages.sketch import Box, Sketch
from looplift.runtime.text import visible
from looplift.wording import shortener

LARGEST = 150
"""Boxes; a larger figure is not drawn."""

_CHARACTER, _MARGIN, _HEIGHT = 8.0, 14.0, 30.0


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the page says of one loop."""

    title: str
    outcome: str
    facts: Sequence[tuple[str, Sequence[str]]]
    figures: Sequence[Sketch]


def render(heading: str, entries: Iterable[Entry]) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("looplift.pages", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    return environment.get_template("page.html.jinja").render(
        heading=heading, entries=list(entries), draw=draw, largest=LARGEST
    )


@dataclasses.dataclass(frozen=True)
class PlacedBox:
    """A box with its rectangle and a label that fits."""

    box: Box
    label: str
    x: float
    y: float
    width: float
    height: float = _HEIGHT


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure ready for SVG: rectangles, and one path of cubic curves an edge."""

    boxes: tuple[PlacedBox, ...]
    curves: tuple[str, ...]
    width: float
    height: float


def draw(sketch: Sketch) -> Drawing:
    """Lays a figure out, its long names shortened."""
    short: Callable[[str], str] = shortener((box.label for box in sketch.boxes), longest=22)
    labels = [short(box.label) for box in sketch.boxes]
    widths = [len(label) * _CHARACTER + _MARGIN for label in labels]
    late = {k for k, box in enumerate(sketch.boxes) if box.kind not in ("carry", "row")}
    places = layout(widths, sketch.edges, late)
    boxes = tuple(
        PlacedBox(box, label, x - width / 2, y - _HEIGHT / 2, width)
        for box, label, width, (x, y) in zip(sketch.boxes, labels, widths, places.centres, strict=True)
    )
    return Drawing(boxes, tuple(map(_curve, places.paths)), places.width, places.height)


def _curve(points: Sequence[Point]) -> str:
    """From the lower edge of the first box to the upper edge of the last, upright at every bend."""
    (x, y), *bends, (end_x, end_y) = points
    y += _HEIGHT / 2
    path = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in [*bends, (end_x, end_y - _HEIGHT / 2)]:
        pull = (next_y - y) / 2 if next_y - y < ROW else ROW / 3
        path.append(f"C{x:.1f} {y + pull:.1f} {next_x:.1f} {next_y - pull:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return " ".join(path)

"""What is drawn of a loop: its body as boxes and edges, and the nodes that stand for it in the result."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from looplift.passes.lift.lift_recurrences import LIFTED_FROM
from looplift.passes.report import Finding
from looplift.patterns.graph.constants import constant_tensor
from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.values import reads, source
from looplift.patterns.graph.view import Carry, LoopView, View, view_of
from looplift.patterns.graph.walk import loops, node_name, places
from looplift.runtime.ops import DOMAIN


@dataclasses.dataclass(frozen=True)
class Box:
    """One box: `kind` is ``op``, ``ours``, ``outside``, ``carry`` or ``row``; `full` is shown where a pointer rests."""

    label: str
    kind: str
    full: str = ""


@dataclasses.dataclass(frozen=True)
class Sketch:
    """Boxes and edges between them, by index; edges go down, from what makes a value to what reads it."""

    caption: str
    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]


_FEW = 4
"""Elements of a constant that is written into the boxes of its readers."""


class _Pad:
    """Boxes drawn so far, by the identity of the value that each makes."""

    def __init__(self) -> None:
        self._boxes: list[Box] = []
        self._edges: dict[tuple[int, int], None] = {}
        self._made: dict[int, int] = {}

    def put(self, box: Box, reads: Iterable[ir.Value] = (), makes: Iterable[ir.Value] = ()) -> None:
        """Draws a box, with edges from the boxes that make what it reads; unknown values come from outside."""
        sources = [self._source(value) for value in reads]
        index = len(self._boxes)
        self._boxes.append(box)
        self._edges.update(dict.fromkeys((source, index) for source in sources))
        self._made.update((id(value), index) for value in makes)

    def _source(self, value: ir.Value) -> int:
        if id(value) not in self._made:
            self._made[id(value)] = len(self._boxes)
            self._boxes.append(Box(value.name or "", "outside", f"{value.name}, from outside"))
        return self._made[id(value)]

    def node(self, node: ir.Node) -> None:
        """Draws a node; small constants are written into its box, Constant nodes are not drawn."""
        if node.op_type == "Constant":
            return
        values = list(dict.fromkeys(reads(node)))
        numbers = [text for text in map(_number, values) if text]
        label = textwrap.shorten(" ".join([node.op_type, *numbers]), 28, placeholder=" ...")
        kind = "ours" if node.domain == DOMAIN else "op"
        self.put(Box(label, kind, node_name(node)), [value for value in values if not _number(value)], node.outputs)

    def sketch(self, caption: str) -> Sketch:
        """What has been drawn, without boxes that nothing is connected to."""
        linked = sorted({end for edge in self._edges for end in edge})
        place = {index: k for k, index in enumerate(linked)}
        edges = tuple((place[start], place[end]) for start, end in self._edges)
        return Sketch(caption, tuple(self._boxes[index] for index in linked), edges)


def _number(value: ir.Value) -> str:
    """A constant of few elements, as text; empty for other values."""
    tensor = constant_tensor(value)
    if tensor is None or not 0 < tensor.size <= _FEW:
        return ""
    return str(tensor.numpy().tolist()).replace(" ", "")


def figures_of(findings: Iterable[Finding], before: ir.Model, after: ir.Model) -> tuple[tuple[Sketch, ...], ...]:
    """For each finding: the loop's body, the nodes that stand for it in the result, and what is left of its body."""
    bodies, left = _loops_by_key(before), _loops_by_key(after)
    lifted: dict[str, list[ir.Node]] = {}
    for place in places(after):
        for node in place.graph:
            lifted.setdefault(node.metadata_props.get(LIFTED_FROM, ""), []).append(node)
    return tuple(tuple(_figures(finding, bodies, lifted, left)) for finding in findings)


def _loops_by_key(model: ir.Model) -> dict[str, tuple[ir.Node, int]]:
    return {f"{place.path.rstrip('/')}/{node_name(node)}": (node, place.opset) for node, place in loops(model)}


def _figures(
    finding: Finding,
    bodies: dict[str, tuple[ir.Node, int]],
    lifted: dict[str, list[ir.Node]],
    left: dict[str, tuple[ir.Node, int]],
) -> Iterator[Sketch]:
    path = finding.path.rstrip("/")
    key = f"{path}/{finding.node}"
    kept = left.get(key) or next((left[other] for other in left if _inside(other, path, finding.node)), None)
    before = body_sketch(*bodies[key], "before: one iteration") if key in bodies else None
    after = body_sketch(*kept, "after: one iteration of the loop that is left") if kept is not None else None
    nodes = lifted.get(key, [])
    if before is not None:
        yield before
    if nodes:
        yield replacement_sketch(nodes, "after: these nodes run once")
    if before is not None and after is not None and (after.boxes, after.edges) != (before.boxes, before.edges):
        yield after


def _inside(key: str, path: str, name: str) -> bool:
    """Whether this is the same loop, moved into a branch."""
    return key.startswith(f"{path}/") and key.endswith(f"_branch/{name}")


def replacement_sketch(nodes: Sequence[ir.Node], caption: str) -> Sketch:
    """The nodes, and the values that they hand to the rest of the model."""
    pad, own = _Pad(), set(nodes)
    for node in nodes:
        pad.node(node)
    for value in (output for node in nodes if node.op_type != "Constant" for output in node.outputs):
        if value.is_graph_output() or not own.issuperset(value.consumers()):
            pad.put(Box(value.name or "", "row", f"{value.name}, read by the rest of the model"), [value])
    return pad.sketch(caption)


def body_sketch(node: ir.Node, opset: int, caption: str) -> Sketch | None:
    """The body of a loop: what an iteration reads on top, what it hands on below; None for one that is not valid."""
    view = view_of(node, opset)
    if isinstance(view, Refusal):
        return None
    pad = _Pad()
    _put_inputs(view, pad)
    ends = isinstance(view, LoopView) and source(view.condition_out) is not view.condition_in
    for each in view.body:
        if ends or not isinstance(view, LoopView) or view.condition_out not in each.outputs:
            pad.node(each)
    for k, carry in _changing(view):
        pad.put(
            Box(f"{k}. next {carry.previous.name}", "carry", f"{carry.updated.name}, for the next iteration"),
            [carry.updated],
        )
    for output in view.scan_outputs:
        name = output.stacked.name if output.stacked is not None else output.element.name
        pad.put(Box(f"a row of {name}", "row", f"{output.element.name}, stacked"), [output.element])
    if ends and isinstance(view, LoopView):
        pad.put(Box("go on?", "row", view.condition_out.name or ""), [view.condition_out])
    return pad.sketch(caption)


def _changing(view: View) -> list[tuple[int, Carry]]:
    """The carries by their number, without those that are handed on as they are."""
    return [(k, carry) for k, carry in enumerate(view.carries, 1) if source(carry.updated) is not carry.previous]


def _put_inputs(view: View, pad: _Pad) -> None:
    for k, carry in enumerate(view.carries, 1):
        pad.put(Box(f"{k}. {carry.previous.name}", "carry", f"starts as {carry.initial.name}"), makes=[carry.previous])
    for read in view.scan_inputs:
        pad.put(Box(f"a row of {read.outer.name}", "row", read.element.name or ""), makes=[read.element])
    if isinstance(view, LoopView):
        pad.put(Box("iteration number", "row", view.iteration.name or ""), makes=[view.iteration])
        pad.put(Box("go on?", "row", view.condition_in.name or ""), makes=[view.condition_in])

"""Typed views of a Loop or a Scan: one vocabulary for both, checked when it is made.

Source: Loop (1 to 25) and Scan (8, 9 to 25) of the ONNX operator specification.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from looplift.patterns.graph.operators import is_standard
from looplift.patterns.graph.refusal import Refusal


@dataclasses.dataclass(frozen=True)
class Carry:
    """A loop-carried value (Loop) or state variable (Scan).

    Attributes:
        index: position among the carries.
        initial: outer value before the first iteration.
        previous: body input, the value before an iteration.
        updated: body output, the value after it.
        final: node output, the value after the last iteration; None if the node leaves it out.
    """

    index: int
    initial: ir.Value
    previous: ir.Value
    updated: ir.Value
    final: ir.Value | None


@dataclasses.dataclass(frozen=True)
class ScanInput:
    """A tensor that a Scan reads one element of per iteration, along `axis`, backwards if `reverse`."""

    index: int
    outer: ir.Value
    element: ir.Value
    axis: int = 0
    reverse: bool = False


@dataclasses.dataclass(frozen=True)
class ScanOutput:
    """A body output whose values are stacked, along a new `axis`, prepended if `reverse`.

    `stacked` is the node output; None if the node leaves it out.
    """

    index: int
    element: ir.Value
    stacked: ir.Value | None
    axis: int = 0
    reverse: bool = False


@dataclasses.dataclass(frozen=True)
class LoopView:
    """A Loop node: M and cond outside, iteration number and cond inside, carries, scan outputs."""

    node: ir.Node
    body: ir.Graph
    opset: int
    max_trip: ir.Value | None
    condition: ir.Value | None
    iteration: ir.Value
    condition_in: ir.Value
    condition_out: ir.Value
    carries: tuple[Carry, ...]
    scan_outputs: tuple[ScanOutput, ...]

    @property
    def scan_inputs(self) -> tuple[ScanInput, ...]:
        """None: a Loop reads elements by indexing."""
        return ()

    @property
    def batched(self) -> bool:
        """False: only Scan-8 has a batch axis."""
        return False


@dataclasses.dataclass(frozen=True)
class ScanView:
    """A Scan node. `batched`: version 8, where every outer tensor has a leading batch axis."""

    node: ir.Node
    body: ir.Graph
    opset: int
    carries: tuple[Carry, ...]
    scan_inputs: tuple[ScanInput, ...]
    scan_outputs: tuple[ScanOutput, ...]
    batched: bool = False
    sequence_lengths: ir.Value | None = None


View = LoopView | ScanView


def is_loop(node: ir.Node) -> bool:
    """Whether the node is ONNX's Loop."""
    return is_standard(node, "Loop")


def is_scan(node: ir.Node) -> bool:
    """Whether the node is ONNX's Scan."""
    return is_standard(node, "Scan")


def is_any_loop(node: ir.Node) -> bool:
    """Whether the node is ONNX's Loop or Scan."""
    return is_standard(node, "Loop", "Scan")


def well_formed(node: ir.Node, opset: int) -> View | None:
    """The view of a Loop or Scan; None for any other node, and for a malformed one."""
    view = view_of(node, opset) if is_any_loop(node) else None
    return None if isinstance(view, Refusal) else view


def view_of(node: ir.Node, opset: int) -> View | Refusal:
    """The view of a Loop or Scan, or why it has none (a malformed node).

    Args:
        node: a Loop or Scan node.
        opset: version of the default domain that the node's graph or function imports.
    """
    if is_loop(node):
        return loop_view(node, opset)
    return scan_view(node, opset)


def _output(node: ir.Node, index: int) -> ir.Value | None:
    """Node output, or None if it is left out (absent, or an empty name; a new value has no name yet: None)."""
    if index >= len(node.outputs) or node.outputs[index].name == "":
        return None
    return node.outputs[index]


def _body(node: ir.Node) -> ir.Graph | Refusal:
    attribute = node.attributes.get("body")
    if attribute is None or attribute.is_ref():
        return Refusal(f"{node.op_type} has no body graph", node)
    return attribute.as_graph()


def loop_view(node: ir.Node, opset: int) -> LoopView | Refusal:
    """The view of a Loop: body inputs 2+N, body outputs 1+N+K, at most N+K node outputs."""
    body = _body(node)
    if isinstance(body, Refusal):
        return body
    count = max(len(node.inputs) - 2, 0)
    if len(body.inputs) != 2 + count:
        return Refusal(f"the body has {len(body.inputs)} inputs, {2 + count} are due for {count} carried values", node)
    stacked = len(body.outputs) - 1 - count
    if stacked < 0 or len(node.outputs) > count + stacked:
        return Refusal(
            f"the body has {len(body.outputs)} outputs and the node {len(node.outputs)}, with {count} carried values",
            node,
        )
    carries = []
    for k in range(count):
        initial = node.inputs[2 + k]
        if initial is None:
            return Refusal(f"carried value {k} has no initial value", node)
        carries.append(Carry(k, initial, body.inputs[2 + k], body.outputs[1 + k], _output(node, k)))
    scan_outputs = tuple(ScanOutput(k, body.outputs[1 + count + k], _output(node, count + k)) for k in range(stacked))
    padded = [*node.inputs, None, None]
    return LoopView(
        node=node,
        body=body,
        opset=opset,
        max_trip=padded[0],
        condition=padded[1],
        iteration=body.inputs[0],
        condition_in=body.inputs[1],
        condition_out=body.outputs[0],
        carries=tuple(carries),
        scan_outputs=scan_outputs,
    )


def scan_view(node: ir.Node, opset: int) -> ScanView | Refusal:
    """The view of a Scan (8, or 9 and later): N states, then ``num_scan_inputs`` scan inputs."""
    body = _body(node)
    if isinstance(body, Refusal):
        return body
    batched = opset < 9
    inputs = list(node.inputs)
    lengths = inputs.pop(0) if batched and inputs else None
    attributes = node.attributes
    if "num_scan_inputs" not in attributes or attributes["num_scan_inputs"].is_ref():
        return Refusal("num_scan_inputs is not given", node)
    read = attributes["num_scan_inputs"].as_int()
    states = len(inputs) - read
    stacked = len(body.outputs) - states
    if read < 1 or states < 0 or stacked < 0 or len(body.inputs) != len(inputs) or len(node.outputs) > states + stacked:
        return Refusal("the body's inputs and outputs do not match the node's", node)
    if any(value is None for value in inputs):
        return Refusal("a state or scan input is left out", node)

    def ints(name: str, size: int) -> list[int]:
        attribute = attributes.get(name)
        return [0] * size if attribute is None or attribute.is_ref() else list(attribute.as_ints())

    if batched:
        in_axes, out_axes = [0] * read, [0] * stacked
        in_directions, out_directions = ints("directions", read), [0] * stacked
    else:
        in_axes, in_directions = ints("scan_input_axes", read), ints("scan_input_directions", read)
        out_axes, out_directions = ints("scan_output_axes", stacked), ints("scan_output_directions", stacked)
    if (len(in_axes), len(in_directions)) != (read, read) or (len(out_axes), len(out_directions)) != (stacked, stacked):
        return Refusal("axes or directions are not one per scan input and output", node)
    if not {*in_directions, *out_directions} <= {0, 1}:
        return Refusal("a direction is neither 0 nor 1", node)
    carries = tuple(
        Carry(k, inputs[k], body.inputs[k], body.outputs[k], _output(node, k))  # type: ignore[arg-type]
        for k in range(states)
    )
    scan_inputs = tuple(
        ScanInput(k, inputs[states + k], body.inputs[states + k], in_axes[k], bool(in_directions[k]))  # type: ignore[arg-type]
        for k in range(read)
    )
    scan_outputs = tuple(
        ScanOutput(k, body.outputs[states + k], _output(node, states + k), out_axes[k], bool(out_directions[k]))
        for k in range(stacked)
    )
    return ScanView(node, body, opset, carries, scan_inputs, scan_outputs, batched, lengths)

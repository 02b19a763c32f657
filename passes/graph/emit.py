"""Writing nodes outside a loop: every operator in the form that the model's opset has, with types inferred.

Nodes are only collected; `Emitter.insert_before` puts them into a graph, `Emitter.discard` forgets them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from looplift.patterns.graph.constants import INT64_MIN
from looplift.patterns.graph.refusal import Refusal, Refused
from looplift.patterns.graph.types import TensorType, Types, infer_node
from looplift.patterns.graph.values import is_used, with_inner

Refuse = Callable[[ir.Node, "Emitter"], "Refusal | None"]
"""Why a node may not be written, None if it may."""


class Emitter:
    """Collects new nodes for one graph."""

    def __init__(self, opset: int, types: Types, refuse: Refuse | None = None) -> None:
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self._types = types
        self._refuse = refuse
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def insert_before(self, anchor: ir.Node) -> None:
        """Puts the nodes, in the order they were written, right before `anchor`."""
        for node in self.nodes:
            anchor.prepend(node)

    def discard(self) -> None:
        """Forgets the nodes: values they read no longer list them as users."""
        for outer in reversed(self.nodes):
            for node in with_inner(outer):
                for k in range(len(node.inputs)):
                    node.replace_input_with(k, None)
        self.nodes.clear()

    def drop_unused(self) -> None:
        """Takes the nodes that nobody reads out of the graph again."""
        for node in reversed(self.nodes):
            if node.graph is not None and not any(is_used(output) for output in node.outputs):
                node.graph.remove(node, safe=True)

    def add(self, node: ir.Node) -> ir.Node:
        """Takes a node as it is and infers the types of its outputs; raises `Refused` where that is not wanted."""
        for output, fact in zip(node.outputs, infer_node(node, self._types, self.opset), strict=True):
            if fact.dtype is not None and output.type is None:
                output.type = ir.TensorType(fact.dtype)
            if output.shape is None:
                output.shape = fact.public_shape
        self.nodes.append(node)
        refusal = self._refuse(node, self) if self._refuse is not None else None
        if refusal is not None:
            raise Refused(refusal)
        return node

    def type_of(self, value: ir.Value) -> TensorType:
        """What is known of a value that stands outside the loop, or that was written here."""
        return self._types[value]

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, ir.Attr | int | list[int]] | None = None,
    ) -> ir.Value:
        """Writes a node of the default domain with one output, and gives that.

        Raises:
            Refused: the model's opset has no such operator.
        """
        if not onnx.defs.has(op_type, max_inclusive_version=self.opset):
            raise Refused(Refusal(f"{op_type}, which the result needs, is not in opset {self.opset}"))
        return self.add(ir.node(op_type, inputs, attributes=attributes or {})).outputs[0]

    def const(self, array: np.ndarray | int | list[int], dtype: type = np.int64) -> ir.Value:
        """A Constant; equal ones are written once."""
        value = np.asarray(array) if isinstance(array, np.ndarray) else np.asarray(array, dtype)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = self.tensor(ir.tensor(value))
        return self._constants[key]

    def tensor(self, tensor: ir.TensorProtocol) -> ir.Value:
        """A Constant that holds a tensor. Before opset 9 only floats can be: a small integer is cast from one."""
        if self.opset >= 9 or tensor.dtype.is_floating_point():
            return self.op("Constant", [], {"value": ir.AttrTensor("value", tensor)})
        array = tensor.numpy().astype(np.float64)
        if not np.array_equal(array.astype(tensor.numpy().dtype), tensor.numpy()):
            raise Refused(Refusal(f"a constant of the result can't be written in opset {self.opset}"))
        return self.op("Cast", [self.tensor(ir.tensor(array))], {"to": int(tensor.dtype)})

    def axes_op(self, op_type: str, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Unsqueeze or Squeeze: axes are an attribute before opset 13, an input from then on."""
        if not axes:
            return value
        if self.opset < 13:
            return self.op(op_type, [value], {"axes": list(axes)})
        return self.op(op_type, [value, self.const(list(axes))])

    def unsqueeze(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """New axes of extent 1 at these positions of the result."""
        return self.axes_op("Unsqueeze", value, axes)

    def squeeze(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Without these axes of extent 1."""
        return self.axes_op("Squeeze", value, axes)

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Transposed, unless the permutation is none."""
        if list(perm) == list(range(len(perm))):
            return value
        return self.op("Transpose", [value], {"perm": list(perm)})

    def move_axis(self, value: ir.Value, rank: int, start: int, end: int) -> ir.Value:
        """One axis moved to another position, the others in order, as numpy's moveaxis."""
        shape, passed = self.type_of(value).shape, range(min(start, end), max(start, end) + 1)
        if shape is not None and all(shape[axis] == 1 for axis in passed if axis != start):
            return self._move_past_ones(value, start, end)
        order = [axis for axis in range(rank) if axis != start]
        order.insert(end, start)
        return self.transpose(value, order)

    def _move_past_ones(self, value: ir.Value, start: int, end: int) -> ir.Value:
        """An axis moved past axes of extent 1: these are taken out and put back, which copies nothing."""
        if start == end:
            return value
        if start > end:
            return self.unsqueeze(self.squeeze(value, range(end, start)), range(end + 1, start + 1))
        return self.unsqueeze(self.squeeze(value, range(start + 1, end + 1)), range(start, end))

    def extent(self, value: ir.Value, axis: int) -> ir.Value:
        """One extent of a tensor as an int64 scalar; `axis` counts from the front."""
        return self.op("Gather", [self.op("Shape", [value]), self.const(axis)], {"axis": 0})

    def slice(self, value: ir.Value, start: int, end: int, axis: int, step: int = 1) -> ir.Value:
        """A slice along one axis; steps other than 1 need opset 10."""
        if self.opset < 10:
            return self.op("Slice", [value], {"starts": [start], "ends": [end], "axes": [axis]})
        bounds = [self.const([start]), self.const([end]), self.const([axis])]
        return self.op("Slice", [value, *bounds, *([self.const([step])] if step != 1 else [])])

    def flip(self, value: ir.Value, axis: int = 0) -> ir.Value:
        """The tensor read backwards along one axis (opset 10 or later)."""
        return self.slice(value, -1, INT64_MIN, axis, step=-1)

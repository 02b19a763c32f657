"""Rows of a tensor that was split into a sequence are read from the tensor itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import onnx_ir as ir

from looplift.passes.graph.edit import remove_node, replace_value
from looplift.passes.graph.emit import Emitter
from looplift.passes.journal import Journal
from looplift.patterns.graph.constants import constant
from looplift.patterns.graph.operators import has_references, is_standard
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.values import held_nodes
from looplift.patterns.graph.view import is_any_loop
from looplift.patterns.graph.walk import Place, places

READERS = frozenset({"SequenceAt", "SequenceLength"})


@dataclasses.dataclass(frozen=True)
class ReadSplitRows:
    """Replaces ``SequenceAt(SplitToSequence(x), i)`` by a Gather, the sequence's length by the extent of `x`.

    PyTorch exports ``for row in x.unbind(1)`` so.

    Legal if
    1. the parts have length 1: `split` is absent, or the constant scalar 1;
    2. the sequence is read by SequenceAt and SequenceLength only, at least once by a loop, for its bound or inside it,
       and no graph returns it;
    3. `axis` and `keepdims` are numbers (no reference to an attribute of a function).

    An index out of range fails in both, a negative one counts from the end in both. Preserves bits: values are read
    from elsewhere. With the scalar 1 and ``keepdims=0`` the axis is dropped, as PyTorch means it and ONNX Runtime does
    it; the standard's text says that `keepdims` is ignored then.
    """

    def __call__(self, model: ir.Model, journal: Journal) -> bool:
        """Rewrites every such sequence of the model in place; whether there was one."""
        found = [(node, place) for place in places(model) for node in place.graph if _splits_rows(node, place.opset)]
        for node, place in found:
            for loop in _loops_that_read(node):
                journal.did(loop, f"made it read '{_tensor(node).name}' itself instead of a sequence of its rows")
            for reader in [usage.node for usage in node.outputs[0].uses()]:
                _replace(reader, node, place)
        return bool(found)


def _tensor(split: ir.Node) -> ir.Value:
    value = split.inputs[0]
    assert value is not None, "the first input of SplitToSequence is not optional"
    return value


def _splits_rows(node: ir.Node, opset: int) -> bool:
    if not is_standard(node, "SplitToSequence") or has_references(node) or node.outputs[0].is_graph_output():
        return False
    lengths = node.inputs[1] if len(node.inputs) > 1 else None
    array = constant(lengths, opset)
    if lengths is not None and (array is None or array.ndim or array != 1):
        return False
    readers = [usage.node for usage in node.outputs[0].uses()]
    plain = all(is_standard(reader, *READERS) for reader in readers)
    return plain and any(True for _ in _loops_that_read(node))


def _loops_that_read(split: ir.Node) -> Iterator[ir.Node]:
    """Loops that hold a reader of the sequence, or whose inputs come straight from one."""
    readers = {usage.node for usage in split.outputs[0].uses()}
    for node in split.graph or ():
        fed = any(value is not None and value.producer() in readers for value in node.inputs)
        if is_any_loop(node) and (fed or any(inner in readers for inner in held_nodes(node))):
            yield node


def _replace(reader: ir.Node, split: ir.Node, place: Place) -> None:
    emit = Emitter(place.opset, Types())
    axis = split.attributes.get_int("axis", 0)
    keeps = split.attributes.get_int("keepdims", 1) == 1
    if reader.op_type == "SequenceLength":
        result = emit.op("Gather", [emit.op("Shape", [_tensor(split)]), emit.const(axis)], {"axis": 0})
    else:
        position = emit.op("Reshape", [reader.inputs[1], emit.const([])])
        result = emit.op("Gather", [_tensor(split), position], {"axis": axis})
        result = emit.unsqueeze(result, [axis]) if keeps else result
    emit.insert_before(reader)
    replace_value(reader.outputs[0], result)
    remove_node(reader)

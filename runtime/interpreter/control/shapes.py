"""Shapes of scan outputs when no iteration runs: shape inference on the body with the real input shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import types
from looplift.runtime.interpreter.control.folding import extents, fold, shape_candidate
from looplift.runtime.interpreter.values import Array, Value, as_value

_SLICE_BY_INPUTS = 10
"""Before this opset Slice has its bounds in attributes, and onnx's inference leaves open what has to be clamped."""


@dataclasses.dataclass(frozen=True)
class EmptyRows:
    """Makes the scan outputs of a loop that ran no iteration.

    The row shape is what shape inference finds for the body on the shapes of the values at hand; a dimension that it
    leaves open is what the body declares, and 0 if that says nothing either, as in ONNX Runtime.

    Attributes:
        attributes: those of the function around the body, which its nodes may refer to.
        skipped: how many body inputs stand before the values given (a Loop's iteration number and condition).
        kinds: the types of the scan outputs.
    """

    model: ir.Model
    graph: ir.Graph
    opsets: Mapping[str, int]
    attributes: Mapping[str, ir.Attr]
    skipped: int
    kinds: tuple[str | None, ...]
    _known: dict[bytes, dict[str, list[int | None]]] = dataclasses.field(default_factory=dict)

    def __call__(
        self, inputs: Sequence[Value], captured: Mapping[str, Value], used: Sequence[bool]
    ) -> list[Array | None]:
        """Arrays of shape [0, ...] for the scan outputs in use, from the body's inputs and captures.

        Raises:
            LoopliftError: a scan output's type is unknown.
        """
        outputs = self.graph.outputs[len(self.graph.outputs) - len(self.kinds) :]
        inferred = self._infer(inputs, captured)
        rows: list[Array | None] = []
        for value, kind, wanted in zip(outputs, self.kinds, used, strict=True):
            dtype = types.dtype_of(kind or types.type_string(value.type))
            if not wanted:
                rows.append(None)
            elif dtype is None:
                raise LoopliftError(f"no iteration runs and the type of the scan output '{value.name}' is unknown")
            else:
                shape = _merged(inferred.get(value.name or ""), _declared(value))
                rows.append(np.empty((0, *shape), dtype=dtype))
        return rows

    def _infer(self, inputs: Sequence[Value], captured: Mapping[str, Value]) -> dict[str, list[int | None]]:
        """The dimensions of the body's values, kept for the next time."""
        names = [value.name or "" for value in self.graph.inputs[self.skipped :]]
        given = {**dict(zip(names, inputs, strict=True)), **captured}
        infos = {name: _value_info(name, as_value(value)) for name, value in given.items() if value is not None}
        values = {name: as_value(value) for name, value in captured.items()}
        tensors = {n: onnx.numpy_helper.from_array(v, n) for n, v in values.items() if shape_candidate(v)}
        known = [*(i.SerializeToString() for i in infos.values()), *(t.SerializeToString() for t in tensors.values())]
        key = b"".join(known)
        if key not in self._known:
            self._known[key] = self._infer_anew(infos, tensors)
        return self._known[key]

    def _infer_anew(
        self, infos: Mapping[str, onnx.ValueInfoProto], tensors: Mapping[str, onnx.TensorProto]
    ) -> dict[str, list[int | None]]:
        body = self._body()
        for info in body.input[self.skipped :]:
            if info.name in infos:
                info.CopyFrom(infos[info.name])
        own = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
        body.initializer.extend(tensor for name, tensor in tensors.items() if name not in own)
        body.input.extend(info for name, info in infos.items() if name not in own | set(tensors))
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        model = onnx.helper.make_model(body, opset_imports=imports)
        model.functions.extend(ir.serde.serialize_function(f) for f in self.model.functions.values())
        try:
            found = onnx.shape_inference.infer_shapes(model, data_prop=True)
            for _ in self.graph:  # what one shape settles may settle another, node by node
                if not self._open(found.graph) or not self._settle(found.graph):
                    break
                found = onnx.shape_inference.infer_shapes(found, data_prop=True)
        except onnx.shape_inference.InferenceError:  # an inference that gives up leaves what the body declares
            return {}
        return extents(found.graph)

    def _open(self, body: onnx.GraphProto) -> bool:
        """Whether an extent of a scan output is not known yet."""
        found = extents(body)
        outputs = self.graph.outputs[len(self.graph.outputs) - len(self.kinds) :]
        return any(None in found.get(value.name or "", [None]) for value in outputs)

    def _settle(self, body: onnx.GraphProto) -> bool:
        """Completes what inference left open; whether there was any."""
        sliced = self.opsets.get("", _SLICE_BY_INPUTS) < _SLICE_BY_INPUTS and _complete_slices(body)
        return fold(body, self.opsets, {}, {}) or sliced

    def _body(self) -> onnx.GraphProto:
        """The body without what it declares for its results, which may be wrong and would be taken for given."""
        body = ir.serde.serialize_graph(self.graph)
        _fill_in(body, self.attributes)
        del body.value_info[:]
        del body.output[:]
        for info in body.input[: self.skipped]:
            info.type.tensor_type.shape.SetInParent()
        return body


def _complete_slices(graph: onnx.GraphProto, outer: Mapping[str, list[int | None]] | None = None) -> bool:
    """Writes the shapes of Slices by attributes that were left open, where the input's is known; whether any was.

    In branches and bodies, too, though inference does not hand those on to an If. Bounds count from the end where
    negative, and are clamped to the extent (Slice-1).
    """
    named = {info.name: info for info in (*graph.output, *graph.value_info)}
    known = {**(outer or {}), **extents(graph)}
    changed = False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                changed |= _complete_slices(inner, known)
        before, found = known.get(node.input[0]) if node.input else None, named.get(node.output[0])
        if node.op_type != "Slice" or before is None or found is None or known.get(found.name) is None:
            continue
        after = _sliced(node, before)
        for dim, extent, was in zip(found.type.tensor_type.shape.dim, after, known[found.name], strict=True):
            if was is None and extent is not None:
                dim.dim_value, changed = extent, True
    return changed


def _sliced(node: onnx.NodeProto, shape: list[int | None]) -> list[int | None]:
    bounds = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    result = list(shape)
    for k, (start, end) in enumerate(zip(bounds["starts"], bounds["ends"], strict=True)):
        axis = bounds["axes"][k] if "axes" in bounds else k
        extent = shape[axis]
        result[axis] = None if extent is None else len(range(extent)[start:end])
    return result


def _fill_in(graph: onnx.GraphProto, attributes: Mapping[str, ir.Attr]) -> None:
    """Replace references to the attributes of a function by their values."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.ref_attr_name in attributes:
                name = attribute.name
                attribute.CopyFrom(ir.serde.serialize_attribute(attributes[attribute.ref_attr_name]))
                attribute.name = name
            for inner in (attribute.g, *attribute.graphs):
                _fill_in(inner, attributes)


def _value_info(name: str, value: Value) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        kind = types.of_dtype(value[0].dtype) if value else types.of_dtype(np.dtype(np.float32))
        return onnx.helper.make_value_info(name, ir.serde.serialize_type(types.ir_type(f"seq({kind})")))
    element = types.DATA_TYPES[types.of_dtype(value.dtype)[7:-1]]
    return onnx.helper.make_tensor_value_info(name, element.value, value.shape)


def _declared(value: ir.Value) -> ir.Shape | None:
    """What the body declares of a value, or of what it is a copy of."""
    node = value.producer()
    while value.shape is None and node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value.shape


def _merged(inferred: list[int | None] | None, declared: Any) -> list[int]:
    stated = None if declared is None else [d if isinstance(d, int) else None for d in declared]
    if inferred is None:
        return [d or 0 for d in stated or []]
    if stated is None or len(stated) != len(inferred):
        return [d or 0 for d in inferred]
    return [a if a is not None else b or 0 for a, b in zip(inferred, stated, strict=True)]

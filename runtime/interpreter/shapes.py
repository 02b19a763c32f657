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
from looplift.runtime.interpreter.values import Array, Value, as_value

_SMALL = 64


@dataclasses.dataclass(frozen=True)
class EmptyRows:
    """Makes the scan outputs of a loop that ran no iteration.

    The row shape is what shape inference finds for the body on the shapes of the values at hand; a dimension that it
    leaves open is what the body declares, and 0 if that says nothing either, as in ONNX Runtime.

    Attributes:
        states: how many body inputs stand before the values given (a Loop's iteration number and condition).
        kinds: the types of the scan outputs.
    """

    model: ir.Model
    graph: ir.Graph
    opsets: Mapping[str, int]
    states: int
    kinds: tuple[str | None, ...]

    def __call__(
        self, inputs: Sequence[Value], captured: Mapping[str, Value], used: Sequence[bool]
    ) -> list[Array | None]:
        """Arrays of shape [0, ...] for the scan outputs in use, from the body's inputs and captures.

        Raises:
            LoopliftError: a scan output's type is unknown, or the shapes do not fit together.
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
                shape = _merged(inferred.get(value.name or ""), value.shape)
                rows.append(np.empty((0, *shape), dtype=dtype))
        return rows

    def _infer(self, inputs: Sequence[Value], captured: Mapping[str, Value]) -> dict[str, list[int | None]]:
        body = ir.serde.serialize_graph(self.graph)
        del body.value_info[:]
        for info in body.output:
            info.type.Clear()
        for info, value in zip(body.input[self.states :], inputs, strict=True):
            if value is not None:
                info.CopyFrom(_value_info(info.name, as_value(value)))
        for info in body.input[: self.states]:
            info.type.tensor_type.shape.SetInParent()
        present = {info.name for info in body.input} | {t.name for t in body.initializer}
        for name, value in captured.items():
            if name in present or value is None:
                continue
            if isinstance(value, np.ndarray) and value.size <= _SMALL and value.dtype in (np.int64, np.int32):
                body.initializer.append(onnx.numpy_helper.from_array(value, name))
            else:
                body.input.append(_value_info(name, as_value(value)))
        model = onnx.helper.make_model(
            body, opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in self.opsets.items()]
        )
        model.functions.extend(ir.serde.serialize_function(f) for f in self.model.functions.values())
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
        return {info.name: _dims(info) for info in found.graph.output if info.type.tensor_type.HasField("shape")}


def _value_info(name: str, value: Value) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        kind = types.of_dtype(value[0].dtype) if value else types.of_dtype(np.dtype(np.float32))
        return onnx.helper.make_value_info(name, ir.serde.serialize_type(types.ir_type(f"seq({kind})")))
    element = types.DATA_TYPES[types.of_dtype(value.dtype)[7:-1]]
    return onnx.helper.make_tensor_value_info(name, element.value, value.shape)


def _dims(info: onnx.ValueInfoProto) -> list[int | None]:
    return [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]


def _merged(inferred: list[int | None] | None, declared: Any) -> list[int]:
    stated = None if declared is None else [d if isinstance(d, int) else None for d in declared]
    if inferred is None:
        return [d or 0 for d in stated or []]
    if stated is None or len(stated) != len(inferred):
        return [d or 0 for d in inferred]
    return [a if a is not None else b or 0 for a, b in zip(inferred, stated, strict=True)]

"""ONNX types as the strings that operator schemas use: ``tensor(float)``, ``seq(tensor(int64))``, ``optional(...)``.

An unknown type is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

_NAMES = {ir.DataType.DOUBLE: "double"}
DATA_TYPES: dict[str, ir.DataType] = {
    _NAMES.get(dtype, dtype.name.lower()): dtype for dtype in ir.DataType if dtype != ir.DataType.UNDEFINED
}
_STRING_OF = {dtype: f"tensor({name})" for name, dtype in DATA_TYPES.items()}

FLOATS = frozenset({"tensor(float16)", "tensor(bfloat16)", "tensor(float)", "tensor(double)"})
NATIVE_FLOATS = FLOATS - {"tensor(bfloat16)"}
INTEGERS = frozenset(f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64))
BOOL = "tensor(bool)"
INT64 = "tensor(int64)"
STRING = "tensor(string)"


def type_string(kind: ir.TypeProtocol | None) -> str | None:
    """The schema string of an IR type; None if the type or its element type is unknown."""
    if kind is None:
        return None
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = type_string(kind.elem_type)
        word = "seq" if isinstance(kind, ir.SequenceType) else "optional"
        return None if inner is None else f"{word}({inner})"
    text = _STRING_OF.get(kind.dtype)
    return text.replace("tensor", "sparse_tensor", 1) if text and isinstance(kind, ir.SparseTensorType) else text


def proto_type_string(proto: onnx.TypeProto) -> str | None:
    """The schema string of a TypeProto; None if it says no element type, or holds maps, which onnx_ir can't."""
    case = proto.WhichOneof("value")
    if case is None or case == "map_type":
        return None
    if case in ("sequence_type", "optional_type"):
        inner = proto_type_string(getattr(proto, case).elem_type)
        return None if inner is None else f"{'seq' if case == 'sequence_type' else 'optional'}({inner})"
    return type_string(ir.serde.deserialize_type_proto_for_type(proto))


def ir_type(text: str) -> ir.TypeProtocol:
    """The IR type that a schema string names."""
    word, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if word == "seq":
        return ir.SequenceType(ir_type(inner))
    if word == "optional":
        return ir.OptionalType(ir_type(inner))
    if word == "sparse_tensor":
        return ir.SparseTensorType(DATA_TYPES[inner])
    return ir.TensorType(DATA_TYPES[inner])


def of_dtype(dtype: np.dtype[Any]) -> str:
    """The tensor type of an array's dtype.

    Raises:
        TypeError: ONNX has no such element type.
    """
    if dtype.kind in "OUS":
        return STRING
    return _STRING_OF[ir.DataType.from_numpy(dtype)]


def dtype_of(text: str | None) -> np.dtype[Any] | None:
    """The numpy dtype of a tensor type, object for strings; None for other kinds and unknown types."""
    if text is None or not text.startswith("tensor("):
        return None
    return np.dtype(ir.DataType.numpy(DATA_TYPES[text[7:-1]]))


def is_tensor(text: str) -> bool:
    """Whether the type is a (dense) tensor."""
    return text.startswith("tensor(")


def without_optional(text: str) -> str:
    """``optional(X)`` as X, anything else unchanged."""
    return text[9:-1] if text.startswith("optional(") else text


def agree(a: str | None, b: str | None) -> bool:
    """Whether a value of one type can stand where the other is expected; unknown agrees with all."""
    return a is None or b is None or without_optional(a) == without_optional(b)


def merge(a: str | None, b: str | None) -> str | None:
    """The type of a value that has type `a` on one way and `b` on another; None where they can't be told."""
    if a == b:
        return a
    if a is None or b is None or not agree(a, b):
        return None
    return a if a.startswith("optional(") else b

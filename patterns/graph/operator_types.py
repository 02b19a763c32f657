"""What ONNX's own rules say of the outputs of one node (`onnx.shape_inference.infer_node_outputs`), remembered.

The rules read nothing but the operator, its attributes, the types of its inputs and the contents of small integer
ones. The answer is kept under exactly these, so it can't go out of date, whatever happens to the graph. The passes
ask the same question of the same nodes many times over; an answer from memory takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from looplift.patterns.graph.constants import Array, constant
from looplift.patterns.graph.shapes import Dim, Dims

Fact = tuple[ir.DataType | None, Dims | None]
"""Element type and shape; None for what is not known."""

REMEMBERED = 1 << 14
"""Answers that are kept."""

LARGEST_KEY = 4096
"""Bytes of contents and attributes with which an answer is still kept."""

_NOTHING: Fact = (None, None)
_answers: dict[Hashable, tuple[Fact, ...]] = {}

_PLAIN = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)


def operator_types(node: ir.Node, inputs: Sequence[Fact | None], opset: int) -> tuple[Fact, ...]:
    """Types of the node's outputs; unknown ones where the operator's rules give none or reject the node.

    Args:
        node: of the default domain, without graphs and references among its attributes.
        inputs: what is known of each input; None for one that is left out.
        opset: version of the default domain.
    """
    contents = [_contents(value, fact, opset) for value, fact in zip(node.inputs, inputs, strict=True)]
    key = _key(node, inputs, contents, opset)
    if key is None:
        return _infer(node, inputs, contents, opset)
    answer = _answers.get(key)
    if answer is None:
        answer = _infer(node, inputs, contents, opset)
        if len(_answers) >= REMEMBERED:
            _answers.clear()
        _answers[key] = answer
    return answer


def _contents(value: ir.Value | None, fact: Fact | None, opset: int) -> Array | None:
    """Shapes, axes and counts are integers; the contents of other tensors tell inference nothing."""
    if value is None or fact is None:
        return None
    dtype = fact[0]
    if dtype is not None and not dtype.is_integer() and dtype != ir.DataType.BOOL:
        return None
    folded = constant(value, opset)
    return folded if folded is not None and folded.dtype.kind in "iub" else None


def _key(node: ir.Node, inputs: Sequence[Fact | None], contents: Sequence[Array | None], opset: int) -> Hashable | None:
    """All that the rules read; None if that is much."""
    if sum(array.nbytes for array in contents if array is not None) > LARGEST_KEY:
        return None
    attributes: list[Hashable] = []
    for attribute in node.attributes.data.values():
        if attribute.type in _PLAIN:
            attributes.append((attribute.name, attribute.type, attribute.value))
        elif attribute.type is ir.AttributeType.TENSOR and attribute.value.nbytes <= LARGEST_KEY:
            attributes.append((attribute.name, ir.to_proto(attribute).SerializeToString(deterministic=True)))
        else:
            return None
    data = tuple(None if array is None else (array.dtype.str, array.shape, array.tobytes()) for array in contents)
    made = tuple(output.name == "" for output in node.outputs)
    return node.op_type, opset, tuple(inputs), data, tuple(attributes), made


def _infer(
    node: ir.Node, inputs: Sequence[Fact | None], contents: Sequence[Array | None], opset: int
) -> tuple[Fact, ...]:
    nothing = (_NOTHING,) * len(node.outputs)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return nothing
    proto = onnx.NodeProto(op_type=node.op_type)
    proto.input.extend("" if fact is None else f"x{k}" for k, fact in enumerate(inputs))
    proto.output.extend(f"y{k}" if output.name != "" else "" for k, output in enumerate(node.outputs))
    proto.attribute.extend(ir.to_proto(attr) for attr in node.attributes.values() if isinstance(attr, ir.Attr))
    types = {f"x{k}": _to_proto(fact) for k, fact in enumerate(inputs) if fact is not None}
    data = {
        f"x{k}": onnx.numpy_helper.from_array(array, f"x{k}") for k, array in enumerate(contents) if array is not None
    }
    try:
        # An unknown operator form or an input without a type: nothing is known, which is a safe answer.
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, KeyError, ValueError):
        return nothing
    return tuple(_from_proto(inferred.get(f"y{k}")) for k in range(len(node.outputs)))


def _to_proto(fact: Fact) -> onnx.TypeProto:
    dtype, shape = fact
    proto = onnx.TypeProto()
    if dtype is not None:
        proto.tensor_type.elem_type = int(dtype)
    if shape is not None:
        proto.tensor_type.shape.SetInParent()
        for dim in shape:
            entry = proto.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            elif dim is not None:
                entry.dim_param = dim
    return proto


def _from_proto(proto: onnx.TypeProto | None) -> Fact:
    if proto is None or not proto.HasField("tensor_type"):
        return _NOTHING
    tensor = proto.tensor_type
    dtype = ir.DataType(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(_dim(entry) for entry in tensor.shape.dim)


def _dim(entry: Any) -> Dim:
    if entry.HasField("dim_value"):
        return int(entry.dim_value)
    return str(entry.dim_param) if entry.HasField("dim_param") and entry.dim_param else None


MICROSOFT = "com.microsoft"
"""Where ONNX Runtime's optimizers and quantizers put what they make of several nodes."""

NOT_IN_ONNX = frozenset({"SimplifiedLayerNormalization"})
"""Operators of its own that it puts into the default domain."""

_LIKE_FIRST = NOT_IN_ONNX | frozenset(
    {
        "BiasGelu",
        "FastGelu",
        "Gelu",
        "QLinearLeakyRelu",
        "QLinearSigmoid",
        "QLinearSoftmax",
        "QuickGelu",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)
_BROADCASTS = frozenset({"QLinearAdd", "QLinearMul"})
_PRODUCTS = {"DynamicQuantizeMatMul": 0, "FusedMatMul": 0, "MatMulIntegerToFloat": 2, "TransposeMatMul": 0}
"""Products of the first two inputs, and the input of whose type they are."""


def contributed_types(node: ir.Node, inputs: Sequence[Fact | None], opset: int) -> tuple[Fact, ...]:
    """The same for operators of ONNX Runtime's own, of which onnx knows nothing: of the first output, for some.

    Source: onnxruntime/docs/ContribOperators.md; a test compares them with what ONNX Runtime computes.
    """
    found = _NOTHING
    given = [(None, None) if fact is None else fact for fact in (*inputs, *[None] * 4)]
    if node.op_type in _LIKE_FIRST:
        found = given[0]
    elif node.op_type in _BROADCASTS:
        found = given[0][0], _like("Add", [given[0], given[3]], {}, opset)
    elif node.op_type in _PRODUCTS and not any(node.attributes.get_int(f"transBatch{side}", 0) for side in "AB"):
        turns = [node.attributes.get_int(f"trans{side}", 0) for side in "AB"]
        operands = [_turned(fact, turn) for fact, turn in zip(given[:2], turns, strict=True)]
        found = given[_PRODUCTS[node.op_type]][0], _like("MatMul", operands, {}, opset)
    elif node.op_type in ("FusedConv", "FusedGemm"):
        plain = {name: each for name, each in node.attributes.items() if not name.startswith("activation")}
        found = given[0][0], _like(node.op_type.removeprefix("Fused"), given[:3], plain, opset)
    return (found, *(_NOTHING,) * (len(node.outputs) - 1))


def _like(op_type: str, facts: Sequence[Fact], attributes: Mapping[str, ir.Attr], opset: int) -> Dims | None:
    """The shape that an operator of the standard has for floats of these shapes."""
    known = [fact for fact in facts if fact != _NOTHING]
    node = ir.Node("", op_type, [ir.val(f"x{k}") for k in range(len(known))], list(attributes.values()))
    return operator_types(node, [(ir.DataType.FLOAT, shape) for _, shape in known], opset)[0][1]


def _turned(fact: Fact, transposed: int) -> Fact:
    dtype, shape = fact
    if not transposed or shape is None or len(shape) < 2:
        return fact
    return dtype, (*shape[:-2], shape[-1], shape[-2])

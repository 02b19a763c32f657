"""What the operator schemas of this domain share: registration and shape inference on dims that may be unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from onnx import TypeProto
from onnx.defs import OpSchema
from onnx.shape_inference import InferenceContext

from looplift.runtime.ops import DOMAIN, VERSION, Array
from looplift.runtime.ops.element_types import ONNX_NUMBERS

Dim = int | str | None
"""A dimension: its size, its symbol, or unknown."""
Shape = tuple[Dim, ...] | None
"""A shape; None where even the rank is unknown."""

OPTIONAL = OpSchema.FormalParameterOption.Optional

OUTPUTS = [
    OpSchema.FormalParameter("v_final", "T", "The state after the last step.", param_option=OPTIONAL),
    OpSchema.FormalParameter(
        "scan_output", "T", "One state per step, stacked on a new first axis.", param_option=OPTIONAL
    ),
]
"""The outputs of every recurrence; either may be unused."""

STACKED = ("emit_previous", "0 stacks the state after each step, 1 the state before it.")
REVERSE = ("reverse", "1 walks time backwards; the rows of scan_output stay at their time.")


def register(
    name: str,
    doc: str,
    inputs: Sequence[OpSchema.FormalParameter],
    outputs: Sequence[OpSchema.FormalParameter],
    flags: Sequence[tuple[str, str]],
    infer: Callable[[InferenceContext], None],
) -> OpSchema:
    """The schema of op ``name``, registered with onnx unless it already is.

    Args:
        name: the op type.
        doc: what the op does.
        inputs: its inputs; type variable ``T`` stands for any number type.
        outputs: its outputs.
        flags: (name, description) of its attributes, ints that default to 0.
        infer: type and shape inference. It leaves unknown what it can't tell and never raises: in onnx an exception
            from Python ends the inference of the whole model.
    """
    if not onnx.defs.has(name, DOMAIN):
        schema = OpSchema(
            name,
            DOMAIN,
            VERSION,
            doc,
            inputs=inputs,
            outputs=outputs,
            type_constraints=[("T", ONNX_NUMBERS, "Any type that Add takes; integers wrap.")],
            attributes=[OpSchema.Attribute(flag, onnx.helper.make_attribute(flag, 0), text) for flag, text in flags],
        )
        schema.set_type_and_shape_inference_function(infer)
        onnx.defs.register_schema(schema)
    return onnx.defs.get_schema(name, VERSION, DOMAIN)


def input_shape(context: InferenceContext, index: int) -> Shape:
    """The shape of an input as far as the model tells it."""
    known = _input_type(context, index)
    if known is None or not known.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None  # an empty symbol says nothing
        for dim in known.tensor_type.shape.dim
    )


def _input_type(context: InferenceContext, index: int) -> TypeProto | None:
    """The type of an input; None if it is left out, or made by an operator that ONNX does not know."""
    return context.get_input_type(index) if context.has_input(index) else None


def input_value(context: InferenceContext, index: int) -> Array | None:
    """The value of an input, where it is constant."""
    data = context.get_input_data(index) if context.has_input(index) else None
    return None if data is None else onnx.numpy_helper.to_array(data)


def flag(context: InferenceContext, name: str) -> bool:
    """Whether an int attribute is set, 0 by default."""
    attribute = context.get_attribute(name)
    return attribute is not None and attribute.i != 0


def set_output(context: InferenceContext, index: int, like: int, shape: Shape) -> None:
    """Gives an output the element type of input ``like`` and ``shape``; an unused output is passed over."""
    known = _input_type(context, like)
    if not context.has_output(index) or known is None:
        return
    result = TypeProto()
    result.tensor_type.elem_type = known.tensor_type.elem_type
    if shape is not None:
        result.tensor_type.shape.SetInParent()
        for dim in shape:
            entry = result.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            elif dim is not None:
                entry.dim_param = dim
    context.set_output_type(index, result)


def broadcast(left: Shape, right: Shape) -> Shape:
    """The shape of an elementwise result, by ONNX's multidirectional broadcasting; None where it is not known."""
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    return tuple(_broadcast_dim(a, b) for a, b in pairs)


def _broadcast_dim(left: Dim, right: Dim) -> Dim:
    if left == 1 or left == right:
        return right
    if right == 1:
        return left
    if isinstance(left, int) and isinstance(right, int):
        return None  # they do not broadcast; running the node says so
    sizes = [dim for dim in (left, right) if isinstance(dim, int)]
    return sizes[0] if sizes else None  # a size other than 1 wins over a symbol

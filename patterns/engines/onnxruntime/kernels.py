"""Operators by what ONNX Runtime's kernels do with them: which round by more than the values that they are given.

Each table belongs to quirks in `patterns.engines.onnxruntime.quirks`, which has the versions and the tests.
"""

from __future__ import annotations

import onnx_ir as ir

from looplift.patterns.graph.operators import TRAITS, Trait, is_standard


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


REACH = {"Conv": 0, "ConvTranspose": 0, "GRU": 1, "Gemm": 1, "LSTM": 1, "MatMul": 1}
"""How far out, in graphs, a constant operand may stand so that it is laid out anew, with other last bits (packed)."""

PRODUCTS = frozenset({*REACH, "RNN"})

PACKED = PRODUCTS | _names("ConvInteger MatMulInteger QLinearConv QLinearMatMul")
"""Operators for which the engine lays constant operands out anew when it loads the model; integers exactly."""

LAID_OUT = {"GRU": (1, 2), "LSTM": (1, 2)}
"""Which operands; the second otherwise."""

SUMS = (TRAITS[Trait.REDUCES] - {"ReduceMax", "ReduceMin"}) | _names(
    "CumSum Einsum GRU Gemm LSTM LogSoftmax MatMul RNN Softmax"
)
"""Operators that add in another order in a tensor of another shape (sums)."""

FUNCTIONS = _names(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu Log Mish Pow Reciprocal Selu Sigmoid Sin Sinh "
    "Softplus Softsign Sqrt Swish Tan Tanh"
)
"""Operators that vector code rounds other than scalar code does (functions)."""

HALF = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

IN_HALF = _names(
    "Concat Constant ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity Loop If Reshape Scan "
    "ScatterElements ScatterND Shape Size Slice Split Squeeze Transpose Unsqueeze"
)
"""Operators that it has in float16 too: what they are given was rounded (half), unless all around computes in float32.
"""

INDIFFERENT = _names(
    "Abs Add And Cast Ceil Concat Div Equal Expand Floor Gather Gemm Greater GreaterOrEqual IsInf IsNaN Less "
    "LessOrEqual MatMul Mul Neg Not Or Shape Size Slice Split Sub Tile Transpose Where Xor"
)
"""Operators that copy, compare, or round each element correctly, and products: may write a row in place (placed)."""

BY_RESULT = _names("Exp Log Max Min Reciprocal Relu Sigmoid Sqrt Tanh")
"""Operators that take packets by the address of the result alone (floats, doubles): may read a row in place."""


def family(node: ir.Node) -> str:
    """The kind of rounding that is an engine's choice in tensors of other shapes: ``sums``, ``functions``, or none."""
    if not is_standard(node):
        return ""
    if node.op_type in SUMS | PRODUCTS:
        return "sums"
    return "functions" if node.op_type in FUNCTIONS else ""


def may_stay_unrounded(node: ir.Node) -> bool:
    """Whether the node gives float16, perhaps, that an engine computes in float32 and rounds for the next or not."""
    halves = any(value.dtype is None or value.dtype in HALF for value in node.outputs)
    return halves and is_standard(node) and node.op_type not in IN_HALF

"""What the standard says of its operators: the one table of traits, and who is one of its nodes.

A trait holds in every opset from 8 on. What an engine does with an operator, and the standard leaves open, is asked in
`patterns.engines`. Sources: the operators of ai.onnx, versions 1 to 28 (onnx/docs/Operators.md, Changelog.md); for
`INFERRED` the audit in `tests/patterns/test_shape_audit.py`; for `FOLDS` onnx's reference implementation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeGuard

import onnx_ir as ir

STANDARD = ("", "ai.onnx")
"""How the default domain is spelled."""


class Trait(enum.Enum):
    """A fact about an operator; the value says which."""

    UNARY = "elementwise with one operand, and a result for each of its elements (domain errors give NaN)"
    BROADCASTS = "elementwise with several operands, which broadcast against one another"
    ELEMENTWISE = "each element of the result is computed from the operands' elements at its place"
    SPECULATABLE = "has a result whatever its operands hold, if elementwise ones broadcast"
    RESHAPES = "the same elements in the same order: only the shape is another"
    MOVES = "the elements of the first operand; which ones does not hang on what it holds"
    SPREADS = "nothing but copies of the first operand's elements, each at least once where there is a result"
    SHAPE_FOLLOWS = "the result's shape hangs on the shape of the first operand, not on what it holds"
    NO_LARGER = "the result has no more elements than the first operand has, or axes"
    ASKS_SHAPE = "reads the shape of its operand, or its length, not what it holds"
    REDUCES = "joins the elements along axes into one"
    RANDOM = "draws anew each time that it runs"
    FOLDS = "onnx's reference implementation computes it as engines do (but quotients of negative integers)"
    INFERRED = "what ONNX's inference says of its results' shapes was compared with executed ones, in every version"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNARY = _names(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign "
    "Sqrt Swish Tan Tanh ThresholdedRelu"
)
_BROADCASTS_SAFELY = _names(
    "Add And BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or Sub Sum "
    "Where Xor"
)
_BROADCASTS = _BROADCASTS_SAFELY | _names("BitShift Div Mod Pow")
_RESHAPES = _names("Flatten Identity Reshape Squeeze Unsqueeze")
_SHAPE = _names("Shape Size")

TRAITS: Mapping[Trait, frozenset[str]] = {
    Trait.UNARY: _UNARY,
    Trait.BROADCASTS: _BROADCASTS,
    Trait.ELEMENTWISE: _UNARY | _BROADCASTS | {"PRelu"},
    Trait.SPECULATABLE: _UNARY
    | _BROADCASTS_SAFELY
    | _SHAPE
    | _names("Constant Identity SequenceConstruct SequenceEmpty SequenceLength"),
    Trait.RESHAPES: _RESHAPES,
    Trait.MOVES: _RESHAPES | _names("Gather Slice Transpose"),
    Trait.SPREADS: _RESHAPES | _names("Expand Tile"),
    Trait.SHAPE_FOLLOWS: _names("Cast Gather Identity Neg Slice Squeeze Transpose Unsqueeze"),
    Trait.NO_LARGER: _RESHAPES
    | _SHAPE
    | _names("Abs Cast CastLike Ceil Floor Neg Not ReduceProd Relu Slice Transpose"),
    Trait.ASKS_SHAPE: _SHAPE | {"SequenceLength"},
    Trait.REDUCES: _names(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
        "ReduceSumSquare"
    ),
    Trait.RANDOM: _names("Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"),
    Trait.FOLDS: _names(
        "Abs Add And Cast CastLike Ceil Concat ConstantOfShape Div Equal Expand Floor Gather Greater GreaterOrEqual "
        "Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Range Relu Reshape Shape Size Slice Squeeze Sub "
        "Transpose Unsqueeze Where Xor"
    ),
    Trait.INFERRED: _names(
        "Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool "
        "BatchNormalization Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast "
        "CastLike CausalConvWithState Ceil Celu CenterCropPad Clip Col2Im Compress Concat ConcatFromSequence "
        "ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumProd CumSum DFT DeformConv DepthToSpace "
        "DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor "
        "GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual "
        "GridSample GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Hardmax Identity ImageDecoder "
        "InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log "
        "LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool MaxUnpool Mean MeanVarianceNormalization "
        "MelWeightMatrix Min Mish Mod Mul Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not "
        "OneHot OptionalGetElement OptionalHasElement Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear "
        "RMSNormalization RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 "
        "ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare "
        "RegexFullMatch Relu Reshape Resize ReverseSequence RoiAlign RotaryEmbedding Round STFT Scatter "
        "ScatterElements ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
        "SequenceLength Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus "
        "Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze StringConcat StringNormalizer StringSplit Sub Sum "
        "SwiGLU Swish Tan Tanh TensorScatter TfIdfVectorizer ThresholdedRelu Tile TopK Transpose Trilu Unique "
        "Unsqueeze Upsample Where Xor"
    ),
}

SHAPED_BY: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (0, 1),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "StringSplit": (0,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Unique": (0,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Inputs whose numbers decide the shapes of an op's outputs (of reductions: input 1, the axes)."""

NO_TRAIT = _names("GlobalLpPool If Loop MaxRoiPool Optional Scan SequenceMap")
"""Operators of which nothing is said here."""


def is_standard(node: ir.Node | None, *op_types: str) -> TypeGuard[ir.Node]:
    """Whether there is a node, of the default domain, and of one of these types where any are named."""
    return node is not None and node.domain in STANDARD and (not op_types or node.op_type in op_types)


def has(node: ir.Node | None, *traits: Trait) -> TypeGuard[ir.Node]:
    """Whether there is a node, of the default domain, with one of these traits."""
    return is_standard(node) and any(node.op_type in TRAITS[trait] for trait in traits)


def has_references(node: ir.Node) -> bool:
    """Whether an attribute is one that each call of the function around gives anew."""
    return any(attribute.is_ref() for attribute in node.attributes.values())


__all__ = ["NO_TRAIT", "SHAPED_BY", "STANDARD", "TRAITS", "Trait", "has", "has_references", "is_standard"]

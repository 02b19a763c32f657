"""Programs of the shape audit: spellings of older opsets, and shapes that are computed."""

from __future__ import annotations

import dataclasses

from looplift.passes.opsets import NEWEST


@dataclasses.dataclass(frozen=True)
class Program:
    """A few nodes on ``float[N,M] x, float[N] y, int64 k``; `proven` is what must be known of `out`, to lift by it.

    `least` is the lowest k: of a stack without rows ONNX Runtime makes extents 0 that it does not know before.
    """

    body: str
    first: int
    last: int
    proven: str | None = None
    least: int = 0


PROGRAMS = {
    "Slice by attributes": Program("out = Slice<axes = [1], starts = [0], ends = [-1]>(x)", 8, 9, "N ?"),
    "Slice by attributes, whole": Program(
        "out = Slice<axes = [-1], starts = [0], ends = [9223372036854775807]>(x)", 8, 9, "N M"
    ),
    "Slice": Program(
        "a = Constant<value = int64[1] {0}>() e = Constant<value = int64[1] {-1}>() out = Slice(x, a, e, a)",
        10,
        NEWEST,
        "? M",
    ),
    "Slice by k": Program(
        "a = Constant<value = int64[1] {0}>() v = Reshape(k, one) out = Slice(x, a, v, a)", 10, NEWEST, "? M"
    ),
    "Slice of every other": Program(
        "a = Constant<value = int64[2] {0, 0}>() b = Constant<value = int64[2] {2147483647, 2147483647}>() x2 = Constant<value = int64[2] {0, 1}>() s = Constant<value = int64[2] {1, 2}>() out = Slice(x, a, b, x2, s)",
        10,
        NEWEST,
        "? ?",
    ),
    "Squeeze": Program("u = Unsqueeze<axes = [0]>(x) out = Squeeze<axes = [0]>(u)", 8, 12, "N M"),
    "Squeeze what is 1": Program("out = Squeeze(x)", 8, NEWEST),
    "Reduce": Program("out = ReduceSum<axes = [0]>(x)", 8, 12, "1 M"),
    "Reduce without axes": Program(
        "z = Constant<value = int64[0] {}>() out = ReduceSum<noop_with_empty_axes = 1>(x, z)", 13, NEWEST
    ),
    "Reduce by k": Program("v = Reshape(k, one) out = ReduceSum<keepdims = 0>(x, v)", 13, NEWEST),
    "Pad": Program("out = Pad<pads = [0, 1, 0, 1]>(x)", 8, 10, "N ?"),
    "Pad by shape": Program("z = Constant<value = int64[4] {0, 1, 0, -1}>() out = Pad(x, z)", 11, NEWEST),
    "Split": Program("out, rest = Split<axis = 1>(x)", 8, 12),
    "Split at": Program("n = Constant<value = int64[2] {1, 1}>() out, rest = Split<axis = 1>(x, n)", 13, NEWEST, "N ?"),
    "TopK": Program("out, i = TopK<k = 1>(x)", 8, 9, "N 1"),
    "TopK by k": Program("v = Reshape(k, one) out, i = TopK(x, v)", 10, NEWEST),
    "Tile by k": Program("a = Concat<axis = 0>(one, one) out = Tile(x, a)", 8, NEWEST),
    "Upsample": Program("out = Upsample<scales = [1.0, 2.0]>(x)", 7, 8),
    "Upsample by tensor": Program("s = Constant<value = float[2] {1, 2.5}>() out = Upsample(x, s)", 9, 9),
    "Concat with itself": Program("out = Concat<axis = 0>(x, x)", 8, NEWEST, "? M"),
    "Expand to the shape": Program(
        "s = Shape(x) c = Constant<value = float[1,1] {0}>() out = Expand(c, s)", 8, NEWEST, "N M"
    ),
    "Expand to a mixed shape": Program(
        "s = Shape(y) v = Concat<axis = 0>(one, s) out = Expand(y, v)", 8, NEWEST, "1 N"
    ),
    "Expand by itself": Program("s = Shape(y) out = Expand(x, s)", 8, NEWEST),
    "ConstantOfShape": Program("s = Shape(x) out = ConstantOfShape(s)", 9, NEWEST, "N M"),
    "ConstantOfShape of parts": Program(
        "s = Shape(x) i = Constant<value = int64[2] {1, 0}>() t = Gather(s, i) out = ConstantOfShape(t)",
        9,
        NEWEST,
        "M N",
    ),
    "Range": Program(
        "s = Shape(y) h = Squeeze(s) z = Constant<value = int64 {0}>() o = Constant<value = int64 {1}>() out = Range(z, h, o)",
        13,
        NEWEST,
        "N",
    ),
    "Range from k": Program(
        "z = Constant<value = int64 {7}>() o = Constant<value = int64 {2}>() out = Range(k, z, o)", 11, NEWEST, "?"
    ),
    "Reshape to the shape": Program("s = Shape(x) n = Neg(x) out = Reshape(n, s)", 8, NEWEST),
    "Reshape to the shape, zeros at their word": Program(
        "s = Shape(x) n = Neg(x) out = Reshape<allowzero = 1>(n, s)", 14, NEWEST, "N M"
    ),
    "Reshape behind": Program("v = Constant<value = int64[3] {0, 1, -1}>() out = Reshape(x, v)", 8, NEWEST),
    "Reshape to one axis": Program("v = Constant<value = int64[1] {-1}>() out = Reshape(x, v)", 8, NEWEST),
    "Reshape with products": Program(
        "s = Shape(y) m = Constant<value = int64[1] {-1}>() v = Concat<axis = 0>(m, s) out = Reshape(x, v)", 8, NEWEST
    ),
    "Flatten": Program("out = Flatten<axis = 0>(x)", 8, NEWEST),
    "MatMul": Program("t = Transpose(x) out = MatMul(x, t)", 8, NEWEST, "N N"),
    "Gemm": Program("out = Gemm<transB = 1>(x, x)", 11, NEWEST, "N N"),
    "sizes that broadcast": Program("out = Add(x, y)", 8, NEWEST),
    "sizes that broadcast with ones": Program("u = Unsqueeze<axes = [1]>(y) out = Mul(x, u)", 8, 12),
    "three sizes": Program("c = Greater(x, y) out = Where(c, x, y)", 9, NEWEST),
    "Gather": Program("i = Constant<value = int64[2] {0, 0}>() out = Gather<axis = 1>(x, i)", 8, NEWEST, "N 2"),
    "Gather by k": Program("out = Gather(x, k)", 8, NEWEST, "M"),
    "RandomUniformLike": Program("out = RandomUniformLike(x)", 8, 21, "N M"),
    "RandomNormalLike": Program("out = RandomNormalLike<dtype = 11>(x)", 8, 21, "N M"),
    "RandomNormal": Program("out = RandomNormal<shape = [2, 3]>()", 8, 21, "2 3"),
    "RandomUniform": Program("out = RandomUniform<shape = [2]>()", 8, 21, "2"),
    "Multinomial": Program("out = Multinomial<sample_size = 3>(x)", 8, 21),
    "SequenceAt": Program("s = SequenceConstruct(x, y) out = SequenceAt(s, k)", 11, NEWEST),
    "ConcatFromSequence": Program("s = SequenceConstruct(x, x) out = ConcatFromSequence<axis = 0>(s)", 11, NEWEST),
    "pieces": Program("s = SplitToSequence<axis = 0>(x) out = SequenceAt(s, k)", 11, NEWEST),
    "NonZero": Program("c = Cast<to = 9>(x) out = NonZero(c)", 9, NEWEST, "2 ?"),
    "Compress": Program("c = Cast<to = 9>(y) out = Compress<axis = 0>(x, c)", 9, NEWEST),
    "Mish": Program("out = Mish(x)", 18, NEWEST, "N M"),
    "CastLike": Program("out = CastLike(x, k)", 15, NEWEST, "N M"),
    "SequenceLength": Program("s = SequenceConstruct(x, y) out = SequenceLength(s)", 11, NEWEST),
    "SequenceInsert": Program("e = SequenceEmpty() s = SequenceInsert(e, x) out = SequenceAt(s, k)", 11, NEWEST),
    "SequenceErase": Program(
        "s = SequenceConstruct(x, y) e = SequenceErase(s, k) z = Constant<value = int64 {0}>() out = SequenceAt(e, z)",
        11,
        NEWEST,
    ),
    "If": Program(
        "c = Cast<to = 9>(k) out = If (c) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Transpose(x) }>",
        11,
        NEWEST,
    ),
    "Loop that grows": Program(
        "c = Constant<value = bool {1}>() out = Loop (k, c, x) <body = b (int64 i, bool ci, float[A,B] p) => (bool co, float[A,B] q) { co = Identity(ci) q = Concat<axis = 0>(p, x) }>",
        11,
        NEWEST,
        "? M",
    ),
    "Loop that turns": Program(
        "c = Constant<value = bool {1}>() out = Loop (k, c, x) <body = b (int64 i, bool ci, float[A,B] p) => (bool co, float[A,B] q) { co = Identity(ci) q = Transpose(p) }>",
        11,
        NEWEST,
        "? ?",
    ),
    "rows": Program(
        "c = Constant<value = bool {1}>() l, out = Loop (k, c, x) <body = b (int64 i, bool ci, float[A,B] p) => (bool co, float[A,B] q, float[A,B] o) { co = Identity(ci) q = Neg(p) o = Neg(p) }>",
        11,
        NEWEST,
        "? N M",
        least=1,
    ),
    "rows of a Scan": Program(
        "l, out = Scan <num_scan_inputs = 1, body = b (float[A] p, float[B] e) => (float[A] q, float[B] o) { q = Neg(p) o = Neg(e) }> (y, x)",
        9,
        NEWEST,
        "? M",
    ),
}

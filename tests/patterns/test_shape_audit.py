"""What is taken as proof of shapes and types, operator by operator and version by version, against executed ones.

The operators and attributes are those of ONNX's own test cases, in every opset from `OLDEST` to `NEWEST` in which an
operator's definition begins or ends; spellings of before, and shapes that are computed, are written here. Each is
inferred (`patterns.types`) with a symbol for each extent, or one for all extents that are equal, with operands known or
not, and run with several sizes for each symbol: in ONNX Runtime, where that has it, else in onnx.reference.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from looplift.passes.opsets import NEWEST, OLDEST
from looplift.passes.shapes import forget_declared, prove_shapes
from tests.helpers import model

MOST = 5000
"""Elements of a test case's inputs: the sizes of large ones say no more."""

CASES = 14
"""Of one operator."""

KNOWN = 64
"""Elements of an integer operand that is given as a constant."""


AS_GIVEN = frozenset(
    "Adagrad Adam AffineGrid Attention AveragePool BatchNormalization BlackmanWindow Cast CastLike CausalConvWithState "
    "Conv ConvInteger ConvTranspose DFT DeformConv DequantizeLinear DynamicQuantizeLinear GRU GridSample "
    "GroupNormalization HammingWindow HannWindow ImageDecoder InstanceNormalization LSTM LayerNormalization "
    "LinearAttention LpPool MaxPool MaxUnpool MelWeightMatrix Momentum NegativeLogLikelihoodLoss NonMaxSuppression "
    "QLinearConv QuantizeLinear RMSNormalization RNN RegexFullMatch Resize RoiAlign RotaryEmbedding STFT "
    "SoftmaxCrossEntropyLoss StringConcat StringNormalizer StringSplit TfIdfVectorizer".split()
)
"""Run with the sizes of their cases alone: of others ONNX Runtime makes crashes, or nothing new."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One node, with inputs that it runs on; `known` are constants."""

    name: str
    node: onnx.NodeProto
    arrays: dict[str, np.ndarray]
    known: frozenset[str]
    opset: int

    def proto(self, shapes: dict[str, list[str]] | None) -> onnx.ModelProto:
        """The model, with these symbols for the inputs' extents, or none."""
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), shapes[name] if shapes else [None] * array.ndim
            )
            for name, array in self.arrays.items()
            if name not in self.known
        ]
        outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in self.node.output if name]
        tensors = [onnx.numpy_helper.from_array(self.arrays[name], name) for name in sorted(self.known)]
        graph = onnx.helper.make_graph([self.node], "audit", inputs, outputs, tensors)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=10)


def test_cases() -> Iterator[tuple[str, onnx.NodeProto, dict[str, np.ndarray]]]:
    """ONNX's test cases of one node on tensors."""
    from onnx.backend.test.case.node import collect_testcases

    count: collections.Counter[str] = collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        graph = case.model.graph
        if case.kind != "node" or len(graph.node) != 1 or graph.node[0].domain or case.model.functions:
            continue
        (node,), (inputs, _) = graph.node, case.data_sets[0]
        plain = all(isinstance(array, np.ndarray | np.generic) and array.size <= MOST for array in inputs)
        count[node.op_type] += 1
        if plain and count[node.op_type] <= CASES and not any(a.HasField("g") for a in node.attribute):
            yield (
                case.name,
                node,
                dict(zip([value.name for value in graph.input], map(np.asarray, inputs), strict=True)),
            )


test_cases.__test__ = False  # type: ignore[attr-defined]


def opsets(op_type: str) -> list[int]:
    """The first and the last opset of every definition of an operator."""
    by_version: dict[int, list[int]] = {}
    for opset in range(OLDEST, NEWEST + 1):
        if onnx.defs.has(op_type, max_inclusive_version=opset):
            by_version.setdefault(onnx.defs.get_schema(op_type, opset, "").since_version, []).append(opset)
    return sorted({opset for each in by_version.values() for opset in (each[0], each[-1])})


class Runs:
    """A model that is run with several inputs."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        self._run: Any = None
        try:
            self._run = onnxruntime.InferenceSession(proto.SerializeToString(), options).run
        except Exception:  # no kernel, or no such form of the operator
            try:
                self._run = ReferenceEvaluator(proto).run
            except Exception:  # nor here: a form of another opset
                return

    def __call__(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
        """The outputs; None if the model does not run on these sizes."""
        try:
            return None if self._run is None else [np.asarray(array) for array in self._run(None, feeds)]
        except Exception:  # sizes that the operator refuses
            return None


def claims(proto: onnx.ModelProto) -> dict[str, tuple[ir.DataType | None, list[int | str | None] | None]]:
    """What is taken as proof of each output."""
    subject = ir.from_proto(proto)
    forget_declared(subject)
    prove_shapes(subject)
    return {
        value.name or "": (
            value.dtype,
            None if value.shape is None else [dim if isinstance(dim, int) else dim.value for dim in value.shape],
        )
        for value in subject.graph.outputs
    }


def wrong(claim: tuple[Any, Any], array: np.ndarray, sizes: dict[str, int]) -> bool:
    """Whether a claim does not hold of what came out."""
    dtype, dims = claim
    if dtype is not None and dtype != ir.DataType.STRING and ir.tensor(array).dtype != dtype:
        return True
    if dims is None:
        return False
    known = [sizes.get(dim) if isinstance(dim, str) else dim for dim in dims]
    return len(known) != array.ndim or any(
        x is not None and x != size for x, size in zip(known, array.shape, strict=True)
    )


def judged(case: Case, count: collections.Counter[str]) -> Iterator[str]:
    """Every claim of a case that is wrong."""
    runs = Runs(case.proto(None))
    for shared in (False, True):
        shapes = {
            name: [f"D{size}" if shared else f"{name}.{axis}" for axis, size in enumerate(array.shape)]
            for name, array in case.arrays.items()
        }
        given = {
            dim: size
            for name, array in case.arrays.items()
            for dim, size in zip(shapes[name], array.shape, strict=True)
        }
        claimed = claims(case.proto(shapes))
        count["claimed"] += sum(None not in (dtype, dims) for dtype, dims in claimed.values())
        trials = [{}, *({dim: size} for dim in sorted(given) for size in (0, 1)), dict.fromkeys(given, 1)]
        for trial in trials if shared and case.node.op_type not in AS_GIVEN else trials[:1]:
            sizes = given | trial
            feeds = {
                name: np.resize(array, [sizes[dim] for dim in shapes[name]]) if trial else array
                for name, array in case.arrays.items()
                if name not in case.known
            }
            results = runs(feeds)
            count["not run" if results is None else "run"] += 1
            for (name, claim), array in zip(claimed.items(), results or [], strict=False):
                if wrong(claim, array, sizes):
                    kind = "known" if case.known else "open"
                    yield f"{case.name}, opset {case.opset}, {kind}, {sizes}: '{name}' {claim}, but {array.dtype}{array.shape}"


@pytest.mark.slow
def test_every_operator_in_every_version():
    count: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    seen: set[str] = set()
    for name, node, arrays in test_cases():
        integers = {key for key, array in arrays.items() if array.dtype.kind in "iub" and array.size <= KNOWN}
        for opset, known in itertools.product(opsets(node.op_type), {frozenset(), frozenset(integers)}):
            faults.extend(judged(Case(name, node, arrays, frozenset(known), opset), count))
        seen.add(node.op_type)
    assert not faults, "\n".join(faults[:40])
    assert len(seen) >= 150, len(seen)
    assert count["claimed"] > 5000, count
    assert count["run"] > 20_000, count


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    """What is computed from shapes, spelled as in older opsets, or cut and grown: never wrong, and known where needed."""
    program = PROGRAMS[name]
    versions = sorted(
        {
            max(program.first, OLDEST),
            *(v for v in (9, 10, 11, 12, 13, 17, 21) if program.first <= v <= program.last),
            program.last,
        }
    )
    ran = 0
    for opset in versions:
        ones = (
            "one = Constant<value = int64[1] {1}>()"
            if opset > 8
            else "o1 = Constant<value = float[1] {1}>() one = Cast<to = 7>(o1)"
        )
        if opset == 8 and "Constant<value = int64" in program.body:
            continue  # Constant holds floats alone
        text = f"g (float[N,M] x, float[N] y, int64 k) => (float[] out) {{ {ones} {program.body} }}"
        proto = ir.to_proto(model(text, opset))
        proto.graph.output[0].type.Clear()
        (claim,) = claims(proto).values()
        if program.proven is not None:
            assert claim[1] is not None, opset
            assert [
                str(dim) if isinstance(dim, int) or dim in ("N", "M") else "?" for dim in claim[1]
            ] == program.proven.split(), opset
        runs = Runs(proto)
        for n, m, k in itertools.product((0, 1, 2, 3), (0, 1, 2, 3), range(program.least, 3)):
            feeds = {"x": np.ones((n, m), np.float32), "y": np.ones(n, np.float32), "k": np.array(k)}
            results = runs(feeds)
            ran += results is not None
            if results is not None:
                assert not wrong(claim, results[0], {"N": n, "M": m}), (opset, feeds, claim, results[0].shape)
    assert ran > 0

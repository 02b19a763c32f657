"""What is taken as proof of shapes and types, operator by operator and version by version, against executed ones.

The operators and attributes are those of ONNX's own test cases, in every opset from `OLDEST` to `NEWEST` in which an
operator's definition begins or ends; spellings of before, and shapes that are computed, are written here. Each is
inferred (`patterns.graph.types`) with a symbol for each extent, or one for all extents that are equal, with operands known or
not, and run with several sizes for each symbol: in ONNX Runtime, where that has it, else in onnx.reference.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from looplift.passes.graph.shapes import forget_declared, names_of, prove_shapes
from looplift.passes.opsets import NEWEST, OLDEST
from looplift.patterns.graph.operators import TRAITS, Trait
from looplift.patterns.graph.shapes import parts
from tests.helpers import model
from tests.patterns.audit_programs import PROGRAMS

MOST = 5000
"""Elements of a test case's inputs: the sizes of large ones say no more."""

CASES = 14
"""Of one operator."""

KNOWN = 64
"""Elements of an integer operand that is given as a constant."""


AS_GIVEN = frozenset("AffineGrid Attention CausalConvWithState LSTM MaxUnpool RNN".split())
"""Run with the sizes of their cases alone: onnx.reference takes others that contradict each other."""

BY_REFERENCE = frozenset(
    "AveragePool BatchNormalization BlackmanWindow Conv ConvInteger ConvTranspose DFT DeformConv "
    "DequantizeLinear DynamicQuantizeLinear GRU GridSample GroupNormalization HammingWindow HannWindow "
    "InstanceNormalization LayerNormalization LinearAttention LpPool MaxPool MelWeightMatrix "
    "NegativeLogLikelihoodLoss NonMaxSuppression QLinearConv QuantizeLinear RMSNormalization RegexFullMatch Resize "
    "RoiAlign RotaryEmbedding STFT SoftmaxCrossEntropyLoss StringConcat StringNormalizer StringSplit "
    "TfIdfVectorizer".split()
)
"""Run with other sizes than those of their cases in onnx.reference alone, since ONNX Runtime may crash."""


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

    def __init__(self, proto: onnx.ModelProto, *, by_reference: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        self._run: Any = None
        try:
            if by_reference:
                raise NotImplementedError
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
    """What is taken as proof of each output; a name that was made up says nothing."""
    subject = ir.from_proto(proto)
    forget_declared(subject)
    prove_shapes(subject)
    names = dict.fromkeys(names_of(subject.graph).made_up)
    return {
        value.name or "": (
            value.dtype,
            None if value.shape is None else [names.get(dim, dim) for dim in dims_of(value)],
        )
        for value in subject.graph.outputs
    }


def dims_of(value: ir.Value) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def size_of(dim: str, sizes: dict[str, int]) -> int | None:
    """What a symbol stands for: a joint one for what its parts broadcast to, which they do where something came out."""
    found = {sizes.get(part) for part in parts(dim)}
    return None if None in found else next(iter(found - {1}), 1)


def wrong(claim: tuple[Any, Any], array: np.ndarray, sizes: dict[str, int]) -> bool:
    """Whether a claim does not hold of what came out."""
    dtype, dims = claim
    if dtype is not None and dtype != ir.DataType.STRING and ir.tensor(array).dtype != dtype:
        return True
    if dims is None:
        return False
    known = [size_of(dim, sizes) if isinstance(dim, str) else dim for dim in dims]
    return len(known) != array.ndim or any(
        x is not None and x != size for x, size in zip(known, array.shape, strict=True)
    )


def judged(case: Case, count: collections.Counter[str]) -> Iterator[str]:
    """Every claim of a case that is wrong."""
    op_type = case.node.op_type
    runs = Runs(case.proto(None))
    others = Runs(case.proto(None), by_reference=True) if op_type in BY_REFERENCE else runs
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
        for trial in trials if shared and op_type not in AS_GIVEN else trials[:1]:
            sizes = given | trial
            feeds = {
                name: np.resize(array, [sizes[dim] for dim in shapes[name]]) if trial else array
                for name, array in case.arrays.items()
                if name not in case.known
            }
            results = (others if trial else runs)(feeds)
            count["not run" if results is None else "run"] += 1
            for (name, claim), array in zip(claimed.items(), results or [], strict=False):
                if wrong(claim, array, sizes):
                    kind = "known" if case.known else "open"
                    yield f"{case.name}, opset {case.opset}, {kind}, {sizes}: '{name}' {claim}, but {array.dtype}{array.shape}"


@pytest.mark.slow
def test_every_operator_in_every_version():
    count: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    ran = operators_of_programs()
    for name, node, arrays in test_cases():
        integers = {key for key, array in arrays.items() if array.dtype.kind in "iub" and array.size <= KNOWN}
        before = count["run"]
        for opset, known in itertools.product(opsets(node.op_type), {frozenset(), frozenset(integers)}):
            faults.extend(judged(Case(name, node, arrays, frozenset(known), opset), count))
        ran |= {node.op_type} if count["run"] > before else set()
    assert not faults, "\n".join(faults[:40])
    assert ran - BY_OTHER_RULES == TRAITS[Trait.INFERRED], ran - BY_OTHER_RULES ^ TRAITS[Trait.INFERRED]
    assert count["claimed"] > 5000, count
    assert count["run"] > 20_000, count


BY_OTHER_RULES = frozenset({"Constant", "If", "Loop", "Scan"})
"""Operators of which ONNX's own inference is not asked."""


def operators_of_programs() -> set[str]:
    """The operators in the programs."""
    words = {word for program in PROGRAMS.values() for word in re.findall(r"[A-Z]\w+", program.body)}
    return {word for word in words if onnx.defs.has(word)}


def test_only_what_was_audited_is_believed():
    """The audit itself, which is slow, holds the two sets equal."""
    assert operators_of_programs() - BY_OTHER_RULES <= TRAITS[Trait.INFERRED]
    text = "g (float[2,3,4,4] x, float[N,5] r) => (float[] out) { out = MaxRoiPool<pooled_shape = [2, 2]>(x, r) }"
    assert claims(ir.to_proto(model(text, 17)))["out"] == (ir.DataType.FLOAT, None)


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

"""Random nodes of our ops for the kernels in ONNX Runtime, and what runs them there."""

from __future__ import annotations

import dataclasses
import os

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from looplift.runtime.onnxruntime.compile import CompilerError, find_compiler
from looplift.runtime.ops.element_types import NUMBERS
from tests.runtime.op_cases import kernel, one_node, special_values

DTYPES = sorted(NUMBERS, key=str)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def need_compiler() -> None:
    """Skips where there is no C compiler, unless LOOPLIFT_REQUIRE_KERNELS=1 makes that a failure."""
    try:
        find_compiler()
    except CompilerError as error:
        if os.environ.get("LOOPLIFT_REQUIRE_KERNELS") == "1":
            pytest.fail(f"LOOPLIFT_REQUIRE_KERNELS=1, but {error}")
        pytest.skip(str(error))


@dataclasses.dataclass(frozen=True)
class NodeCase:
    """One node, its inputs by name (None: absent), which outputs are used, and its attributes."""

    op: str
    inputs: dict[str, np.ndarray | None]
    wanted: tuple[bool, bool]
    attributes: dict[str, int]

    @property
    def columns(self) -> int:
        """Elements of a state."""
        return self.inputs["v_initial"].size

    def expected(self) -> list[np.ndarray]:
        """What our numpy kernel gives."""
        return [
            out
            for out in kernel(self.op, list(self.inputs.values()), self.wanted, **self.attributes)
            if out is not None
        ]

    def model(self) -> onnx.ModelProto:
        """The node alone, without its definition: an engine that loads it has a kernel."""
        model = one_node(self.op, 17, self.inputs, self.wanted, **self.attributes)
        del model.functions[:]
        return _fed_as_bits(model)


def _fed_as_bits(model: onnx.ModelProto) -> onnx.ModelProto:
    """With bfloat16, which numpy lacks, as float outside: every one is a float."""
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type != onnx.TensorProto.BFLOAT16:
            continue
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        inner, inward = f"{info.name}_bf16", info in model.graph.input
        for node in list(model.graph.node):
            names = node.input if inward else node.output
            names[:] = [inner if name == info.name else name for name in names]
        ends = (info.name, inner) if inward else (inner, info.name)
        to = onnx.TensorProto.BFLOAT16 if inward else onnx.TensorProto.FLOAT
        cast = onnx.helper.make_node("Cast", [ends[0]], [ends[1]], to=to)
        model.graph.node.insert(0 if inward else len(model.graph.node), cast)
    return model


def run_kernel(library, case: NodeCase, threads: int = 1) -> list[np.ndarray]:
    """The outputs of the kernel in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(case.model().SerializeToString(), options)
    feeds = {name: array for name, array in case.inputs.items() if array is not None}
    dtype = case.inputs["v_initial"].dtype
    with np.errstate(all="ignore"):
        given = {name: array.astype("f4") if array.dtype == BFLOAT16 else array for name, array in feeds.items()}
        outputs = session.run(None, given)
        return [out.astype(BFLOAT16) if dtype == BFLOAT16 else out for out in outputs]


def random_case(rng: np.random.Generator) -> NodeCase:
    """Any op, type, shape, attributes, values."""
    op = str(rng.choice(["AddStep", "PrefixSum", "LinearRecurrence"]))
    dtype = DTYPES[rng.integers(len(DTYPES))]
    shape = _shape(rng)
    time = int(rng.choice([0, 1, 2, 5, 40, 300])) if np.prod(shape) < 3000 else int(rng.integers(1, 30))
    wanted = ((True, True), (True, True), (True, False), (False, True))[rng.integers(4)]
    flags = {"emit_previous": int(rng.integers(2))}
    if op == "AddStep":
        smaller = _part(rng, shape)
        first, second = (shape, smaller) if flags["emit_previous"] or rng.integers(2) else (smaller, shape)
        limit = np.array(time, np.int64).reshape([(), (1,)][rng.integers(2)])
        condition = [None, np.array(True), np.array(rng.integers(2) > 0)][rng.integers(3)]
        inputs = {
            "M": limit,
            "cond": condition,
            "v_initial": values(rng, first, dtype),
            "step": values(rng, second, dtype),
        }
        return NodeCase(op, inputs, wanted, flags)
    flags["reverse"] = int(rng.integers(2))
    inputs = {"v_initial": values(rng, shape, dtype)}
    if op == "PrefixSum":
        inputs["x"] = values(rng, (time, *_part(rng, shape)), dtype)
        return NodeCase(op, inputs, wanted, flags)
    invariant = [(), ("a",), ("b",)][rng.integers(3)]
    for name in ("a", "b"):
        part = _part(rng, shape)
        inputs[name] = values(rng, part if name in invariant else (time, *part), dtype)
    return NodeCase(op, inputs, wanted, flags | {f"{name}_invariant": 1 for name in invariant})


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    kind = rng.integers(6)
    if kind == 0:
        return ()
    if kind == 1:
        return (int(rng.integers(0, 90)),)
    if kind == 2:
        return (int(rng.integers(1, 20_000)),)
    return tuple(int(extent) for extent in rng.integers(0 if kind == 3 else 1, 12, size=rng.integers(1, 5)))


def _part(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another, mostly that itself."""
    if rng.integers(2):
        return shape
    ones = tuple(1 if rng.integers(2) else extent for extent in shape)
    return ones[rng.integers(len(ones) + 1) :]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any bits, special values, numbers of a size, or ones that are halfway between others when added."""
    kind = rng.integers(4)
    raw = rng.integers(0, 256, size=(*shape, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(shape)
    if kind == 0 or dtype.kind in "iu":
        return raw
    if kind == 1:
        return np.asarray(rng.choice(special_values(dtype), size=shape), dtype)
    with np.errstate(all="ignore"):
        numbers = np.asarray(rng.normal(size=shape)).astype(dtype)
        halves = np.asarray(rng.choice([1, -1, 0.5, 1.5, 3], size=shape)).astype(dtype)
        return numbers if kind == 2 else np.asarray(halves * ml_dtypes.finfo(dtype).eps, dtype)

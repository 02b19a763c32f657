"""What `patterns.graph.speculatable` says can't fail is executed, with shapes and values that its types allow."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,
    RuntimeException,
)

from looplift.patterns.graph.operators import TRAITS, Trait
from looplift.patterns.graph.speculatable import RULES, is_total
from looplift.patterns.graph.types import Types
from looplift.runtime import Session

DTYPES = {"float": "f4", "double": "f8", "float16": "f2", "int32": "i4", "int64": "i8", "uint8": "u1", "int8": "i1"}
SIZES = (0, 1, 2, 3, 5)
FLOATS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, 3e38)
WHOLE = (0, 1, -1, 2, 127, -128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
OPSETS = (8, 9, 10, 11, 12, 13, 17, 18, 22)
CONSTANTS = ("0", "1", "2", "-1", "0, 1", "1, 0", "-1, 1", "2, 3", "-1, 3", "3, 0", "0, -1", "1, 1")


def bools(name: str) -> bool:
    return name in ("And", "Or", "Xor", "Not")


@st.composite
def tensor(draw, dtype: str, constant: bool) -> tuple[str, str, bool]:
    """Element type, extents or (if constant) numbers, and whether it is constant."""
    if constant:
        return dtype, draw(st.sampled_from(CONSTANTS)), True
    dims = draw(st.lists(st.sampled_from(["1", "2", "3", "0", "A", "B", "C"]), max_size=3))
    return dtype, ",".join(dims), False


OPERANDS = {
    "CastLike": "xn",
    "Clip": "xss",
    "Concat": "xx",
    "Div": "x?",
    "Equal": "xx",
    "Expand": "xc",
    "Gather": "xc",
    "MatMul": "xx",
    "Mod": "x?",
    "Pow": "xx",
    "ReduceProd": "x",
    "ReduceSum": "xc",
    "Reshape": "xc",
    "Slice": "xvvcc",
    "Squeeze": "xc",
    "Unsqueeze": "xc",
    "Where": "bxx",
}
"""x: of the type drawn, b: bool, c: constant int64, s: a scalar as a rule, v: int64 of one or two, n: a number."""

ATTRIBUTES = {
    "Cast": ["to = 1", "to = 6", "to = 7", "to = 9", "to = 10", "to = 2"],
    "Concat": ["axis = 0", "axis = 1", "axis = -1", "axis = -3"],
    "Flatten": ["", "axis = 0", "axis = 2", "axis = -1", "axis = 3"],
    "Gather": ["", "axis = 1", "axis = -1", "axis = 2"],
    "LogSoftmax": ["", "axis = 0", "axis = -2", "axis = 2"],
    "Mod": ["fmod = 0", "fmod = 1"],
    "ReduceProd": ["", "axes = [0]", "axes = [-1]", "axes = [0, 1]", "axes = [0, 0]", "keepdims = 0"],
    "ReduceSum": ["", "axes = [0]", "axes = [1]", "keepdims = 0", "noop_with_empty_axes = 1"],
    "Reshape": ["", "allowzero = 1"],
    "Slice": ["", "starts = [9], ends = [-9]", "starts = [-9, 1], ends = [9, 2], axes = [1, 0]"],
    "Softmax": ["", "axis = 0", "axis = -2", "axis = 2"],
    "Squeeze": ["", "axes = [0]", "axes = [-1]", "axes = [0, 0]"],
    "Transpose": ["", "perm = [0]", "perm = [1, 0]", "perm = [0, 2, 1]", "perm = [0, 0]"],
    "Unsqueeze": ["axes = [0]", "axes = [-1]", "axes = [0, 1]", "axes = [0, 0]", "axes = [4]"],
}

OPS = sorted((TRAITS[Trait.SPECULATABLE] | set(RULES)) - {"Constant", "SequenceConstruct", "SequenceEmpty"})


@st.composite
def nodes(draw, op: str) -> tuple[str, int, list[tuple[str, str, bool]]]:
    """ONNX text of a model of one node, its opset, and its operands."""
    opset = draw(st.sampled_from(OPSETS))
    dtype = "bool" if bools(op) else draw(st.sampled_from(list(DTYPES)))
    kinds = OPERANDS.get(op, "xx" if op in TRAITS[Trait.BROADCASTS] else "x")
    kinds = kinds[: draw(st.integers(1, len(kinds)))] if op in ("Clip", "ReduceSum", "Slice", "Squeeze") else kinds
    attribute = draw(st.sampled_from(ATTRIBUTES.get(op, [""])))
    operands = []
    for k, kind in enumerate(kinds):
        if k and attribute.startswith(("axes", "starts")):
            break
        kind = draw(st.sampled_from("xc")) if kind == "?" else kind
        element = {"b": "bool", "c": "int64", "v": "int64"}.get(kind, dtype)
        if kind == "n":
            element = draw(st.sampled_from(list(DTYPES)))
        if kind == "c" and op in ("Div", "Mod"):
            element = dtype
        if kind in "sv":
            operands.append((element, draw(st.sampled_from(["", "", "1", "A"] if kind == "s" else ["1", "2"])), False))
        else:
            operands.append(draw(tensor(element, constant=kind == "c")))
    declared = [f"{t}[{s}] x{k}" if s else f"{t} x{k}" for k, (t, s, c) in enumerate(operands) if not c]
    made = [f"x{k} = Constant<value = {t}[{s.count(',') + 1}] {{{s}}}>()" for k, (t, s, c) in enumerate(operands) if c]
    inner = ", ".join(f"x{k}" for k in range(len(operands)))
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    agraph ({", ".join(declared)}) => (y) {{ {" ".join(made)} y = {op}{f"<{attribute}>" if attribute else ""}({inner}) }}"""
    return text, opset, operands


def feeds(draw, operands) -> dict[str, np.ndarray]:
    symbols: dict[str, int] = {}
    found = {}
    for k, (element, dims, constant) in enumerate(operands):
        if constant:
            continue
        shape = [
            int(d) if d.isdigit() else symbols.setdefault(d, draw(st.sampled_from(SIZES))) for d in dims.split(",") if d
        ]
        kind = np.dtype("?") if element == "bool" else np.dtype(DTYPES[element])
        with np.errstate(all="ignore"):
            pool = np.array(FLOATS).astype(kind) if kind.kind == "f" else np.array(WHOLE).astype(kind)
        picks = np.random.default_rng(draw(st.integers(0, 99))).integers(0, len(pool), shape)
        found[f"x{k}"] = np.asarray(pool[picks])
    return found


def check(op: str, data) -> None:
    text, opset, operands = data.draw(nodes(op))
    if not onnx.defs.has(op, opset, ""):
        return  # ONNX Runtime has some operators for longer than the standard
    model = ir.from_onnx_text(text)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    except (Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException):
        return  # no ONNX, or an element type that ONNX Runtime lacks: no model of it loads, whatever it runs
    if not is_total(model.graph[-1], Types(), opset):
        return
    interpreter = Session(model, device="numpy")
    for _ in range(2):
        feed = feeds(data.draw, operands)
        session.run(None, feed)
        interpreter.run(None, feed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ["Concat", "Div", "Expand", "Mul", "Reshape", "Slice", "Softmax"])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_cannot_fail_runs(op, data):
    check(op, data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_everything_that_cannot_fail_runs(op, data):
    check(op, data)

"""Ordinary ops by onnx's reference implementations, one instance a node."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import types
from looplift.runtime.interpreter.values import Value, as_value


def load(proto: onnx.NodeProto, opsets: Mapping[str, int]) -> Any | None:
    """The reference implementation of a node (an ``OpRun``); None if onnx has none but may define it by a function.

    Raises:
        LoopliftError: the op's attributes are wrong.
    """
    proto = _SPELLED_ANEW.get(proto.op_type, lambda same: same)(proto)
    loader = ReferenceEvaluator(_SHELL)
    opset = opsets.get("", 1)
    loader.opsets_ = {**opsets, "": max(opset, _FIRST_IMPLEMENTED.get(proto.op_type, opset))}
    log_nothing = {"log": lambda *_: None, "opsets": dict(opsets), "verbose": 0, "new_ops": {}}
    try:
        implementation = loader._load_impl(proto)
    except (NotImplementedError, RuntimeError):  # how onnx says that it has none
        return None
    if not isinstance(implementation, type):  # a function: planned as one by the caller
        return None
    try:
        return implementation(proto, log_nothing)
    except Exception as error:
        raise LoopliftError(f"onnx can't set up the op: {error}") from error


def _as_scatter_elements(scatter: onnx.NodeProto) -> onnx.NodeProto:
    """Scatter, which ScatterElements replaced under another name."""
    renamed = onnx.NodeProto()
    renamed.CopyFrom(scatter)
    renamed.op_type = "ScatterElements"
    return renamed


_FIRST_IMPLEMENTED = {"DequantizeLinear": 19}
"""Ops whose older versions onnx leaves out though the newer computes the same of what those take."""

_SPELLED_ANEW = {"Scatter": _as_scatter_elements}
_SHELL = onnx.helper.make_model(onnx.helper.make_graph([], "shell", [], []))


class ReferenceOp:
    """One node's reference implementation as a plain function of its inputs.

    The result is a value for one output and a tuple for several. Results are held to the output types that the
    schema gives, since some implementations compute in a wider type or give numpy's unicode strings.
    """

    def __init__(self, implementation: Any, output_types: Sequence[str | None]) -> None:
        self._run = implementation.run
        if type(implementation).__name__.partition("_")[0] in _FAIL_ON_SCALARS:
            self._run = functools.partial(_as_row, implementation.run)
        self._dtypes = [types.dtype_of(kind) for kind in output_types]

    def __call__(self, *inputs: Value) -> Any:
        found = self._run(*map(as_value, inputs))
        results = tuple(_held_to(value, dtype) for value, dtype in zip(found, self._dtypes, strict=False))
        if len(results) < len(self._dtypes):
            raise LoopliftError(f"onnx's reference gives {len(results)} outputs, {len(self._dtypes)} are named")
        return results[0] if len(self._dtypes) == 1 else results


_FAIL_ON_SCALARS = {"Bernoulli", "RandomNormalLike", "RandomUniformLike", "ReduceLogSumExp", "Softsign"}
"""Ops of one tensor whose implementations want an array of at least one dimension, which the standard does not."""


def _as_row(run: Any, x: Any, *axes: Any) -> tuple[Any, ...]:
    """What an op gives of a tensor; of a scalar, what it gives of one row, without the row."""
    if np.ndim(x):
        return tuple(run(x, *axes))
    return tuple(np.reshape(result, ()) for result in run(np.reshape(x, (1,)), *axes))


def _held_to(value: Any, dtype: np.dtype[Any] | None) -> Any:
    if isinstance(value, list) or value is None:
        return value
    array = np.asarray(value)
    return array if dtype is None or array.dtype == dtype else array.astype(dtype)

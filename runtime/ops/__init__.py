"""The custom ops of domain ``ai.looplift``: one folder each.

A folder holds the op's schema, its definition in standard ONNX ops, its numpy kernel and its WebGPU kernel
package, and gathers them in one ``OP``. Adding an op is adding a folder: nothing lists them but the directory.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

DOMAIN = "ai.looplift"
VERSION = 1

Array = np.ndarray[Any, Any]
NumpyKernel = Callable[[Sequence["Array | None"], Mapping[str, Any], Sequence[bool]], "tuple[Array | None, ...]"]
"""(inputs, attributes, which outputs are wanted) -> outputs; an unwanted output is None and is not computed."""


@dataclasses.dataclass(frozen=True)
class Op:
    """One custom op.

    Attributes:
        name: the op type, for example ``AddStep``.
        schema: the ONNX schema with type and shape inference.
        definition: opset version of the model -> the model-local function that defines the op in standard ops.
        numpy: the exact kernel on the host.
        package: importable package that holds the WebGPU kernel (``build/webgpu``), or None.
    """

    name: str
    schema: onnx.defs.OpSchema
    definition: Callable[[int], onnx.FunctionProto]
    numpy: NumpyKernel
    package: str | None = None


@functools.cache
def all_ops() -> Mapping[str, Op]:
    """Every op of the domain by its op type, found by looking at the folders of this package."""
    ops: dict[str, Op] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            op: Op = importlib.import_module(f"{__name__}.{module.name}").OP
            ops[op.name] = op
    return ops

"""A whole model in ONNX Runtime with our kernels, for `looplift.Session`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift import interop, ort
from looplift.runtime.errors import LoopliftError
from looplift.verification.engines import file_for_onnxruntime


class InOnnxRuntime:
    """Runs a model on ONNX Runtime's CPU provider, with its default optimizations.

    Args:
        source: the model as it was given.
        model: the same, read.
        definitions: run our ops by their definitions, without our kernels.

    Raises:
        LoopliftError: onnxruntime is not installed, the kernels are not built, it does not take the model, or an input
            or output is of bfloat16.
    """

    def __init__(self, source: interop.Source, model: ir.Model, *, definitions: bool) -> None:
        self.device = f"onnxruntime ({'definitions' if definitions else 'kernels in C'})"
        _refuse_bfloat16(model)
        onnxruntime = ort.require_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if not definitions:
            ort.session_options(options)
        # what it maps from a file of weights stays mapped when the file is gone
        with tempfile.TemporaryDirectory(prefix="looplift-", ignore_cleanup_errors=True) as folder:
            file = file_for_onnxruntime(source, model, Path(folder))
            try:
                self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # it has no common class for its errors
                raise LoopliftError(f"ONNX Runtime does not load the model: {error}") from error
        self._inputs = [value.name for value in model.graph.inputs]
        self._outputs = [value.name for value in model.graph.outputs]

    def run(self, arguments: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
        """The outputs at the positions `wanted`, of an argument for each input.

        Raises:
            LoopliftError: a node fails.
        """
        feeds = dict(zip(self._inputs, arguments, strict=True))
        try:
            results = self._session.run([self._outputs[position] for position in wanted], feeds)
        except Exception as error:
            raise LoopliftError(f"ONNX Runtime: {error}") from error
        return _apart(results, arguments)

    def text(self) -> str:
        """There is no program of ours."""
        return "# the model runs in ONNX Runtime\n"


def _refuse_bfloat16(model: ir.Model) -> None:
    """Raises:
    LoopliftError: an input or output is of it, which ONNX Runtime has inside a model, but not at its Python door.
    """
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.dtype == ir.DataType.BFLOAT16:
            raise LoopliftError(
                f"'{value.name}' is bfloat16, which ONNX Runtime's Python does not hand over: cast it to float in the "
                "model, or take another device"
            )


def _apart(results: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The results, a copy of one that lies in an input's memory, or in another's: ONNX Runtime may hand out both."""
    taken = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    apart = []
    for result in results:
        if isinstance(result, np.ndarray):
            shared = any(np.may_share_memory(result, other) for other in taken)
            taken.append(result.copy() if shared else result)
            apart.append(taken[-1])
        else:
            apart.append(result)
    return apart

"""`Session`: runs any kind of model."""

from __future__ import annotations

from collections.abc import Callable

from looplift import interop
from looplift.ort.runner import InOnnxRuntime
from looplift.runtime import Session as _RuntimeSession
from looplift.runtime.errors import LoopliftError


class Session(_RuntimeSession):
    """Runs a model node by node, our ops by their kernels, every other loop in the reference interpreter.

    ``run(output_names | None, feeds)`` takes and gives numpy arrays, as onnxruntime's ``InferenceSession.run``.
    """

    def __init__(
        self,
        model: interop.ModelLike,
        device: str = "auto",
        *,
        definitions: bool = False,
        max_iterations: int | None = None,
        progress: Callable[[str, int, int | None], None] | None = None,
    ) -> None:
        """Plans the model.

        Args:
            model: a path, an ``onnx.ModelProto``, an ``onnx_ir.Model`` or an ``onnx_graphsurgeon.Graph``.
            device: ``"auto"`` (WebGPU where there is a hardware adapter), ``"numpy"``, ``"webgpu"``, or
                ``"onnxruntime"``: the whole model in ONNX Runtime, our ops by kernels in C.
            definitions: run the ops of domain ``ai.looplift`` by their definitions, not by their kernels.
            max_iterations: a bound for every loop; one that nothing ends runs so often, one that would run on is an
                error. Not with ``"onnxruntime"``.
            progress: called now and then during long loops with node name, iteration and limit (or None); never by
                ``"onnxruntime"``.

        Raises:
            LoopliftError: the model is not legal, has an unknown op, or the device is not there.
        """
        source = interop.read(model)
        source.require_data()
        model_ir = interop.to_ir(source)
        runner = None
        if device == "onnxruntime":
            if max_iterations is not None:
                raise LoopliftError("device 'onnxruntime' can't bound loops: leave out max_iterations")
            runner = InOnnxRuntime(source, model_ir, definitions=definitions)
        super().__init__(
            model_ir, device, definitions=definitions, max_iterations=max_iterations, progress=progress, runner=runner
        )

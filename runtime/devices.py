"""Where custom ops run: their numpy kernels, or WebGPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.values import as_value, host
from looplift.runtime.ops import DOMAIN, Op, all_ops

Kernel = Callable[..., tuple[Any, ...]]
RunKernel = Callable[[Op, Mapping[str, Any], Sequence[bool]], Kernel]


@dataclasses.dataclass(frozen=True)
class Device:
    """A way to run custom ops.

    Attributes:
        description: which device, and why it was chosen.
        run_kernel: op, attributes, which outputs are wanted -> the function that runs a node.
        keeps_values: results stay on the device until an op of the host needs them.
    """

    description: str
    run_kernel: RunKernel
    keeps_values: bool = False


def choose(requirement: str, model: ir.Model, *, definitions: bool) -> Device:
    """The device for a model.

    Args:
        requirement: ``numpy``, ``webgpu`` (any adapter) or ``auto`` (WebGPU if the model has a custom op with a
            WebGPU kernel and the adapter is real hardware).

    Raises:
        LoopliftError: there is no such device.
    """
    if requirement not in ("auto", "numpy", "webgpu"):
        raise LoopliftError(f"there is no device '{requirement}'; choose auto, numpy, webgpu or onnxruntime")
    if requirement == "numpy":
        return Device("numpy (asked for)", _on_numpy)
    if requirement == "webgpu":
        return Device(f"webgpu: {_webgpu_adapter('webgpu')} (asked for)", _kernels_on_webgpu(), keeps_values=True)
    if definitions or not _has_webgpu_op(model):
        return Device("numpy (no node has a WebGPU kernel)", _on_numpy)
    try:
        adapter = _webgpu_adapter("auto")
    except LoopliftError as error:
        return Device(f"numpy ({error})", _on_numpy)
    return Device(f"webgpu: {adapter} (real hardware)", _kernels_on_webgpu(auto=True), keeps_values=True)


def _has_webgpu_op(model: ir.Model) -> bool:
    nodes = [*model.graph.all_nodes(), *(node for f in model.functions.values() for node in f.all_nodes())]
    ours = {node.op_type for node in nodes if node.domain == DOMAIN} & set(all_ops())
    return any(all_ops()[name].package is not None for name in ours)


def _webgpu_adapter(requirement: Literal["auto", "webgpu"]) -> str:
    """Open the device and say which it is.

    Raises:
        LoopliftError: there is no adapter that meets the requirement.
    """
    from looplift.runtime import webgpu

    return webgpu.open_device(requirement).name


def _on_numpy(op: Op, attributes: Mapping[str, Any], wanted: Sequence[bool]) -> Kernel:
    return lambda *inputs: op.numpy([as_value(host(x)) for x in inputs], attributes, wanted)


def _kernels_on_webgpu(*, auto: bool = False) -> RunKernel:
    """WebGPU kernels; numpy where there is none for a case, with `auto` also for small ones and if the device fails."""
    from looplift.runtime import webgpu

    def kernel(op: Op, attributes: Mapping[str, Any], wanted: Sequence[bool]) -> Kernel:
        on_numpy = _on_numpy(op, attributes, wanted)

        def run(*inputs: Any) -> tuple[Any, ...]:
            results = webgpu.run_op(op, [as_value(x) for x in inputs], attributes, wanted, auto=auto)
            return on_numpy(*inputs) if results is None else results

        return run

    return kernel

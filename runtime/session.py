"""Runs a model: ``Session``, in the manner of onnxruntime's ``InferenceSession``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir

from looplift.runtime import devices
from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import types
from looplift.runtime.interpreter.control.loops import Progress
from looplift.runtime.interpreter.program import Program
from looplift.runtime.interpreter.values import Value, tensor_array
from looplift.runtime.ownership import handed_out


@dataclasses.dataclass(frozen=True)
class ValueInfo:
    """An input or output: its name, its type (``tensor(float)``) and its shape (int, name or None a dimension).

    A shape of None means that the model declares none.
    """

    name: str
    type: str | None
    shape: tuple[int | str | None, ...] | None


class Runner(Protocol):
    """What runs a session's model."""

    @property
    def device(self) -> str:
        """Where it runs, in words."""
        ...

    def run(self, arguments: Sequence[Value], wanted: Sequence[int]) -> list[Any]:
        """The outputs at the positions `wanted`, which belong to the caller alone, of an argument for each input.

        Raises:
            LoopliftError: a node fails.
        """
        ...

    def text(self) -> str:
        """The program that it runs, for people."""
        ...


@dataclasses.dataclass(frozen=True)
class _Interpreter:
    """Our own, which runs node by node."""

    device: str
    program: Program

    def run(self, arguments: Sequence[Value], wanted: Sequence[int]) -> list[Any]:
        """See `Runner`."""
        try:
            with np.errstate(all="ignore"):
                results = self.program.run(*arguments)
        except Exception as error:
            raise self.program.source.explain(error) from error
        found = [results[position] for position in wanted]
        del results
        return handed_out(found, arguments)

    def text(self) -> str:
        """See `Runner`."""
        return self.program.source.text()


class Session:
    """Runs a model node by node: custom ops by their kernels, Loop, Scan and If by the standard's rules.

    All other ops are numpy expressions or onnx's reference implementations.

    Args:
        model: an ``onnx_ir.Model``, a ``ModelProto`` or the path of a model file. It is not changed.
        device: ``auto`` (WebGPU where there is real hardware, else numpy), ``numpy``, or ``webgpu`` (any adapter).
        definitions: run the custom ops of domain ``ai.looplift`` by their definitions, not by their kernels.
        max_iterations: a bound for every Loop. One that nothing ends runs so often; one that would run on is an error.
        progress: called about ten times a second during a loop with the node's name, the iteration and the limit
            (None if only a condition ends the loop).
        extra: ops of the caller's own by domain and name: a function of the inputs that gives the one output, which is
            of the first input's type; it may give another each time.
        runner: what runs the model instead of the interpreter, to which all arguments but the model belong.

    Raises:
        LoopliftError: the model is not valid, an op is unknown, or there is no such device.
    """

    def __init__(
        self,
        model: ir.Model | onnx.ModelProto | str | os.PathLike[str],
        device: str = "auto",
        *,
        definitions: bool = False,
        max_iterations: int | None = None,
        progress: Progress | None = None,
        extra: Mapping[tuple[str, str], Callable[..., Any]] = MappingProxyType({}),
        runner: Runner | None = None,
    ) -> None:
        self._model = _read(model)
        self._inputs = [_info(value) for value in self._model.graph.inputs]
        self._outputs = [_info(value) for value in self._model.graph.outputs]
        self._defaults = {
            value.name: tensor_array(value.const_value)
            for value in self._model.graph.inputs
            if value.const_value is not None
        }
        if runner is None:
            chosen = devices.choose(device, self._model, definitions=definitions)
            program = Program(
                self._model,
                run_kernel=chosen.run_kernel,
                keeps_on_device=chosen.keeps_values,
                definitions=definitions,
                max_iterations=max_iterations,
                progress=progress,
                extra=extra,
            )
            runner = _Interpreter(chosen.description, program)
        self._runner: Runner = runner
        self.device = runner.device

    def get_inputs(self) -> list[ValueInfo]:
        """The model's inputs, those with default values included."""
        return list(self._inputs)

    def get_outputs(self) -> list[ValueInfo]:
        """The model's outputs."""
        return list(self._outputs)

    @property
    def source(self) -> str:
        """The Python program that runs the model, for people."""
        return self._runner.text()

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model.

        Args:
            output_names: which outputs to return, in this order; None for all.
            feeds: an array for each input, a list of arrays for a sequence, None for an empty optional.

        Returns:
            arrays, lists or None, of the types that the model declares; they share no memory with the feeds.

        Raises:
            LoopliftError: a feed does not fit the model, or a node fails; the message names it.
        """
        wanted = self._positions(output_names)
        return self._runner.run(self._arguments(feeds), wanted)

    def _positions(self, names: Sequence[str] | None) -> list[int]:
        known = {info.name: position for position, info in enumerate(self._outputs)}
        if names is None:
            return list(range(len(self._outputs)))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise LoopliftError(f"the model has no output '{unknown[0]}'; it has {', '.join(known)}")
        return [known[name] for name in names]

    def _arguments(self, feeds: Mapping[str, Any]) -> list[Value]:
        known = {info.name for info in self._inputs}
        unknown = [name for name in feeds if name not in known]
        if unknown:
            raise LoopliftError(f"the model has no input '{unknown[0]}'; it has {', '.join(sorted(known)) or 'none'}")
        arguments = []
        for info in self._inputs:
            if info.name in feeds:
                arguments.append(_checked(info, feeds[info.name]))
            elif info.name in self._defaults:
                arguments.append(self._defaults[info.name])
            else:
                raise LoopliftError(f"the input '{info.name}' ({info.type}) is missing")
        return arguments


def _read(model: ir.Model | onnx.ModelProto | str | os.PathLike[str]) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    what = "the model" if isinstance(model, onnx.ModelProto) else f"'{os.fspath(model)}'"
    try:
        if isinstance(model, onnx.ModelProto):
            return ir.serde.deserialize_model(_without_maps(model))
        read = ir.serde.deserialize_model(_without_maps(onnx.load(model, load_external_data=False)))
        ir.external_data.set_base_dir(read.graph, os.path.dirname(os.path.abspath(model)))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise LoopliftError(f"{what} is not a readable ONNX model: {reason}") from error
    return read


def _without_maps(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the types of values that hold maps, which onnx_ir can't represent; their values are lists."""
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not any(_holds_map(info.type) for info in infos):
        return model
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for info in (*copied.graph.input, *copied.graph.output, *copied.graph.value_info):
        if _holds_map(info.type):
            info.ClearField("type")
    return copied


def _holds_map(kind: onnx.TypeProto) -> bool:
    return kind.HasField("map_type") or (kind.HasField("sequence_type") and _holds_map(kind.sequence_type.elem_type))


def _info(value: ir.Value) -> ValueInfo:
    shape = None
    if value.shape is not None:
        shape = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return ValueInfo(value.name or "", types.type_string(value.type), shape)


def _checked(info: ValueInfo, given: Any) -> Value:
    """A feed as the interpreter wants it.

    Raises:
        LoopliftError: its type, rank or a fixed dimension is not what the model declares.
    """
    kind = info.type
    if kind is not None and kind.startswith("optional("):
        if given is None:
            return None
        kind = types.without_optional(kind)
    if kind is not None and kind.startswith("seq("):
        if not isinstance(given, list | tuple):
            raise LoopliftError(f"the input '{info.name}' is a {type(given).__name__}; the model wants {kind}, a list")
        element = ValueInfo(f"{info.name}[]", kind[4:-1], None)
        return [_checked(element, item) for item in given]
    if given is None or isinstance(given, list | tuple | dict):
        raise LoopliftError(f"the input '{info.name}' is a {type(given).__name__}; the model wants an array ({kind})")
    array = np.asarray(given)
    try:
        found = types.of_dtype(array.dtype)
    except TypeError:
        found = str(array.dtype)
    if kind is not None and found != kind:
        raise LoopliftError(f"the input '{info.name}' has dtype {array.dtype}; the model wants {kind}")
    if not _fits(array.shape, info.shape):
        raise LoopliftError(
            f"the input '{info.name}' has shape {list(array.shape)}; the model wants {_show(info.shape)}"
        )
    return array.astype(object) if found == types.STRING and array.dtype != object else array


def _fits(shape: tuple[int, ...], declared: tuple[int | str | None, ...] | None) -> bool:
    if declared is None:
        return True
    return len(shape) == len(declared) and all(
        not isinstance(want, int) or want == have for have, want in zip(shape, declared, strict=True)
    )


def _show(shape: tuple[int | str | None, ...] | None) -> str:
    return f"[{', '.join('?' if d is None else str(d) for d in shape or ())}]"

"""Models in and out: a path, ``ModelProto``, ``onnx_ir.Model`` or ``onnx_graphsurgeon.Graph``; the IR inside."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from looplift import bounds, doors, graphsurgeon, legality, storage
from looplift.passes.graph import clone as copies
from looplift.passes.graph import order
from looplift.passes.graph.assumed_dims import AssumedDims
from looplift.runtime.errors import LoopliftError

ModelLike = Any
"""A path, an ``onnx.ModelProto``, an ``onnx_ir.Model`` or an ``onnx_graphsurgeon.Graph``."""


@dataclasses.dataclass(frozen=True)
class Source:
    """What the user gave, read as far as needed: a proto (with the folder of its external data) or an IR model; and
    what the user says of its inputs' sizes."""

    given: ModelLike
    proto: onnx.ModelProto | None
    folder: str = ""
    assumed: AssumedDims = dataclasses.field(default_factory=AssumedDims)

    @property
    def name(self) -> str:
        """How to speak of the model in messages."""
        return os.fspath(self.given) if isinstance(self.given, str | os.PathLike) else "the model"

    def require_data(self) -> None:
        """Refuses a proto whose external data is not where it says (relative to the current folder).

        Raises:
            LoopliftError: a file is missing or too short.
        """
        if self.proto is not None and not self.folder:
            storage.require_data(self.proto, Path())

    def loop_free(self) -> bool:
        """Whether it is known that there is no Loop, no Scan and none of our nodes (not known of an IR model)."""
        if self.proto is None:
            return False
        has_loops = next(legality.loop_nodes(self.proto), None) is not None
        return not has_loops and not legality.touches_our_domain(self.proto)


def read(model: ModelLike) -> Source:
    """Takes any kind of model; reads the file if it is a path.

    Raises:
        LoopliftError: not a model, a file that is not ONNX, or a model that nests too deep or grows too long (see
            `bounds.require_bounded`).
    """
    if isinstance(model, str | os.PathLike):
        return Source(model, storage.read_proto(model), str(Path(model).absolute().parent))
    if isinstance(model, onnx.ModelProto):
        bounds.require_bounded(model)
        return Source(model, model)
    if isinstance(model, ir.Model):
        bounds.require_bounded(model)
        return Source(model, None)
    if graphsurgeon.is_graph(model):
        proto = graphsurgeon.to_proto(model)
        bounds.require_bounded(proto)
        return Source(model, proto)
    raise LoopliftError(
        f"a model is a path, an onnx.ModelProto, an onnx_ir.Model or an onnx_graphsurgeon.Graph, not {type(model)!r}"
    )


def to_ir(source: Source) -> ir.Model:
    """The model in the IR, nodes sorted and names distinct along every line of scopes.

    Weights are not copied: tensors refer to the proto's, or to the file they lie in. An IR model that was given is
    not changed; it is cloned if names or declared sizes have to be.

    Raises:
        LoopliftError: the model is not legal (see `legality.require_legal`), the IR can't hold it, or an IR model that
            was given is not sorted, or has no dims of such names.
    """
    if source.proto is None:
        given: ir.Model = source.given
        order.require_sorted(given)
        if not legality.shadowing_values(given) and not source.assumed:
            return given
        model = copies.clone(given)
    else:
        model = _import(source.proto, source.folder)
        copies.own_tensors(model)
    legality.unshadow(model)
    source.assumed.write_into(model)
    return model


def _import(proto: onnx.ModelProto, folder: str) -> ir.Model:
    unsorted = legality.require_legal(proto)
    doors.require_whole(proto)
    try:
        model = ir.from_proto(_without_maps(proto))
        if unsorted:
            order.sort(model)
    except (ir.serde.SerdeError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise LoopliftError(f"the model can't be read: {_root_cause(error)}") from error
    if folder:
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            ir.external_data.set_base_dir(graph, folder)
    return model


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


def schema_fault(source: Source) -> str:
    """What ``onnx.checker`` finds wrong with the model, types and shapes included, in one line; empty if nothing."""
    proto = ir.to_proto(source.given) if source.proto is None else source.proto
    try:
        onnx.checker.check_model(os.fspath(source.given) if source.folder else proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        return " ".join(str(error).split())[:300]
    return ""


def from_ir(result: ir.Model, source: Source) -> ModelLike:
    """The result as the kind that was given; a path gives a ``ModelProto``.

    External data of a path is taken into the proto if it fits (2 GB), else stays references relative to the path's
    folder.
    """
    if isinstance(source.given, ir.Model):
        return result
    if isinstance(source.given, str | os.PathLike) and storage.weight_bytes(result) < storage.LARGEST_PROTO:
        storage.load_initializers(result)
        storage.load_attributes(result)
    proto = to_proto(result, source)
    return graphsurgeon.from_proto(proto) if graphsurgeon.is_graph(source.given) else proto


def to_proto(result: ir.Model, source: Source) -> onnx.ModelProto:
    """The result as a proto, with what the IR could not hold put back.

    Raises:
        LoopliftError: the model holds something that can't be written, as some models that are not valid do.
    """
    try:
        proto = ir.to_proto(result)
    except (ir.serde.SerdeError, ValueError, TypeError) as error:
        raise LoopliftError(f"the model can't be written: {_root_cause(error)}") from error
    if source.proto is not None:
        _restore_maps(proto, source.proto)
    return proto


def unchanged(source: Source) -> ModelLike:
    """A model equal to the one given (see `Source.loop_free`), of the same kind, that shares nothing mutable."""
    if source.folder and source.proto is not None:
        return _with_data(source.proto, source.folder)
    if graphsurgeon.is_graph(source.given):
        return source.given.copy()
    copy = onnx.ModelProto()
    copy.CopyFrom(source.given)
    return copy


def _with_data(proto: onnx.ModelProto, folder: str) -> onnx.ModelProto:
    sizes = [_external_bytes(tensor) for tensor in storage.external_tensors(proto)]
    if sizes and proto.ByteSize() + sum(sizes) < storage.LARGEST_PROTO:
        try:
            onnx.load_external_data_for_model(proto, folder)
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise LoopliftError(f"can't read external data: {error}") from error
    return proto


def _external_bytes(tensor: onnx.TensorProto) -> int:
    return ir.serde.TensorProtoTensor(tensor).nbytes


# The IR has no map types (classifiers of ai.onnx.ml return them), so they wait outside.


def _has_map(type_proto: onnx.TypeProto) -> bool:
    kind = type_proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        element: onnx.TypeProto = getattr(type_proto, kind).elem_type
        return _has_map(element)
    return bool(kind == "map_type")


def _typed_infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.output, *graph.value_info)
    for node in graph.node:
        for _, inner in legality.subgraphs_of_proto(node):
            yield from _typed_infos(inner)


def _without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    if not any(_has_map(info.type) for info in _typed_infos(proto.graph)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for info in _typed_infos(copy.graph):
        if _has_map(info.type):
            info.ClearField("type")
    return copy


def _restore_maps(result: onnx.ModelProto, original: onnx.ModelProto) -> None:
    types: Mapping[str, onnx.TypeProto] = {
        info.name: info.type for info in (*original.graph.input, *original.graph.output) if _has_map(info.type)
    }
    for info in (*result.graph.input, *result.graph.output):
        if info.name in types:
            info.type.CopyFrom(types[info.name])

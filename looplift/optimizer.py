"""`optimize` and `explain`: a model of any kind through the pipeline."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar, overload

import onnx
import onnx_ir as ir

from looplift import interop, legality
from looplift.pages.sketch import figures_of
from looplift.passes import run_pipeline
from looplift.passes.graph.assumed_dims import AssumedDims
from looplift.passes.graph.names import fix_names
from looplift.passes.journal import Watch
from looplift.passes.lift.definitions import add_definitions
from looplift.passes.pipeline import TARGETS
from looplift.passes.report import Finding
from looplift.patterns.loops.unrolled import instead_of_loops
from looplift.report import Report
from looplift.runtime.errors import LoopliftError

DEFINITIONS = ("fast", "loop")

Model = TypeVar("Model")


@overload
def optimize(
    model: str | os.PathLike[str],
    target: str = ...,
    exact: bool = ...,
    definitions: str = ...,
    *,
    dims: Mapping[str, int] = ...,
    same_dims: Iterable[tuple[str, str]] = ...,
) -> onnx.ModelProto: ...
@overload
def optimize(
    model: Model,
    target: str = ...,
    exact: bool = ...,
    definitions: str = ...,
    *,
    dims: Mapping[str, int] = ...,
    same_dims: Iterable[tuple[str, str]] = ...,
) -> Model: ...
def optimize(
    model: interop.ModelLike,
    target: str = "kernel",
    exact: bool = True,
    definitions: str = "fast",
    *,
    dims: Mapping[str, int] = MappingProxyType({}),
    same_dims: Iterable[tuple[str, str]] = (),
) -> interop.ModelLike:
    """Lifts the loops of a model that are known recurrences; leaves the others as they are.

    Args:
        model: a path, an ``onnx.ModelProto``, an ``onnx_ir.Model`` or an ``onnx_graphsurgeon.Graph``. Not changed.
        target: ``"kernel"`` puts nodes of domain ``ai.looplift`` in, each with its definition in standard ops as a
            model-local function; ``"standard"`` uses only ops of ``ai.onnx``.
        exact: results keep the same bits. False also allows rewrites that round differently.
        definitions: ``"fast"`` defines the nodes by what ``"standard"`` writes in their place, where one form is right
            for all of an op; ``"loop"`` by a Loop, for engines whose CumSum adds in another order (docs/targets.md).
        dims: sizes that dims of the inputs will have, by name, or by input and axis (``"x:0"``). The result takes no
            inputs of other sizes. Where the model has no loops, it is given back as it is.
        same_dims: pairs of dims that will be equal. Nobody checks that when the result runs.

    Returns:
        A new model of the kind that was given; a path gives a ``ModelProto``, with external data taken in if that
        fits into one proto (2 GB).

    Raises:
        LoopliftError: the model is not legal ONNX, the target or the kind of definitions is not known, or the inputs
            have no such dims.
    """
    source = with_dims(interop.read(model), dims, same_dims)
    result, _ = lift(source, target=target, exact=exact, definitions=definitions)
    return interop.unchanged(source) if result is None else interop.from_ir(result, source)


def lift(
    source: interop.Source, *, target: str, exact: bool, definitions: str = "fast", watch: Watch | None = None
) -> tuple[ir.Model | None, Report]:
    """The lifted model in the IR and what was found; None for a model without loops, which need not be touched."""
    if definitions not in DEFINITIONS:
        raise LoopliftError(f"unknown definitions {definitions!r}; use one of {', '.join(map(repr, DEFINITIONS))}")
    _, after, findings = _lift(source, target=target, exact=exact, watch=watch)
    if definitions == "loop" and after is not None:
        add_definitions(after)
        fix_names(after)
    return after, Report(findings, source.name, instead=_instead(source, findings))


def _lift(
    source: interop.Source, *, target: str, exact: bool, watch: Watch | None = None
) -> tuple[ir.Model | None, ir.Model | None, tuple[Finding, ...]]:
    """The model before and after, and the findings; no models if there are no loops."""
    if target not in TARGETS:
        raise LoopliftError(f"unknown target {target!r}; use one of {', '.join(map(repr, TARGETS))}")
    if source.loop_free():
        return None, None, ()
    try:
        before = interop.to_ir(source)
        return before, *run_pipeline(before, exact=exact, target=target, watch=watch)
    except LoopliftError:
        raise
    except FileNotFoundError as error:
        raise LoopliftError(f"external data is missing: {error.filename}; pass the model by its path") from error
    except Exception as error:
        # Passes take for granted what the schemas of ops say. If that holds, the fault is ours: keep the traceback.
        if fault := interop.schema_fault(source):
            raise LoopliftError(f"the model is not valid ONNX: {fault}") from error
        raise


def with_dims(source: interop.Source, dims: Mapping[str, int], same_dims: Iterable[tuple[str, str]]) -> interop.Source:
    """The source with what is said of its inputs' sizes."""
    return dataclasses.replace(source, assumed=AssumedDims(dict(dims), tuple(same_dims)))


def explain(
    model: interop.ModelLike,
    target: str = "kernel",
    exact: bool = True,
    *,
    dims: Mapping[str, int] = MappingProxyType({}),
    same_dims: Iterable[tuple[str, str]] = (),
) -> Report:
    """Says for every Loop and Scan what it computes, and whether `optimize` lifts it or why not.

    Args:
        model: as for `optimize`. Not changed.
        target: as for `optimize`.
        exact: as for `optimize`.
        dims: as for `optimize`.
        same_dims: as for `optimize`.

    Returns:
        One ``Finding`` per loop; ``str()`` gives a text. A model that is not legal gives a report too: its
        ``problem`` says what is wrong, and each loop is listed as left.

    Raises:
        LoopliftError: a file that can't be read, something that is not a model, or dims that its inputs don't have.
    """
    source = with_dims(interop.read(model), dims, same_dims)
    try:
        before, after, findings = _lift(source, target=target, exact=exact)
    except LoopliftError as error:
        if source.proto is None or target not in TARGETS or source.assumed:
            raise
        return _unread(source.proto, source.name, str(error))
    figures = figures_of(findings, before, after) if before is not None and after is not None else ()
    return Report(findings, source.name, instead=_instead(source, findings), figures=figures)


def _instead(source: interop.Source, findings: tuple[Finding, ...]) -> str:
    if findings or source.proto is None:
        return ""
    return instead_of_loops([node.op_type for node in source.proto.graph.node])


def _unread(model: onnx.ModelProto, name: str, problem: str) -> Report:
    findings = tuple(
        Finding(loop.node.name, loop.node.op_type, loop.path, lifted=False, reason=f"the model is refused: {problem}")
        for loop in legality.loop_nodes(model)
    )
    return Report(findings, name, problem)

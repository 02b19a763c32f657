"""Makes a differing model smaller: outputs, nodes, carries and inputs go while the difference stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import onnx

from programs.check import Difference, check, fault
from programs.generate import Program


def shrink(program: Program, keeps: Callable[[Program], bool]) -> Program:
    """The smallest program found that still has a property; only legal models are tried, if the first is legal."""
    legal = not fault(program.model)
    position = failed = 0
    while True:
        options = list(candidates(program.model))
        if failed >= len(options):
            return program
        smaller = _with(program, options[position % len(options)])
        if not (legal and fault(smaller.model)) and keeps(smaller):
            program, failed = smaller, 0
        else:
            position, failed = position + 1, failed + 1


def still(difference: Difference) -> Callable[[Program], bool]:
    """Whether a program differs in the same way: kind, target, engine, inputs, and class of error if optimizing raises."""
    wanted = _manner(difference)
    return lambda program: any(_manner(found) == wanted for found in check(program, difference).differences)


def _manner(found: Difference) -> tuple[str, ...]:
    raised = found.message.split(":")[0] if found.kind == "optimize" else ""
    return found.kind, found.target, found.engine, found.case, raised


def _with(program: Program, model: onnx.ModelProto) -> Program:
    """The model with those of the inputs that it still has."""
    names = {value.name for value in model.graph.input}
    feeds = {case: {k: v for k, v in feeds.items() if k in names} for case, feeds in program.feeds.items()}
    return dataclasses.replace(program, model=model, feeds=feeds)


def candidates(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Models with something less, largest steps first."""
    for index in range(len(model.graph.output)):
        if len(model.graph.output) > 1:
            yield _edited(model, lambda copy, k=index: copy.graph.output.pop(k))
    for path in range(sum(1 for _ in _graphs(model))):
        graph = list(_graphs(model))[path]
        for index in range(len(graph.node)):
            yield from _without(model, path, index)
        for index in range(len(graph.initializer) if isinstance(graph, onnx.GraphProto) else 0):
            yield _edited(model, lambda copy, p=path, k=index: list(_graphs(copy))[p].initializer.pop(k))
    for index in range(len(model.functions)):
        yield _edited(model, lambda copy, k=index: copy.functions.pop(k))
    for index in range(len(model.graph.input)):
        yield _edited(model, lambda copy, k=index: copy.graph.input.pop(k))


def _edited(model: onnx.ModelProto, edit: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    edit(copy)
    return copy


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    todo: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while todo:
        graph = todo.pop()
        yield graph
        todo += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]


def _without(model: onnx.ModelProto, path: int, index: int) -> Iterator[onnx.ModelProto]:
    """Without a node (its readers read one of its inputs), and without a carry or a stack of it."""
    node = list(_graphs(model))[path].node[index]
    for source in ["", *dict.fromkeys(node.input)]:

        def drop(copy: onnx.ModelProto, source: str = source) -> None:
            nodes = list(_graphs(copy))[path].node
            for output in nodes[index].output:
                _rename(copy, output, source)
            del nodes[index]

        yield _edited(model, drop)
    if node.op_type == "If":
        for k in range(len(node.output) if len(node.output) > 1 else 0):
            yield _edited(model, lambda copy, k=k: _drop_branches(list(_graphs(copy))[path].node[index], k))
    if node.op_type == "Loop":
        carries = len(node.input) - 2
        for k in range(len(node.output)):
            yield _edited(
                model, lambda copy, k=k: _drop_output(list(_graphs(copy))[path].node[index], k, carries, 1, 2)
            )
    if node.op_type == "Scan":
        states = len(node.input) - next(a.i for a in node.attribute if a.name == "num_scan_inputs")
        for k in range(len(node.output)):
            yield _edited(model, lambda copy, k=k: _drop_output(list(_graphs(copy))[path].node[index], k, states, 0, 0))


def _drop_output(node: onnx.NodeProto, k: int, states: int, first_output: int, first_input: int) -> None:
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    del node.output[k]
    del body.output[first_output + k]
    if k < states:
        del node.input[first_input + k]
        del body.input[first_input + k]
    for attribute in node.attribute:
        if attribute.name.startswith("scan_output_") and k >= states:
            del attribute.ints[k - states]


def _drop_branches(node: onnx.NodeProto, k: int) -> None:
    del node.output[k]
    for attribute in node.attribute:
        del attribute.g.output[k]


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    if not new:
        return
    for graph in _graphs(model):
        for node in graph.node:
            for k, name in enumerate(node.input):
                if name == old:
                    node.input[k] = new

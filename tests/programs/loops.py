"""Nodes that hold graphs: Loop, Scan, If, and calls of functions with loops in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from programs.block import Block, Dim, Var, allows
from programs.ordinary import ORDINARY, binary, read_row
from programs.updates import Grown, grow, update

DOMAIN = "random"
DEEPEST = 2


def fill(block: Block, count: int) -> None:
    """Writes up to so many nodes, some with graphs in them."""
    writer = block.writer
    for _ in range(count):
        if block.depth < DEEPEST and writer.chance(0.12):
            make = writer.random.choices((loop, scan, branch, call), (4, 2, 3, 2))
            make[0](block)
        else:
            writer.random.choices(list(ORDINARY), list(ORDINARY.values()))[0](block)


def loop(block: Block) -> list[Var] | None:
    """A Loop: counted, ended by a test, or both; carries that read each other, stacks, lists, grown tensors."""
    writer = block.writer
    limit, trips = trip_count(block)
    start = start_condition(block, limit)
    starts = initial_values(block)
    body = block.inner()
    shape = (1,) if writer.chance(0.05) else ()
    index = Var(writer.fresh("i"), T.INT64, shape, "iteration", trips)
    keep = Var(writer.fresh("c"), T.BOOL, ())
    states = [Var(writer.fresh("p"), v.dtype, v.dims) for v in starts]
    steps = [widening(block, v) if trips > 1 and writer.chance(0.06) else None for v in starts]
    states = [widened(block, state, step) for state, step in zip(states, steps, strict=True)]
    body.own += [index, keep, *states]
    series = body.find(lambda v: v.role == "series" and writer.size(v.dims[0]) >= trips, local=0)
    if series is not None and writer.chance(0.7):
        read_row(body, series, index)
    fill(body, writer.random.randint(0, 3))
    updated = [
        update(body, state, states) or state
        if step is None
        else body.add("Add", [state, step], state.dtype, state.dims)
        for state, step in zip(states, steps, strict=True)
    ]
    stacked = writer.some([v for v in body.own if v not in states or v.dims == starts[states.index(v)].dims], 0, 3)
    test = count(block, body, starts, states, updated) if writer.chance(0.15) else end_test(body, index, keep, limit)
    row = body.find(lambda v: len(v.dims) < 2 and v != keep) if writer.chance(0.2) else None
    grown = grow(block, body, row, trips) if row is not None else None
    outs = outputs_of(body, [test, *updated, *stacked])
    inputs = [index.info(), keep.info("type" if start and writer.chance(0.06) else "symbols")]
    wide = {v.name for v, step in zip(states, steps, strict=False) if step is not None}
    inputs += [v.info("type" if v.name in wide else writer.carried_style()) for v in states]
    declared = [outs[0].info()] + [v.info(writer.carried_style()) for v in outs[1 : 1 + len(states)]]
    declared += [v.info(writer.style()) for v in outs[1 + len(states) :]]
    finals = [Var(writer.fresh("v"), v.dtype, v.dims) for v in states]
    stacks = [Var(writer.fresh("s"), v.dtype, (writer.unknown(trips), *v.dims), "series") for v in stacked]
    if grown is not None:
        inputs.append(grown.declared[0])
        declared.insert(1 + len(states), grown.declared[1])
    writer.used[f"carries: {len(states)}"] += 1
    initial = [limit, start, *(v.name for v in starts), *([grown.initial] if grown else [])]
    names = [v.name for v in finals] + ([writer.fresh("g")] if grown else []) + [v.name for v in stacks]
    node = helper.make_node("Loop", initial, names, name=writer.fresh("loop"), body=body.graph(inputs, declared))
    return finish(block, node, finals + stacks, grown, names[len(finals)] if grown else "")


def widening(block: Block, start: Var) -> Var | None:
    """What makes a state larger when it is added for the first time, and not again."""
    writer = block.writer

    def widens(var: Var) -> bool:
        both = writer.broadcast(var, start)
        return var.dtype == start.dtype and both is not None and tuple(map(writer.size, both)) != writer.shape(start)

    return block.find(lambda v: allows("Add", writer.opset, v.dtype) and widens(v))


def widened(block: Block, state: Var, step: Var | None) -> Var:
    """The state as it is from the second iteration on."""
    dims = None if step is None else block.writer.broadcast(state, step)
    if dims is None:
        return state
    block.writer.used["widening state"] += 1
    return Var(state.name, state.dtype, tuple(block.writer.unknown(block.writer.size(d)) for d in dims))


def finish(block: Block, node: onnx.NodeProto, outs: list[Var], grown: Grown | None, last: str) -> list[Var]:
    """Puts a node with graphs into the block."""
    block.nodes.append(node)
    block.own += outs
    block.writer.used[node.op_type] += 1
    block.writer.used[f"depth {block.depth}"] += 1
    if grown is not None:
        copy = ("ConcatFromSequence", {"axis": 0, "new_axis": 1}) if grown.is_list else ("Identity", {})
        block.nodes.append(helper.make_node(copy[0], [last], [grown.joined.name], **copy[1]))
        block.own.append(grown.joined)
        outs = [*outs, grown.joined]
    return outs


def trip_count(block: Block) -> tuple[str, int]:
    """The limit's name, empty if there is none, and how many iterations there are with the first inputs."""
    writer = block.writer
    kind = writer.random.choices(("input", "constant", "none", "largest", "shape", "computed"), (6, 4, 2, 1, 2, 1))[0]
    series = block.find(lambda v: v.role == "series" and len(v.dims) > 0)
    given = block.find(lambda v: v.role == "limit")
    if kind == "input" and given is not None:
        return given.name, 4
    if kind == "shape" and series is not None:
        sizes = block.add("Shape", [series], T.INT64, (len(series.dims),))
        return block.add("Gather", [sizes, block.ints(0)], T.INT64, (1,), axis=0).name, writer.size(series.dims[0])
    if kind == "computed" and given is not None:
        less = binary(block, "Sub", given, block.constant(1, T.INT64))
        if less is not None:
            return less.name, 3
    if kind == "none":
        return "", 3
    trips = writer.random.choice((0, 1, 2, 3, 4))
    value = np.iinfo(np.int64).max if kind == "largest" else trips
    limit = block.constant(np.full((1,) if writer.chance(0.2) else (), value), T.INT64).name
    if kind == "largest":
        block.root.endless.add(limit)
    return limit, trips


def start_condition(block: Block, limit: str) -> str:
    """The cond of the node: absent, true, an input, computed."""
    writer = block.writer
    if not limit or writer.chance(0.3):  # without a limit only the test ends it
        return block.constant(True, T.BOOL).name
    flag = block.find(lambda v: v.dtype == T.BOOL and v.dims in ((), (1,)))
    return flag.name if flag is not None and writer.chance(0.5) else ""


def count(block: Block, body: Block, starts: list[Var], states: list[Var], updated: list[Var]) -> Var:
    """A while loop: one more carry that counts, and the test of it that ends the loop."""
    writer = block.writer
    limit = block.find(lambda v: v.role == "limit" and v.dims == ())
    dtype = T.INT64 if writer.opset >= 9 and writer.chance(0.7) else T.FLOAT
    bound = (
        limit
        if limit is not None and dtype == T.INT64 and writer.chance(0.6)
        else body.constant(writer.random.choice((1, 2, 4)), dtype)
    )
    state = Var(writer.fresh("j"), dtype, ())
    following = body.add("Add", [state, body.constant(writer.random.choice((1, 1, 2)), dtype)], dtype, ())
    starts.append(block.constant(writer.random.choice((0, 0, 1, -1)), dtype))
    states.append(state)
    updated.append(following)
    writer.used["while"] += 1
    return body.add("Less", [following if writer.chance(0.8) else state, bound], T.BOOL, ())


def end_test(body: Block, index: Var, keep: Var, limit: str) -> Var:
    """The cond of the body: what it was, true, or a test of the iteration."""
    writer = body.writer
    endless = not limit or limit in body.root.endless
    kind = writer.random.choice(("kept", "kept", "true", "less", "both", "computed"))
    if endless or kind in ("less", "both"):
        dtype = T.INT64 if writer.opset >= 9 else T.FLOAT
        bound = body.constant(np.full(index.dims, writer.random.choice((1, 2, 2, 3))), dtype)
        number = index if dtype == T.INT64 else body.add("Cast", [index], dtype, index.dims, to=dtype)
        test = body.add("Less", [number, bound], T.BOOL, index.dims)
        if index.dims:
            test = body.add("Reshape", [test, body.constant(np.zeros(0, np.int64), T.INT64)], T.BOOL, ())
        return body.add("And", [test, keep], T.BOOL, ()) if kind == "both" else test
    if kind == "true":
        return body.constant(True, T.BOOL)
    flag = body.find(lambda v: v.dtype == T.BOOL and v.dims == ())
    return flag if kind == "computed" and flag is not None and writer.chance(0.5) else keep


def initial_values(block: Block) -> list[Var]:
    """One to four values that begin the carries; one may begin two."""
    writer = block.writer
    main = [v for v in block.scope if v.dtype == writer.main and v.role != "series"]
    count = writer.random.choices((1, 2, 3, 4), (4, 4, 2, 1))[0]
    own = [v for v in block.own if v in main] if block.depth else []
    main = own if own and writer.chance(0.5) else main
    values = [writer.pick(main) if main and writer.chance(0.75) else writer.pick(block.scope) for _ in range(count)]
    return [v if v is not None and writer.chance(0.9) else block.number(writer.main) for v in values]


def outputs_of(body: Block, wanted: list[Var]) -> list[Var]:
    """The values, each under a name of its own that a node of the body gives."""
    outs: list[Var] = []
    for var in wanted:
        out = body.result(var)
        outs.append(out if out not in outs else body.add("Identity", [var], var.dtype, var.dims))
    return outs


def scan(block: Block) -> list[Var] | None:
    """A Scan over one or two series, in any direction, along any axis."""
    writer = block.writer
    first = block.find(lambda v: len(v.dims) > 0 and writer.size(v.dims[0]) > 0, local=0.3)
    if writer.opset < 9:
        return batched_scan(block)
    if first is None:
        return None
    alike = [v for v in block.scope if v.dims[:1] == first.dims[:1]]
    xs = [first, *writer.some(alike, 0, 1)]
    starts = initial_values(block)[: writer.random.randint(0, 2)]
    body = block.inner()
    states = [Var(writer.fresh("p"), v.dtype, v.dims) for v in starts]
    rows = [Var(writer.fresh("x"), v.dtype, v.dims[1:]) for v in xs]
    body.own += [*states, *rows]
    fill(body, writer.random.randint(0, 3))
    updated = [update(body, state, states) or state for state in states]
    stacked = writer.some(body.own, 0 if states else 1, 2)
    outs = outputs_of(body, [*updated, *stacked])
    declared = [[v.info(writer.style(shaped=True)) for v in values] for values in ((*states, *rows), outs)]
    graph = body.graph(*declared)
    finals = [Var(writer.fresh("v"), v.dtype, v.dims) for v in starts]
    stacks = [Var(writer.fresh("s"), v.dtype, (first.dims[0], *v.dims), "series") for v in stacked]
    attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": len(xs)}
    if writer.chance(0.3):
        attributes["scan_input_directions"] = [writer.random.randint(0, 1) for _ in xs]
    if stacks and writer.chance(0.3):
        attributes["scan_output_directions"] = [writer.random.randint(0, 1) for _ in stacks]
    numbers = all(isinstance(d, int) for v in stacks for d in v.dims[1:])
    if stacks and numbers and writer.chance(0.4):  # without elements this ends ONNX Runtime's process
        axes = [writer.random.randint(0, len(v.dims) - 1) for v in stacks]
        attributes["scan_output_axes"] = axes
        stacks = [moved(v, axis) for v, axis in zip(stacks, axes, strict=True)]
    names = [v.name for v in (*starts, *xs)]
    node = helper.make_node(
        "Scan", names, [v.name for v in (*finals, *stacks)], name=writer.fresh("scan"), **attributes
    )
    return finish(block, node, finals + stacks, None, "")


def batched_scan(block: Block) -> list[Var] | None:
    """A Scan of version 8: over the second axis, for each element of a batch."""
    writer = block.writer
    series = block.find(lambda v: len(v.dims) > 1)
    state = series and block.find(lambda v: v.dims[:1] == series.dims[:1])
    if series is None or state is None:
        return None
    body = block.inner()
    before = Var(writer.fresh("p"), state.dtype, state.dims[1:])
    row = Var(writer.fresh("x"), series.dtype, series.dims[2:])
    body.own += [before, row]
    fill(body, writer.random.randint(0, 2))
    outs = outputs_of(body, [update(body, before, [before]) or before, *writer.some(body.own, 1, 2)])
    graph = body.graph([before.info(), row.info()], [v.info() for v in outs])
    results = [Var(writer.fresh("v"), state.dtype, state.dims)]
    results += [Var(writer.fresh("s"), v.dtype, (*series.dims[:2], *v.dims)) for v in outs[1:]]
    names = ["", state.name, series.name]
    node = helper.make_node(
        "Scan", names, [v.name for v in results], name=writer.fresh("scan"), body=graph, num_scan_inputs=1
    )
    writer.used["Scan-8"] += 1
    return finish(block, node, results, None, "")


def moved(stack: Var, axis: int) -> Var:
    """The stack with its first dim at this axis."""
    dims: list[Dim] = list(stack.dims[1:])
    dims.insert(axis, stack.dims[0])
    return Var(stack.name, stack.dtype, tuple(dims), "" if axis else "series")


def branch(block: Block) -> list[Var] | None:
    """An If whose branches give values of the same types; they may hold loops."""
    writer = block.writer
    flag = block.find(lambda v: v.dtype == T.BOOL and v.dims == ())
    wanted = writer.some(block.scope, 1, 2)
    if flag is None or not wanted:
        return None
    graphs = {}
    for name in ("then_branch", "else_branch"):
        inner = block.inner()
        fill(inner, writer.random.randint(0, 3))
        alike = [inner.find(lambda v, w=want: (v.dtype, v.dims) == (w.dtype, w.dims)) or want for want in wanted]
        outs = outputs_of(inner, alike)
        graphs[name] = inner.graph([], [v.info(writer.style()) for v in outs])
    outs = [Var(writer.fresh("b"), v.dtype, v.dims) for v in wanted]
    node = helper.make_node("If", [flag.name], [v.name for v in outs], name=writer.fresh("if"), **graphs)
    return finish(block, node, outs, None, "")


def call(block: Block) -> list[Var] | None:
    """A call of a function with a loop in it, of one that is there if it takes what is in scope."""
    writer = block.writer
    for function, inputs, outputs in writer.functions:
        found = [block.find(lambda v, w=want: (v.dtype, v.dims) == (w.dtype, w.dims)) for want in inputs]
        if all(v is not None for v in found) and writer.chance(0.7):
            return _called(block, function, [v for v in found if v is not None], outputs)
    given = [
        v for v in (block.find(lambda v: v.role == "limit"), block.find(lambda v: v.role == "series")) if v is not None
    ]
    arguments = [*given, *writer.some(block.scope, 1, 3)]
    root = Block(writer)
    root.holds_initializers = False
    root.depth = block.depth + 1
    root.own = [Var(writer.fresh("f"), v.dtype, v.dims, v.role) for v in arguments]
    inputs = list(root.own)
    fill(root, writer.random.randint(0, 2))
    loop(root)
    fill(root, writer.random.randint(0, 1))
    made = [v for v in root.own if any(v.name in node.output for node in root.nodes)]
    outputs = list(dict.fromkeys(writer.some(made[-4:], 1, 3)))
    imports = [helper.make_opsetid("", writer.opset), helper.make_opsetid(DOMAIN, 1)]
    name = writer.fresh("fun")
    function = helper.make_function(
        DOMAIN, name, [v.name for v in inputs], [v.name for v in outputs], root.nodes, imports
    )
    writer.functions.append((function, inputs, outputs))
    return _called(block, function, arguments, outputs)


def _called(block: Block, function: onnx.FunctionProto, arguments: list[Var], outputs: list[Var]) -> list[Var]:
    outs = [Var(block.writer.fresh("r"), v.dtype, v.dims, v.role) for v in outputs]
    block.writer.used["call"] += 1
    block.nodes.append(
        helper.make_node(function.name, [v.name for v in arguments], [v.name for v in outs], domain=DOMAIN)
    )
    block.own += outs
    return outs

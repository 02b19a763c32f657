"""Emits If, whose branches become functions, and SequenceMap."""

from __future__ import annotations

import onnx

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import operators, types
from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.control import bodies, loops
from looplift.runtime.interpreter.scope import Planned, Slot
from looplift.runtime.interpreter.source import Line, releasing, releasing_before


def _define_branch(call: Call, name: str) -> tuple[str, list[Slot], Planned]:
    """Emit one branch of an If as a function of its captures."""
    program, graph = call.program, bodies.graph_of(call, name)
    if graph.inputs:
        raise LoopliftError(f"{name} has inputs; a branch takes none")
    frame = call.frame.inside(call.node, name)
    captured = program.captured(frame, graph)
    planned = program.plan(frame, graph)
    last = Line(
        f"return {bodies.tuple_of(s.host for s in planned.outputs)}",
        call.site,
        tuple(s.name for s in planned.outputs),
    )
    function = program.source.fresh(name)
    parameters = [s.name for s in captured]
    program.source.define(function, parameters, call.site, releasing_before(planned.lines, last))
    return f"{function}({', '.join(s.host for s in captured)})", captured, planned


def emit_if(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """If: the branch that the condition, one element, chooses."""
    operators.check_inputs(schema, call.input_types())
    branches = [_define_branch(call, name) for name in ("then_branch", "else_branch")]
    for (_, _, planned), name in zip(branches, ("then_branch", "else_branch"), strict=True):
        if len(planned.outputs) != len(call.node.outputs):
            raise LoopliftError(f"{name} has {len(planned.outputs)} outputs, the node {len(call.node.outputs)}")
    (then, then_captures, then_plan), (other, other_captures, other_plan) = branches
    kinds = []
    for a, b in zip(then_plan.outputs, other_plan.outputs, strict=True):
        if not types.agree(a.type, b.type):
            raise LoopliftError(f"the branches give {a.type} and {b.type} for the same output")
        kinds.append(types.merge(a.type, b.type))
    condition = call.inputs[0]
    reads = dict.fromkeys(s.name for s in (condition, *then_captures, *other_captures))
    random = any(line.random for plan in (then_plan, other_plan) for line in plan.lines)
    expression = f"{then} if truth({condition.host}) else {other}"
    return [call.assign(expression, kinds, reads=tuple(reads), random=random, unpack=True)]


def emit_sequence_map(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """SequenceMap: the body on each element of the first sequence, and of the others beside it."""
    program, node, fresh, site = call.program, call.node, call.program.source.fresh, call.site
    graph = bodies.graph_of(call, "body")
    operators.check_inputs(schema, call.input_types())
    if len(graph.inputs) != len(call.inputs) or len(graph.outputs) != len(node.outputs):
        raise LoopliftError(
            f"the body has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, "
            f"the node {len(call.inputs)} and {len(node.outputs)}"
        )
    kinds = [slot.type for slot in call.inputs]
    is_sequence = [True, *[kind is not None and kind.startswith("seq(") for kind in kinds[1:]]]
    element_kinds = [k[4:-1] if k and seq else k for k, seq in zip(kinds, is_sequence, strict=True)]
    elements = [
        bodies.input_slot(call, value, kind, "element") for value, kind in zip(graph.inputs, element_kinds, strict=True)
    ]
    frame = call.frame.inside(node, "body")
    captured = program.captured(frame, graph)
    body = bodies.plan_body(call, frame, graph, [s.name for s, seq in zip(elements, is_sequence, strict=True) if seq])
    program.source.use(loops.elements_of)
    given = [fresh("seq") if seq else s.name for s, seq in zip(elements, is_sequence, strict=True)]
    walked = [(s.name, g) for s, g, seq in zip(elements, given, is_sequence, strict=True) if seq]
    lists = [fresh("list") for _ in node.outputs]
    inside = [
        *body.inside,
        *[Line(f"{n}.append(as_value({s.host}))", site, (s.name,)) for n, s in zip(lists, body.outputs, strict=True)],
    ]
    lines = [
        Line(f"if not len({given[0]}): return {bodies.tuple_of(['[]'] * len(lists))}", site),
        *[Line(f"{name} = []", site) for name in lists],
        *body.before,
        Line(
            f"for k, ({''.join(f'{n}, ' for n, _ in walked)}) in elements_of({', '.join(g for _, g in walked)}):", site
        ),
        *[line.indented() for line in releasing(inside, keep=())],
        Line(f"return {bodies.tuple_of(lists)}", site),
    ]
    function = fresh("map_body")
    program.source.define(function, [*given, *[s.name for s in captured]], site, lines)
    out_kinds = [f"seq({s.type})" if s.type else None for s in body.outputs]
    return [bodies.call_line(call, function, [*call.inputs, *captured], out_kinds, len(out_kinds), body.random)]

"""Emits Loop, Scan, If and SequenceMap as Python functions, one for each graph.

A body's lines stand directly inside the ``for`` statement. Lines that depend on nothing that changes from one
iteration to the next stand before it, where they run only if the loop runs at least once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import loops, operators, scans, shapes, types
from looplift.runtime.interpreter.scope import ABSENT, Frame, Planned, Slot, captures
from looplift.runtime.interpreter.source import Line, Site, releasing

if TYPE_CHECKING:
    from looplift.runtime.interpreter.program import Call


def releasing_before(lines: Sequence[Line], last: Line) -> list[Line]:
    """The lines with releases, then the last line, whose variables are kept for it."""
    return [*releasing(lines, keep=last.reads), last]


def _graph(call: Call, name: str) -> ir.Graph:
    if name not in call.attributes:
        raise LoopliftError(f"the attribute '{name}' is missing")
    return call.attributes[name].as_graph()


def _expression(slot: Slot) -> str:
    return f"host({slot.name})" if slot.on_device else slot.name


def _outputs_tuple(expressions: Iterable[str]) -> str:
    return f"({''.join(f'{e}, ' for e in expressions)})"


def _define_branch(call: Call, name: str) -> tuple[str, list[Slot], Planned]:
    """Emit one branch of an If as a function of its captures."""
    program, graph = call.program, _graph(call, name)
    if graph.inputs:
        raise LoopliftError(f"{name} has inputs; a branch takes none")
    frame = call.frame.inside(call.node, name)
    captured = program.captured(frame, graph)
    planned = program.plan(frame, graph)
    last = Line(
        f"return {_outputs_tuple(map(_expression, planned.outputs))}", call.site, tuple(s.name for s in planned.outputs)
    )
    function = program.source.fresh(name)
    parameters = [s.name for s in captured]
    program.source.define(function, parameters, call.site, releasing_before(planned.lines, last))
    return f"{function}({', '.join(map(_expression, captured))})", captured, planned


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
    expression = f"{then} if truth({_expression(condition)}) else {other}"
    return [call.assign(expression, kinds, reads=tuple(reads), random=random, unpack=True)]


@dataclasses.dataclass(frozen=True)
class Body:
    """A planned body: lines before the loop, lines inside it, and what it gives."""

    before: list[Line]
    inside: list[Line]
    outputs: list[Slot]
    random: bool


def _plan_body(call: Call, frame: Frame, graph: ir.Graph, changing: Iterable[str]) -> Body:
    """Plan a body and part its lines by whether they depend on variables that change between iterations."""
    planned = call.program.plan(frame, graph)
    changes = set(changing)
    before: list[Line] = []
    inside: list[Line] = []
    for line in planned.lines:
        moves = line.random or not changes.isdisjoint(line.reads)
        (inside if moves else before).append(line)
        if moves:
            changes.update(line.writes)
    return Body(before, inside, planned.outputs, any(line.random for line in planned.lines))


def _input_slot(call: Call, value: ir.Value, actual: str | None, role: str) -> Slot:
    """A slot for a body input, with the type of what it is given.

    Raises:
        LoopliftError: the body declares another type.
    """
    declared = types.type_string(value.type)
    if not types.agree(declared, actual):
        raise LoopliftError(f"the body declares its input '{value.name}' as {declared}, but the {role} is {actual}")
    slot = Slot(call.program.source.fresh("v"), types.merge(declared, actual) or actual or declared)
    call.frame.slots[value] = slot
    return slot


def _check_states(graph_outputs: Sequence[ir.Value], given: Sequence[Slot], states: Sequence[Slot]) -> None:
    for value, new, old in zip(graph_outputs, given, states, strict=True):
        if not types.agree(new.type, old.type):
            raise LoopliftError(f"the body changes the carried value '{value.name}' from {old.type} to {new.type}")


def _check_rows(graph_outputs: Sequence[ir.Value], given: Sequence[Slot]) -> None:
    for value, slot in zip(graph_outputs, given, strict=True):
        if slot.type is not None and not types.is_tensor(slot.type):
            raise LoopliftError(f"the scan output '{value.name}' is {slot.type}; only tensors can be stacked")


@dataclasses.dataclass(frozen=True)
class Stack:
    """The variables of one scan output."""

    rows: str
    shape: str
    slot: Slot
    name: str

    def store(self, site: Site, capacity: str, *, grows: bool) -> list[Line]:
        """Lines that store this iteration's row, making the rows on the first and checking the shape on others."""
        row = _expression(self.slot)
        target = f"{self.rows}[k, ...]" if self.slot.type in (None, types.STRING) else f"{self.rows}[k]"
        new = f"{self.rows} = make_rows({self.rows}, k, {row}, {capacity}, budget, {self.name!r})"
        lines = [
            Line(f"if {row}.shape != {self.shape}: {new}; {self.shape} = {self.rows}.shape[1:]", site),
            Line(f"{target} = {row}", site, (self.slot.name,)),
        ]
        if grows:
            more = f"{self.rows} = grow_rows({self.rows}, budget, {self.name!r})"
            lines.insert(1, Line(f"if k == len({self.rows}): {more}", site))
        if self.slot.type is None:
            lines.insert(1, Line(f"check_dtype({self.rows}, {row}, {self.name!r})", site))
        return lines


def _stacks(call: Call, graph_outputs: Sequence[ir.Value], slots: Sequence[Slot], used: Sequence[bool]) -> list[Stack]:
    fresh = call.program.source.fresh
    return [
        Stack(fresh("rows"), fresh("shape"), slot, value.name or "")
        for value, slot, wanted in zip(graph_outputs, slots, used, strict=True)
        if wanted
    ]


def _spread(stacks: Sequence[Stack], used: Sequence[bool], text: Callable[[Stack], str]) -> list[str]:
    """An expression for each scan output: `text` of its stack, ``None`` where it is unused."""
    remaining = iter(stacks)
    return [text(next(remaining)) if wanted else "None" for wanted in used]


def _body_attribute(call: Call, used_rows: Sequence[bool], states: int) -> ir.Graph:
    graph = _graph(call, "body")
    if len(call.node.outputs) > len(used_rows) + states:
        raise LoopliftError(f"the node has {len(call.node.outputs)} outputs, its body gives {len(used_rows) + states}")
    return graph


def _pad(used: Sequence[bool], count: int) -> list[bool]:
    return [*used, *[False] * (count - len(used))]


def _shape_of_rows(call: Call, graph: ir.Graph, states: int, kinds: Sequence[str | None]) -> str:
    """Bind what finds the shapes of scan outputs when no iteration runs."""
    finder = shapes.EmptyRows(
        model=call.program.model,
        graph=graph,
        opsets=dict(call.frame.opsets),
        states=states,
        kinds=tuple(kinds),
    )
    return call.program.source.bind("empty_rows", finder)


def _captured_values(call: Call, graph: ir.Graph) -> list[ir.Value]:
    return [v for v in captures(graph) if v in call.frame.slots]


def _captured_dict(call: Call, graph: ir.Graph) -> str:
    entries = [f"{v.name!r}: {_expression(call.frame.slots[v])}" for v in _captured_values(call, graph)]
    return "{" + ", ".join(entries) + "}"


def _always_true(slot: Slot, condition: Slot | None) -> bool:
    """Whether the body's condition never ends the loop: it is its condition input, or a true constant."""
    if slot.constant is not None:
        return bool(slot.constant.size == 1 and slot.constant.reshape(()))
    return condition is not None and slot.name == condition.name


def emit_loop(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """Loop. The body's condition ends the loop also where the node's condition input is absent.

    The table in the standard says that it is then ignored; ONNX Runtime and OpenVINO obey it, and onnxscript compiles
    ``break`` to exactly that, so obeying it is what exported models mean.
    """
    program, node, fresh = call.program, call.node, call.program.source.fresh
    graph = _graph(call, "body")
    operators.check_inputs(schema, call.input_types())
    limit, condition, *initial = (*call.inputs, *[ABSENT] * (2 - len(call.inputs)))
    carried = len(initial)
    row_count = len(graph.outputs) - 1 - carried
    if len(graph.inputs) != 2 + carried or row_count < 0 or len(node.outputs) > carried + row_count:
        raise LoopliftError(
            f"{carried} carried values need a body of {2 + carried} inputs and at least {1 + carried} outputs, and the "
            f"node as many outputs as the body less one; found {len(graph.inputs)} inputs, {len(graph.outputs)} "
            f"outputs, and {len(node.outputs)} outputs of the node"
        )
    frame = call.frame.inside(node, "body")
    index = _input_slot(call, graph.inputs[0], types.INT64, "iteration number")
    keep = _input_slot(call, graph.inputs[1], types.BOOL, "condition")
    states = [
        _input_slot(call, value, slot.type, f"initial value '{source.name if source else ''}'")
        for value, slot, source in zip(graph.inputs[2:], initial, node.inputs[2:], strict=True)
    ]
    captured = program.captured(frame, graph)
    body = _plan_body(call, frame, graph, [index.name, keep.name, *[s.name for s in states]])
    new_keep, new_states, rows = body.outputs[0], body.outputs[1 : 1 + carried], body.outputs[1 + carried :]
    _check_states(graph.outputs[1 : 1 + carried], new_states, states)
    _check_rows(graph.outputs[1 + carried :], rows)
    if not types.agree(new_keep.type, types.BOOL):
        raise LoopliftError(f"the body's condition '{graph.outputs[0].name}' is {new_keep.type}, not {types.BOOL}")
    used = _pad(call.used[carried:], row_count)
    stacks = _stacks(call, graph.outputs[1 + carried :], rows, used)
    ends = not _always_true(new_keep, keep)

    site = call.site
    plan = program.source.bind(
        "loop",
        loops.LoopPlan(
            site.name,
            never_ends=not ends,
            condition_rank=_declared_rank(graph.inputs[1]),
            index_rank=_declared_rank(graph.inputs[0]),
            max_iterations=program.max_iterations,
            progress=program.progress,
        ),
    )
    m, first = fresh("m"), fresh("cond")
    final = [s.name for s in states]
    lines = [Line(f"limit = {plan}.limit({m}, {first})", site, (m, first)), Line("if limit == 0:", site)]
    if stacks:
        finder = _shape_of_rows(call, graph, 2, [s.type for s in rows])
        empty = f"*{finder}([{', '.join(final)}], {_captured_dict(call, graph)}, {used})"
        lines.append(Line(f"return {_outputs_tuple([*final, empty])}", site, tuple(final)).indented())
    else:
        lines.append(Line(f"return {_outputs_tuple([*final, *['None'] * row_count])}", site, tuple(final)).indented())
    lines += [Line(f"{s.rows} = {s.shape} = None", site) for s in stacks]
    if stacks:
        program.source.use(loops.make_rows, loops.grow_rows, loops.finish_rows, loops.check_dtype, loops.Budget)
        lines.append(Line("budget = Budget()", site))
    lines += body.before
    reads_keep = _reads(body, keep)
    if reads_keep:
        lines.append(Line(f"{keep.name} = {plan}.first_condition()", site))
    reads_index = _reads(body, index)
    counter = f"k, {index.name}" if reads_index else "k"
    lines.append(Line(f"for {counter} in {plan}.{'indexed' if reads_index else 'counted'}(limit):", site))
    inside = list(body.inside)
    for stack in stacks:
        inside += stack.store(site, f"{plan}.capacity(limit)" if ends else "limit", grows=ends)
    targets = [s.name for s in states] + [keep.name] * reads_keep
    sources = [_expression(s) for s in new_states] + [_expression(new_keep)] * reads_keep
    moved = [(t, s) for t, s in zip(targets, sources, strict=True) if t != s]
    step_reads = [s.name for s in new_states] + [new_keep.name] * (reads_keep or ends)
    if moved:
        text = f"{', '.join(t for t, _ in moved)} = {', '.join(s for _, s in moved)}"
        inside.append(Line(text, site, tuple(step_reads)))
    if ends:
        inside.append(Line(f"if not truth({_expression(new_keep)}): break", site, (new_keep.name,)))
    inside.extend([Line("pass", site)] * (not inside))
    lines += [line.indented() for line in releasing(inside, keep=final)]
    last = _outputs_tuple([*final, *_spread(stacks, used, lambda s: f"finish_rows({s.rows}, k + 1)")])
    lines.append(Line(f"return {last}", site))

    function = fresh("loop_body")
    parameters = [m, first, *final, *[s.name for s in captured]]
    program.source.define(function, parameters, site, lines)
    given = [limit, condition, *initial, *captured]
    kinds = [s.type for s in (*states, *rows)][: len(node.outputs)]
    return [_call_line(call, function, given, kinds, carried + row_count, body.random)]


def _call_line(
    call: Call, function: str, given: Sequence[Slot], kinds: Sequence[str | None], results: int, random: bool
) -> Line:
    """The line that calls a loop's function; results past the node's outputs are dropped."""
    expression = f"{function}({', '.join(map(_expression, given))})"
    if results > len(call.node.outputs):
        expression += f"[:{len(call.node.outputs)}]"
    reads = tuple(dict.fromkeys(s.name for s in given if not s.absent))
    return call.assign(expression, kinds, reads=reads, random=random, unpack=True)


def _reads(body: Body, slot: Slot) -> bool:
    return any(slot.name in line.reads for line in body.inside) or any(s.name == slot.name for s in body.outputs[1:])


def _declared_rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)


def emit_scan(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """Scan: states, and scan inputs read along an axis; from opset 9 without and in opset 8 with a batch axis."""
    program, node, fresh, site = call.program, call.node, call.program.source.fresh, call.site
    graph = _graph(call, "body")
    operators.check_inputs(schema, call.input_types())
    batched = schema.since_version == 8
    lengths, actual = (call.inputs[0], call.inputs[1:]) if batched else (ABSENT, call.inputs)
    axes = scans.Axes.read(
        {name: attr.value for name, attr in call.attributes.items() if name != "body"},
        inputs=len(actual),
        body_inputs=len(graph.inputs),
        body_outputs=len(graph.outputs),
        outputs=len(node.outputs),
        batched=batched,
    )
    frame = call.frame.inside(node, "body")
    states = [
        _input_slot(call, value, slot.type, "initial state")
        for value, slot in zip(graph.inputs[: axes.states], actual[: axes.states], strict=True)
    ]
    elements = [
        _input_slot(call, value, slot.type, "scan input")
        for value, slot in zip(graph.inputs[axes.states :], actual[axes.states :], strict=True)
    ]
    captured = program.captured(frame, graph)
    body = _plan_body(call, frame, graph, [s.name for s in (*states, *elements)])
    new_states, rows = body.outputs[: axes.states], body.outputs[axes.states :]
    _check_states(graph.outputs[: axes.states], new_states, states)
    _check_rows(graph.outputs[axes.states :], rows)
    used = call.used[axes.states :]
    stacks = _stacks(call, graph.outputs[axes.states :], rows, used)

    program.source.use(loops.make_rows, loops.check_dtype, loops.Budget, scans.keep_shape)
    plan = program.source.bind("scan", scans.ScanPlan(site.name, axes, program.progress))
    final, scanned = [s.name for s in states], [fresh("x") for _ in elements]
    unpacked = f"{''.join(f'{x}, ' for x in scanned)}"
    finder = _shape_of_rows(call, graph, 0, [s.type for s in rows])
    likes = [*final, *[f"np.empty({x}.shape[1:], {x}.dtype)" for x in scanned]]
    empty = f"*{finder}([{', '.join(likes)}], {_captured_dict(call, graph)}, {used})"
    lines = [
        Line(f"limit, ({unpacked}) = {plan}.time_first(({unpacked}))", site, tuple(scanned)),
        Line("if limit == 0:", site),
        Line(f"return {plan}.finish({_outputs_tuple([*final, empty])})", site, tuple(final)).indented(),
        *[Line(f"{s.rows} = {s.shape} = None", site) for s in stacks],
        Line("budget = Budget()", site),
        *body.before,
    ]
    names = "".join(f"{s.name}, " for s in elements)
    lines.append(Line(f"for k, ({names}) in {plan}.elements(limit, ({unpacked})):", site))
    inside = list(body.inside)
    for stack in stacks:
        inside += stack.store(site, "limit", grows=False)
    moved = [(old, new) for old, new in zip(states, new_states, strict=True) if old.name != new.name]
    for old, new in moved:
        inside.append(
            Line(
                f"if {_expression(new)}.shape != {old.name}.shape: keep_shape({old.name}, {_expression(new)})",
                site,
                (old.name, new.name),
            )
        )
    if moved:
        text = f"{', '.join(o.name for o, _ in moved)} = {', '.join(_expression(n) for _, n in moved)}"
        inside.append(Line(text, site, tuple(n.name for _, n in moved)))
    inside.extend([Line("pass", site)] * (not inside))
    lines += [line.indented() for line in releasing(inside, keep=final)]
    results = _outputs_tuple([*final, *_spread(stacks, used, lambda s: s.rows)])
    lines.append(Line(f"return {plan}.finish({results})", site))
    function = fresh("scan_body")
    program.source.define(function, [*final, *scanned, *[s.name for s in captured]], site, lines)
    kinds = [s.type for s in (*states, *rows)]
    given = [*actual, *captured]
    if not batched:
        return [_call_line(call, function, given, kinds, len(kinds), body.random)]
    batch = program.source.bind("batch", scans.Batches(axes))
    runner = program.source.fresh("scan_batches")
    arguments = [lengths, *given]
    text = f"return {batch}({function}, lengths, inputs)"
    program.source.define(runner, ["lengths", "*inputs"], site, [Line(text, site)])
    return [_call_line(call, runner, arguments, kinds, len(kinds), body.random)]


def emit_sequence_map(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """SequenceMap: the body on each element of the first sequence, and of the others beside it."""
    program, node, fresh, site = call.program, call.node, call.program.source.fresh, call.site
    graph = _graph(call, "body")
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
        _input_slot(call, value, kind, "element") for value, kind in zip(graph.inputs, element_kinds, strict=True)
    ]
    frame = call.frame.inside(node, "body")
    captured = program.captured(frame, graph)
    body = _plan_body(call, frame, graph, [s.name for s, seq in zip(elements, is_sequence, strict=True) if seq])
    program.source.use(loops.elements_of)
    given = [fresh("seq") if seq else s.name for s, seq in zip(elements, is_sequence, strict=True)]
    walked = [(s.name, g) for s, g, seq in zip(elements, given, is_sequence, strict=True) if seq]
    lists = [fresh("list") for _ in node.outputs]
    inside = [
        *body.inside,
        *[
            Line(f"{n}.append(as_value({_expression(s)}))", site, (s.name,))
            for n, s in zip(lists, body.outputs, strict=True)
        ],
    ]
    lines = [
        Line(f"if not len({given[0]}): return {_outputs_tuple(['[]'] * len(lists))}", site),
        *[Line(f"{name} = []", site) for name in lists],
        *body.before,
        Line(
            f"for k, ({''.join(f'{n}, ' for n, _ in walked)}) in elements_of({', '.join(g for _, g in walked)}):", site
        ),
        *[line.indented() for line in releasing(inside, keep=())],
        Line(f"return {_outputs_tuple(lists)}", site),
    ]
    function = fresh("map_body")
    program.source.define(function, [*given, *[s.name for s in captured]], site, lines)
    out_kinds = [f"seq({s.type})" if s.type else None for s in body.outputs]
    return [_call_line(call, function, [*call.inputs, *captured], out_kinds, len(out_kinds), body.random)]


OPS: Mapping[str, Callable[[Call, onnx.defs.OpSchema], list[Line]]] = {
    "If": emit_if,
    "Loop": emit_loop,
    "Scan": emit_scan,
    "SequenceMap": emit_sequence_map,
}

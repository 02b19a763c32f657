"""Emits Loop."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import operators, types
from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.control import bodies, loops
from looplift.runtime.interpreter.scope import ABSENT, Slot
from looplift.runtime.interpreter.source import Line, releasing


def emit_loop(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """Loop. The body's condition ends the loop also where the node's condition input is absent.

    The table in the standard says that it is then ignored; ONNX Runtime and OpenVINO obey it, and onnxscript compiles
    ``break`` to exactly that, so obeying it is what exported models mean.
    """
    operators.check_inputs(schema, call.input_types())
    loop = _plan(call)
    call.program.source.use(loops.make_rows, loops.grow_rows, loops.finish_rows, loops.check_dtype, loops.Budget)
    limit, condition = call.program.source.fresh("m"), call.program.source.fresh("cond")
    lines = [Line(f"limit = {loop.plan}.limit({limit}, {condition})", call.site, (limit, condition))]
    lines += [*_no_iteration(loop), *_before(loop), *_iteration(loop), _result(loop)]
    function = call.program.source.fresh("loop_body")
    parameters = [limit, condition, *loop.carried, *[s.name for s in loop.captured]]
    call.program.source.define(function, parameters, call.site, lines)
    given = [*(*call.inputs, ABSENT, ABSENT)[: max(2, len(call.inputs))], *loop.captured]
    kinds = [s.type for s in (*loop.states, *loop.rows)][: len(call.node.outputs)]
    results = len(loop.states) + len(loop.rows)
    return [bodies.call_line(call, function, given, kinds, results, loop.body.random)]


@dataclasses.dataclass(frozen=True)
class _Loop:
    """A planned Loop: `new_` is what the body gives for the next iteration."""

    call: Call
    graph: ir.Graph
    plan: str
    index: Slot
    keep: Slot
    states: list[Slot]
    captured: list[Slot]
    body: bodies.Body
    used: list[bool]
    stacks: list[bodies.Stack]

    @property
    def new_keep(self) -> Slot:
        return self.body.outputs[0]

    @property
    def new_states(self) -> list[Slot]:
        return self.body.outputs[1 : 1 + len(self.states)]

    @property
    def rows(self) -> list[Slot]:
        return self.body.outputs[1 + len(self.states) :]

    @property
    def carried(self) -> list[str]:
        return [s.name for s in self.states]

    @property
    def ends(self) -> bool:
        """Whether the body's condition may end the loop: not if it is its condition input or a true constant."""
        constant = self.new_keep.constant
        if constant is not None:
            return not (constant.size == 1 and constant.reshape(()))
        return self.new_keep.name != self.keep.name

    def reads(self, slot: Slot) -> bool:
        """Whether the body uses one of its inputs, other than to pass the condition on as it is."""
        return any(slot.name in line.reads for line in self.body.inside) or slot.name in {
            s.name for s in self.body.outputs[1:]
        }


def _plan(call: Call) -> _Loop:
    """Plan the body.

    Raises:
        LoopliftError: the numbers or types of inputs and outputs do not fit together.
    """
    graph = bodies.graph_of(call, "body")
    initial = call.inputs[2:]
    row_count = _count_rows(call, graph, len(initial))
    frame = call.frame.inside(call.node, "body")
    index = bodies.input_slot(call, graph.inputs[0], types.INT64, "iteration number")
    keep = bodies.input_slot(call, graph.inputs[1], types.BOOL, "condition")
    states = [
        bodies.input_slot(call, value, slot.type, "initial value")
        for value, slot in zip(graph.inputs[2:], initial, strict=True)
    ]
    captured = call.program.captured(frame, graph)
    body = bodies.plan_body(call, frame, graph, [index.name, keep.name, *[s.name for s in states]])
    first_row = 1 + len(states)
    bodies.check_states(graph.outputs[1:first_row], body.outputs[1:first_row], states)
    bodies.check_rows(graph.outputs[first_row:], body.outputs[first_row:])
    if not types.agree(body.outputs[0].type, types.BOOL):
        kind = body.outputs[0].type
        raise LoopliftError(f"the body's condition '{graph.outputs[0].name}' is {kind}, not {types.BOOL}")
    used = call.used[len(states) :]
    used += [False] * (row_count - len(used))
    stacks = bodies.stacks_of(call, graph.outputs[first_row:], body.outputs[first_row:], used)
    plan = call.program.source.fresh("loop")
    loop = _Loop(call, graph, plan, index, keep, states, captured, body, used, stacks)
    call.program.source.globals[plan] = loops.LoopPlan(
        call.site.name,
        never_ends=not loop.ends,
        condition_rank=_declared_rank(graph.inputs[1]),
        index_rank=_declared_rank(graph.inputs[0]),
        max_iterations=call.program.max_iterations,
        progress=call.program.progress,
    )
    return loop


def _count_rows(call: Call, graph: ir.Graph, carried: int) -> int:
    """How many scan outputs the body has.

    Raises:
        LoopliftError: the body's or the node's inputs and outputs are not as many as the carried values need.
    """
    row_count = len(graph.outputs) - 1 - carried
    if len(graph.inputs) != 2 + carried or row_count < 0 or len(call.node.outputs) > carried + row_count:
        raise LoopliftError(
            f"{carried} carried values need a body of {2 + carried} inputs and at least {1 + carried} outputs, and a "
            f"node of at most one output less than the body; the body has {len(graph.inputs)} inputs and "
            f"{len(graph.outputs)} outputs, the node {len(call.node.outputs)} outputs"
        )
    return row_count


def _declared_rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)


def _no_iteration(loop: _Loop) -> list[Line]:
    """Lines for a loop that does not run: carried values untouched, scan outputs of no rows."""
    results = [*loop.carried, *["None"] * len(loop.rows)]
    if loop.stacks:
        finder = bodies.empty_rows_finder(loop.call, loop.graph, 2, [s.type for s in loop.rows])
        captured = bodies.captured_dict(loop.call, loop.graph)
        results = [*loop.carried, f"*{finder}([{', '.join(loop.carried)}], {captured}, {loop.used})"]
    site = loop.call.site
    return [Line("if limit == 0:", site), Line(f"return {bodies.tuple_of(results)}", site, depth=1)]


def _before(loop: _Loop) -> list[Line]:
    """Lines that run once, before the first iteration."""
    site = loop.call.site
    lines = [Line(f"{stack.rows} = {stack.shape} = None", site) for stack in loop.stacks]
    if loop.stacks:
        lines.append(Line("budget = Budget()", site))
    lines += [Line(f"{name} = list({name})", site) for name in bodies.owned_sequences(loop.states, loop.body)]
    lines += loop.body.before
    if loop.reads(loop.keep):
        lines.append(Line(f"{loop.keep.name} = {loop.plan}.first_condition()", site))
    return lines


def _iteration(loop: _Loop) -> list[Line]:
    """The ``for`` statement."""
    site = loop.call.site
    inside = bodies.appending_in_place(loop.body.inside, bodies.owned_sequences(loop.states, loop.body))
    for stack in loop.stacks:
        inside += stack.store(site, f"{loop.plan}.capacity(limit)" if loop.ends else "limit", grows=loop.ends)
    moves = list(zip(loop.states, loop.new_states, strict=True))
    if loop.reads(loop.keep):
        moves.append((loop.keep, loop.new_keep))
    test, reads = f"truth({loop.new_keep.host})", (loop.new_keep.name,)
    if loop.ends and loop.new_keep.name in loop.carried:  # the test is what a state was before it moves on
        going = loop.call.program.source.fresh("going")
        inside.append(Line(f"{going} = {test}", site, reads))
        test, reads = going, (going,)
    inside += bodies.move(moves, site)
    if loop.ends:
        inside.append(Line(f"if not {test}: break", site, reads))
    head = f"for k in {loop.plan}.counted(limit):"
    if loop.reads(loop.index):
        head = f"for k, {loop.index.name} in {loop.plan}.indexed(limit):"
    return [Line(head, site), *bodies.suite(releasing(inside, keep=loop.carried), site)]


def _result(loop: _Loop) -> Line:
    rows = bodies.spread(loop.stacks, loop.used, lambda stack: f"finish_rows({stack.rows}, k + 1)")
    return Line(f"return {bodies.tuple_of([*loop.carried, *rows])}", loop.call.site)

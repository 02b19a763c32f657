"""Emits Scan: from opset 9 without, in opset 8 with a batch axis."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir

from looplift.runtime.interpreter import operators
from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.control import bodies, loops, scans
from looplift.runtime.interpreter.scope import Slot
from looplift.runtime.interpreter.source import Line, releasing


def emit_scan(call: Call, schema: onnx.defs.OpSchema) -> list[Line]:
    """Scan: states, and scan inputs read along an axis."""
    operators.check_inputs(schema, call.input_types())
    batched = schema.since_version == 8
    scan = _plan(call, batched=batched)
    source, site = call.program.source, call.site
    source.use(loops.make_rows, loops.check_dtype, loops.Budget, scans.keep_shape)
    lines = [*_no_iteration(scan), *_before(scan), *_iteration(scan), _result(scan)]
    function = source.fresh("scan_body")
    source.define(function, [*scan.carried, *scan.inputs, *[s.name for s in scan.captured]], site, lines)
    if batched:
        batch, one_entry = source.bind("batch", scans.Batches(scan.axes)), function
        function = source.fresh("scan_batches")
        line = Line(f"return {batch}({one_entry}, lengths, inputs)", site)
        source.define(function, ["lengths", "*inputs"], site, [line])
    kinds = [s.type for s in (*scan.states, *scan.rows)]
    given = [*call.inputs, *scan.captured]
    return [bodies.call_line(call, function, given, kinds, len(kinds), scan.body.random)]


@dataclasses.dataclass(frozen=True)
class _Scan:
    """A planned Scan; `inputs` are the variables of its scan inputs, `elements` what the body reads of them."""

    call: Call
    graph: ir.Graph
    axes: scans.Axes
    plan: str
    states: list[Slot]
    inputs: list[str]
    elements: list[Slot]
    captured: list[Slot]
    body: bodies.Body
    used: list[bool]
    stacks: list[bodies.Stack]

    @property
    def new_states(self) -> list[Slot]:
        return self.body.outputs[: len(self.states)]

    @property
    def rows(self) -> list[Slot]:
        return self.body.outputs[len(self.states) :]

    @property
    def carried(self) -> list[str]:
        return [s.name for s in self.states]


def _plan(call: Call, *, batched: bool) -> _Scan:
    """Plan the body.

    Raises:
        LoopliftError: the attributes, or the numbers or types of inputs and outputs do not fit together.
    """
    graph = bodies.graph_of(call, "body")
    actual = call.inputs[1:] if batched else call.inputs
    axes = scans.Axes.read(
        {name: attr.value for name, attr in call.attributes.items() if name != "body"},
        inputs=len(actual),
        body_inputs=len(graph.inputs),
        body_outputs=len(graph.outputs),
        outputs=len(call.node.outputs),
        batched=batched,
    )
    frame = call.frame.inside(call.node, "body")
    roles = ["initial state"] * axes.states + ["scan input"] * (len(actual) - axes.states)
    slots = [
        bodies.input_slot(call, value, slot.type, role)
        for value, slot, role in zip(graph.inputs, actual, roles, strict=True)
    ]
    states, elements = slots[: axes.states], slots[axes.states :]
    captured = call.program.captured(frame, graph)
    body = bodies.plan_body(call, frame, graph, [s.name for s in slots])
    bodies.check_states(graph.outputs[: axes.states], body.outputs[: axes.states], states)
    bodies.check_rows(graph.outputs[axes.states :], body.outputs[axes.states :])
    used = call.used[axes.states :]
    stacks = bodies.stacks_of(call, graph.outputs[axes.states :], body.outputs[axes.states :], used)
    source = call.program.source
    plan = source.bind("scan", scans.ScanPlan(call.site.name, axes, call.program.progress))
    inputs = [source.fresh("x") for _ in elements]
    return _Scan(call, graph, axes, plan, states, inputs, elements, captured, body, used, stacks)


def _no_iteration(scan: _Scan) -> list[Line]:
    """Lines that find the length, and those for length 0: states untouched, scan outputs of no rows."""
    site, inputs = scan.call.site, bodies.tuple_of(scan.inputs)
    likes = [*scan.carried, *[f"np.empty({x}.shape[1:], {x}.dtype)" for x in scan.inputs]]
    finder = bodies.empty_rows_finder(scan.call, scan.graph, 0, [s.type for s in scan.rows])
    captured = bodies.captured_dict(scan.call, scan.graph)
    results = [*scan.carried, f"*{finder}([{', '.join(likes)}], {captured}, {scan.used})"]
    return [
        Line(f"limit, {inputs} = {scan.plan}.time_first({inputs})", site, tuple(scan.inputs)),
        Line("if limit == 0:", site),
        Line(f"return {scan.plan}.finish({bodies.tuple_of(results)})", site, depth=1),
    ]


def _before(scan: _Scan) -> list[Line]:
    """Lines that run once, before the first iteration."""
    site = scan.call.site
    rows = [Line(f"{stack.rows} = {stack.shape} = None", site) for stack in scan.stacks]
    return [*rows, Line("budget = Budget()", site), *scan.body.before]


def _iteration(scan: _Scan) -> list[Line]:
    """The ``for`` statement."""
    site = scan.call.site
    inside = list(scan.body.inside)
    for stack in scan.stacks:
        inside += stack.store(site, "limit", grows=False)
    moves = list(zip(scan.states, scan.new_states, strict=True))
    for old, new in moves:
        check = f"if {new.host}.shape != {old.name}.shape: keep_shape({old.name}, {new.host})"
        inside += [Line(check, site, (old.name, new.name))] * (old.name != new.name)
    inside += bodies.move(moves, site)
    elements = bodies.tuple_of(s.name for s in scan.elements)
    head = f"for k, {elements} in {scan.plan}.elements(limit, {bodies.tuple_of(scan.inputs)}):"
    return [Line(head, site), *bodies.suite(releasing(inside, keep=scan.carried), site)]


def _result(scan: _Scan) -> Line:
    rows = bodies.spread(scan.stacks, scan.used, lambda stack: stack.rows)
    return Line(f"return {scan.plan}.finish({bodies.tuple_of([*scan.carried, *rows])})", scan.call.site)

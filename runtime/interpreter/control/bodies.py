"""What Loop, Scan and SequenceMap share: a planned body, its inputs, and the rows of its scan outputs.

A body's lines stand directly inside the ``for`` statement of the emitted function. Lines that depend on nothing that
changes from one iteration to the next stand before it, where they run only if the loop runs at least once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import types
from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.control import shapes
from looplift.runtime.interpreter.scope import Frame, Slot, captures
from looplift.runtime.interpreter.source import Line, Site


def graph_of(call: Call, name: str) -> ir.Graph:
    """A graph attribute of the node.

    Raises:
        LoopliftError: it is missing.
    """
    if name not in call.attributes:
        raise LoopliftError(f"the attribute '{name}' is missing")
    return call.attributes[name].as_graph()


def tuple_of(expressions: Iterable[str]) -> str:
    """A tuple display, of one element or none too."""
    return f"({''.join(f'{e}, ' for e in expressions)})"


@dataclasses.dataclass(frozen=True)
class Body:
    """A planned body: lines before the loop, lines inside it, and what it gives."""

    before: list[Line]
    inside: list[Line]
    outputs: list[Slot]
    random: bool


def plan_body(call: Call, frame: Frame, graph: ir.Graph, changing: Iterable[str]) -> Body:
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


def input_slot(call: Call, value: ir.Value, actual: str | None, role: str) -> Slot:
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


def check_states(graph_outputs: Sequence[ir.Value], given: Sequence[Slot], states: Sequence[Slot]) -> None:
    """Raises:
    LoopliftError: the body gives a carried value another type.
    """
    for value, new, old in zip(graph_outputs, given, states, strict=True):
        if not types.agree(new.type, old.type):
            raise LoopliftError(f"the body changes the carried value '{value.name}' from {old.type} to {new.type}")


def check_rows(graph_outputs: Sequence[ir.Value], given: Sequence[Slot]) -> None:
    """Raises:
    LoopliftError: a scan output is not a tensor.
    """
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
        row = self.slot.host
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


def stacks_of(
    call: Call, graph_outputs: Sequence[ir.Value], slots: Sequence[Slot], used: Sequence[bool]
) -> list[Stack]:
    """The stacks of the scan outputs that are used."""
    fresh = call.program.source.fresh
    return [
        Stack(fresh("rows"), fresh("shape"), slot, value.name or "")
        for value, slot, wanted in zip(graph_outputs, slots, used, strict=True)
        if wanted
    ]


def spread(stacks: Sequence[Stack], used: Sequence[bool], text: Callable[[Stack], str]) -> list[str]:
    """An expression for each scan output: `text` of its stack, ``None`` where it is unused."""
    remaining = iter(stacks)
    return [text(next(remaining)) if wanted else "None" for wanted in used]


def empty_rows_finder(call: Call, graph: ir.Graph, skipped: int, kinds: Sequence[str | None]) -> str:
    """Bind what finds the shapes of scan outputs when no iteration runs."""
    finder = shapes.EmptyRows(
        model=call.program.model,
        graph=graph,
        opsets=call.frame.opsets,
        attributes=call.frame.attributes,
        skipped=skipped,
        kinds=tuple(kinds),
    )
    return call.program.source.bind("empty_rows", finder)


def captured_dict(call: Call, graph: ir.Graph) -> str:
    """A dict display of the values that a body captures, by their names in the model."""
    entries = [f"{v.name!r}: {call.frame.slots[v].host}" for v in captures(graph) if v in call.frame.slots]
    return "{" + ", ".join(entries) + "}"


def call_line(
    call: Call, function: str, given: Sequence[Slot], kinds: Sequence[str | None], results: int, random: bool
) -> Line:
    """The line that calls a loop's function; results past the node's outputs are dropped."""
    expression = f"{function}({', '.join(s.host for s in given)})"
    if results > len(call.node.outputs):
        expression += f"[:{len(call.node.outputs)}]"
    reads = tuple(dict.fromkeys(s.name for s in given if not s.absent))
    return call.assign(expression, kinds, reads=reads, random=random, unpack=True)


def move(pairs: Sequence[tuple[Slot, Slot]], site: Site) -> list[Line]:
    """One simultaneous assignment of new values to old variables, of those that change."""
    changed = [(old, new) for old, new in pairs if old.name != new.name]
    if not changed:
        return []
    text = f"{', '.join(old.name for old, _ in changed)} = {', '.join(new.host for _, new in changed)}"
    return [Line(text, site, tuple(new.name for _, new in changed))]


def suite(lines: Sequence[Line], site: Site) -> list[Line]:
    """The lines as the suite of a compound statement."""
    return [line.indented() for line in lines] or [Line("pass", site, depth=1)]


def owned_sequences(states: Sequence[Slot], body: Body) -> list[str]:
    """Carried sequences that can grow in place: all that the body does is append to one and carry the result on.

    Then nothing else can see the list change, once the loop starts on a copy of the initial one.
    """
    every_use = [name for line in body.inside for name in line.reads] + [slot.name for slot in body.outputs]
    appended = {line.appends_to: line.writes for line in body.inside if line.appends_to}
    return [
        state.name
        for state in states
        if state.name in appended
        and every_use.count(state.name) == 1
        and every_use.count(appended[state.name][0]) == 1
        and appended[state.name][0] in {slot.name for slot in body.outputs}
    ]


def appending_in_place(lines: Sequence[Line], sequences: Sequence[str]) -> list[Line]:
    """The lines, with those that append to one of these sequences doing so without a copy."""
    return [
        dataclasses.replace(line, text=f"{line.writes[0]} = append({', '.join(line.reads)})")
        if line.appends_to in sequences
        else line
        for line in lines
    ]

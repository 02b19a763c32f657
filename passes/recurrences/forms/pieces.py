"""Small pieces that the forms share: counts of rows, single rows, conditional parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import onnx_ir as ir

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.trip_counts import MAX_OF_INTEGERS, to_vector
from looplift.passes.recurrences.forms.call import Form, Results
from looplift.patterns.graph.constants import INT64_MAX
from looplift.patterns.graph.types import Types


@dataclasses.dataclass(frozen=True)
class Count:
    """A trip count: an int64 scalar that is never negative, and its number where it is known."""

    value: ir.Value
    static: int | None

    @property
    def surely_runs(self) -> bool:
        """Whether there is at least one iteration, for certain."""
        return self.static is not None and self.static > 0


def one_if_any(emit: Emitter, count: ir.Value) -> ir.Value:
    """1, or 0 if the count is 0."""
    if emit.opset >= MAX_OF_INTEGERS:
        return emit.op("Min", [count, emit.const([1])])
    return emit.op("Cast", [some(emit, count)], {"to": ir.AttrInt64("to", ir.DataType.INT64)})


def some(emit: Emitter, count: ir.Value) -> ir.Value:
    """Whether a count is more than 0 (opset 9 or later)."""
    return emit.op("Greater", [count, emit.const(0)])


def extents(emit: Emitter, count: ir.Value, like: ir.Value) -> ir.Value:
    """The shape ``[count, *shape of like]``."""
    return emit.op("Concat", [to_vector(emit, count), emit.op("Shape", [like])], {"axis": 0})


def repeat(emit: Emitter, value: ir.Value, count: ir.Value, like: ir.Value | None) -> ir.Value:
    """``count`` rows of `value`, broadcast to the shape of `like`; None is a scalar."""
    shape = to_vector(emit, count) if like is None else extents(emit, count, like)
    return emit.op("Expand", [value, shape])


def no_rows(emit: Emitter, like: ir.Value) -> ir.Value:
    """Zero rows of the shape of `like`."""
    return emit.slice(emit.unsqueeze(like, [0]), 0, 0, 0)


def no_grown_rows(emit: Emitter, initial: ir.Value, step: ir.Value, ranks: tuple[int | None, int | None]) -> ir.Value:
    """Zero rows of the shape to which `initial` and `step` broadcast, of these ranks; nothing is added that may fail.

    Where they don't broadcast, the extents are those of `initial`: it is expanded where they are 1.
    """
    own, other = _of_one_rank(emit, emit.op("Shape", [initial]), emit.op("Shape", [step]), ranks)
    grows = emit.op("Cast", [emit.op("Equal", [own, emit.const(1)])], {"to": int(ir.DataType.INT64)})
    kept = emit.op("Mul", [own, emit.op("Sub", [emit.const(1), grows])])
    row = emit.op("Add", [kept, emit.op("Mul", [other, grows])])
    return emit.op("Expand", [initial, emit.op("Concat", [emit.const([0]), row], {"axis": 0})])


def _of_one_rank(
    emit: Emitter, left: ir.Value, right: ir.Value, ranks: tuple[int | None, int | None]
) -> tuple[ir.Value, ir.Value]:
    """Two shapes with ones put in front of the shorter one; ranks that are not known are measured."""
    if ranks[0] is not None and ranks[1] is not None:
        lacks = [emit.const([max(ranks[1] - ranks[0], 0)]), emit.const([max(ranks[0] - ranks[1], 0)])]
    else:
        more = emit.op("Cast", [emit.op("Sub", [emit.op("Shape", [right]), emit.op("Shape", [left])])], {"to": 1})
        # Max takes int64 only from opset 12 on
        counts = [emit.op("Relu", [more]), emit.op("Relu", [emit.op("Neg", [more])])]
        lacks = [emit.op("Cast", [count], {"to": int(ir.DataType.INT64)}) for count in counts]
    ones = [emit.op("Expand", [emit.const(1), lack]) for lack in lacks]
    padded = [emit.op("Concat", [one, shape], {"axis": 0}) for one, shape in zip(ones, (left, right), strict=True)]
    return padded[0], padded[1]


def last(emit: Emitter, rows: ir.Value) -> ir.Value:
    """The last row."""
    return emit.op("Gather", [rows, emit.const(-1)], {"axis": 0})


def last_or(emit: Emitter, initial: ir.Value, rows: ir.Value, count: Count, step: ir.Value | None = None) -> ir.Value:
    """The last row (plus `step`), or `initial` if there are none: both have the same shape."""
    if count.surely_runs:
        row = last(emit, rows)
        return row if step is None else emit.op("Add", [row, step])
    tail = emit.slice(rows, -1, INT64_MAX, 0)
    if step is not None:
        tail = emit.op("Add", [tail, step])
    return last(emit, emit.op("Concat", [emit.unsqueeze(initial, [0]), tail], {"axis": 0}))


def nothing(initial: ir.Value, *, final: bool, rows: ir.Value | None) -> Form:
    """What zero iterations give, for a state that keeps its shape; `rows` is their number where rows are wanted.

    That they are none must not show in the graph. The branches of an If had one shape before opset 11, so ONNX Runtime
    takes an extent that it sees in one branch for that of both.
    """

    def form(emit: Emitter) -> Results:
        return Results(
            emit.op("Identity", [initial]) if final else None,
            repeat(emit, initial, rows, initial) if rows is not None else None,
        )

    return form


def choose_at_run_time(emit: Emitter, condition: ir.Value, then: Form, otherwise: Form) -> Results:
    """An If: one form where the condition holds, another where it does not."""
    wanted: list[Results] = []

    def branch(form: Form) -> Callable[[Emitter], list[ir.Value]]:
        def write(inner: Emitter) -> list[ir.Value]:
            wanted.append(form(inner))
            return [value for value in (wanted[-1].final, wanted[-1].rows) if value is not None]

        return write

    outputs = iter(either(emit, condition, branch(then), branch(otherwise)))
    final = next(outputs) if wanted[0].final is not None else None
    return Results(final, next(outputs) if wanted[0].rows is not None else None)


def either(
    emit: Emitter,
    condition: ir.Value,
    then: Callable[[Emitter], Sequence[ir.Value]],
    otherwise: Callable[[Emitter], Sequence[ir.Value]],
) -> Sequence[ir.Value]:
    """The outputs of an If whose branches write as many values each."""
    left, right = _branch(emit, then, "then"), _branch(emit, otherwise, "otherwise")
    attributes = [ir.AttrGraph("then_branch", left), ir.AttrGraph("else_branch", right)]
    node = emit.add(ir.Node("", "If", [condition], attributes, num_outputs=len(left.outputs)))
    for output, a, b in zip(node.outputs, left.outputs, right.outputs, strict=True):
        output.type = a.type or b.type
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            output.shape = ir.Shape([x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)])
    return node.outputs


def _branch(emit: Emitter, write: Callable[[Emitter], Sequence[ir.Value]], name: str) -> ir.Graph:
    """A graph without inputs; what it returns, it makes."""
    inner = Emitter(emit.opset, Types())
    results = write(inner)
    made = {id(output) for node in inner.nodes for output in node.outputs}
    outputs = [value if id(value) in made else inner.op("Identity", [value]) for value in results]
    return ir.Graph([], outputs, nodes=inner.nodes, name=name)

"""What the command line prints: tables and progress, readable on a terminal and in a pipe."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from looplift import messages
from looplift.bench import Row
from looplift.patterns.graph.operators import STANDARD
from looplift.patterns.graph.values import subgraphs
from looplift.report import Report, outcome, short_names, title
from looplift.runtime.text import visible
from looplift.verification.cases.made_up import Feeds
from looplift.verification.outcome import Check
from looplift.wording import join_like

_PIPE_WIDTH = 160
"""Columns of a table that goes into a file or a pipe."""

_BENCH_NUMBERS = ("median ms", "runs", "times faster")

_PATIENCE = 2.0
"""Seconds of work before a person is told that it goes on."""


def show(*renderables: RenderableType) -> None:
    """Prints to standard output; in a pipe without colours, in a fixed width and without trailing blanks."""
    console = Console(highlight=False)
    if console.is_terminal:
        with _closed_is_no_error():
            console.print(*renderables, sep="\n")
        return
    console = Console(highlight=False, width=_PIPE_WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(*renderables, sep="\n")
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))


def say(text: str) -> None:
    """Prints text to standard output, if anybody still reads it."""
    with _closed_is_no_error():
        print("\n".join(map(visible, text.split("\n"))), flush=True)


@contextlib.contextmanager
def _closed_is_no_error() -> Iterator[None]:
    """A reader that has seen enough (``| head -1``) does not end the work."""
    try:
        yield
    except BrokenPipeError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _titled(heading: str, table: Table) -> RenderableType:
    return Group(Text(visible(heading), style="bold"), table)


@contextlib.contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Says on the terminal what goes on, once it has taken two seconds; gives a function that says it anew."""
    console = Console(file=messages.stream(), stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    status = console.status(what)
    timer = threading.Timer(_PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda text: status.update(text)
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def count_ops(model: ir.Model) -> dict[str, int]:
    """How many nodes of each op the model has, bodies included, model-local functions not."""
    return dict(collections.Counter(_op_names(model.graph)))


def _op_names(graph: ir.Graph) -> Iterator[str]:
    for node in graph:
        yield f"{node.domain}::{node.op_type}" if node.domain not in STANDARD else node.op_type
        for inner in subgraphs(node):
            yield from _op_names(inner)


def ops_table(*counts: dict[str, int]) -> RenderableType:
    """Nodes of each op before and after (see `count_ops`), those that changed marked."""
    table = _table("op", "before", "after", "", numbers=("before", "after"))
    for name in sorted({*counts[0], *counts[1]}):
        old, new = (count.get(name, 0) for count in counts)
        style = "" if old == new else "green" if new < old else "yellow"
        table.add_row(_plain(name), str(old), str(new), "" if old == new else f"{new - old:+d}", style=style)
    old, new = (sum(count.values()) for count in counts)
    table.add_row("all", str(old), str(new), "" if old == new else f"{new - old:+d}", style="bold")
    return _titled("nodes", table)


def report_table(report: Report) -> RenderableType:
    """One row per loop: what it computes, whether it is lifted, and why not."""
    table = _table("loop", "outcome", "computes", "trip count", "reason, or what was done")
    short = short_names(report)
    for finding in report:
        told = "; ".join(join_like(finding.actions)) if finding.lifted else finding.reason
        state = f"[{'green' if finding.lifted else 'yellow'}]{outcome(finding)}[/]"
        words = [_plain(short(text)) for text in (finding.recurrence, finding.trip_count, told)]
        table.add_row(_plain(title(finding)), state, *words)
    return _titled(report.summary(), table)


def _plain(text: str) -> str:
    """Text of the model, in which brackets are no markup and control characters are seen."""
    return visible(text).replace("[", r"\[")


def check_table(check: Check) -> RenderableType:
    """The result of a verification."""
    table = _table("", "")
    colour = {"tested": "green", "different": "red", "hardly tested": "yellow"}[check.outcome]
    told = "different" if check.counterexample else check.headline
    table.add_row("result", f"[{colour}]{_plain(told)}[/]")
    if check.failing:
        table.add_row("not compared", _plain(check.failing))
        table.add_row("both models failed", str(check.failures))
    table.add_row("run by", ", ".join(check.engines))
    for dtype, ulp in check.ulps.items():
        table.add_row(f"largest distance, {dtype}", f"{ulp} ULP")
    for note in check.notes:
        table.add_row("note", _plain(note))
    return _titled("verification", table)


def values_table(heading: str, values: dict[str, Any]) -> RenderableType:
    """Names, types and first elements of outputs."""
    table = _table("output", "type", "value")
    for name, value in values.items():
        table.add_row(_plain(name), _plain(_type_of(value)), _plain(_excerpt(value)))
    return _titled(heading, table)


def _type_of(value: Any) -> str:
    if value is None:
        return "absent optional"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _excerpt(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_type_of(item) for item in value[:3]) + (", ..." if len(value) > 3 else "")
    if not isinstance(value, np.ndarray):
        return "" if value is None else str(value)[:80]
    first = [str(item) for item in value.reshape(-1)[:6]]
    return " ".join(first) + (" ..." if value.size > 6 else "")


def bench_table(rows: Sequence[Row], feeds: Feeds) -> RenderableType:
    """Each model in each engine."""
    table = _table("engine", "model", "median ms", "runs", "times faster", "same bits", numbers=_BENCH_NUMBERS)
    for row in rows:
        faster = "" if row.times_faster is None else f"{row.times_faster:,.2f}"
        same = "" if row.same_bits is None else "yes" if row.same_bits else "[red]NO[/]"
        time = _plain(row.problem) if row.milliseconds is None else f"{row.milliseconds:,.3f}"
        table.add_row(_plain(row.engine), _plain(row.model), time, str(row.runs or ""), faster, same)
    return _titled("inputs: " + ", ".join(f"{name} = {text}" for name, text in _summary(feeds).items()), table)


def bench_json(rows: Sequence[Row], feeds: Feeds) -> str:
    """The same as a JSON object: ``inputs`` and ``rows``."""
    return json.dumps({"inputs": _summary(feeds), "rows": [dataclasses.asdict(row) for row in rows]}, indent=2)


def _summary(feeds: Feeds) -> dict[str, str]:
    return {
        name: str(value) if isinstance(value, np.ndarray) and value.ndim == 0 else _type_of(value)
        for name, value in feeds.items()
    }


def rows_table(heading: str, rows: Sequence[Any]) -> RenderableType:
    """A table of dataclass instances of one class."""
    names = [field.name for field in dataclasses.fields(rows[0])]
    table = _table(*(name.replace("_", " ") for name in names))
    for row in rows:
        table.add_row(*(_plain(_cell(getattr(row, name))) for name in names))
    return _titled(heading, table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)

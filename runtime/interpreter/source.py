"""Emitted Python: lines that know their node, so that an error in a line names the node, and names that are unique."""

from __future__ import annotations

import dataclasses
import itertools
import linecache
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Any

from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.values import describe

INDENT = "    "


@dataclasses.dataclass(frozen=True)
class Site:
    """A node and where it stands in the model."""

    op_type: str
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.op_type} '{self.name}' at {self.path}"


@dataclasses.dataclass(frozen=True)
class Line:
    """One statement.

    Attributes:
        reads: the variables it uses, in the order of the node's inputs.
        random: it may give another value each time.
        appends_to: the sequence that it copies and appends to.
    """

    text: str
    site: Site
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    random: bool = False
    depth: int = 0
    appends_to: str = ""

    def indented(self) -> Line:
        """The line one level deeper."""
        return dataclasses.replace(self, depth=self.depth + 1)


def releasing(lines: Sequence[Line], keep: Collection[str]) -> list[Line]:
    """The same lines, each followed by a release of the variables whose last use it is.

    Only variables that these lines write are released, and none of `keep`.
    """
    last_use: dict[str, int] = {}
    for number, line in enumerate(lines):
        last_use.update(dict.fromkeys((*line.reads, *line.writes), number))
    written = {name for line in lines for name in line.writes} - set(keep)
    dead: dict[int, list[str]] = {}
    for name in last_use:
        if name in written:
            dead.setdefault(last_use[name], []).append(name)
    released: list[Line] = []
    for number, line in enumerate(lines):
        released.append(line)
        if number in dead:
            released.append(Line(f"del {', '.join(dead[number])}", line.site, depth=line.depth))
    return released


def releasing_before(lines: Sequence[Line], last: Line) -> list[Line]:
    """The lines with releases, then the last line, whose variables are kept for it."""
    return [*releasing(lines, keep=last.reads), last]


class Source:
    """A module of emitted functions and the objects that they name."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.filename = f"<looplift program {next(self._numbers)}>"
        self.globals: dict[str, Any] = {}
        self._counter = itertools.count()
        self._lines: list[str] = []
        self._sites: dict[int, Site] = {}
        self._reads: dict[int, tuple[str, ...]] = {}

    def fresh(self, prefix: str) -> str:
        """A new name."""
        return f"{prefix}{next(self._counter)}"

    def bind(self, prefix: str, value: object) -> str:
        """A new global name for an object."""
        name = self.fresh(prefix)
        self.globals[name] = value
        return name

    def use(self, *helpers: Callable[..., Any]) -> None:
        """Make helpers callable from emitted code by their own names."""
        self.globals.update({helper.__name__: helper for helper in helpers})

    def define(self, name: str, parameters: Iterable[str], site: Site, lines: Iterable[Line]) -> None:
        """Add a function."""
        self._add(f"def {name}({', '.join(parameters)}):", site, ())
        for line in lines:
            self._add(INDENT * (line.depth + 1) + line.text, line.site, line.reads)

    def _add(self, text: str, site: Site, reads: tuple[str, ...]) -> None:
        self._lines.append(text)
        self._sites[len(self._lines)] = site
        self._reads[len(self._lines)] = reads

    def text(self) -> str:
        """The module, for people."""
        return "\n".join(self._lines) + "\n"

    def compile(self) -> None:
        """Define the functions in `globals`; their source shows in debuggers."""
        text = self.text()
        linecache.cache[self.filename] = (len(text), None, text.splitlines(keepends=True), self.filename)
        exec(compile(text, self.filename, "exec"), self.globals)

    def explain(self, error: BaseException) -> LoopliftError:
        """An error that an emitted line raised, with its node, the iterations of the loops around it and its inputs."""
        frames = [step for step in _steps(error.__traceback__) if step.tb_frame.f_code.co_filename == self.filename]
        message = _message(error)
        if not frames:
            return LoopliftError(message)
        sites = [self._sites[step.tb_lineno] for step in frames]
        iterations = [
            f"iteration {step.tb_frame.f_locals['k']} of '{loop.name}'"
            for step, loop in zip(frames, [sites[0], *sites], strict=False)
            if "k" in step.tb_frame.f_locals
        ]
        innermost = frames[-1]
        variables = innermost.tb_frame.f_locals | self.globals
        shapes = [describe(variables[name]) for name in self._reads[innermost.tb_lineno] if name in variables]
        where = ", ".join([str(sites[-1]), *iterations])
        inputs = f" (inputs: {', '.join(shapes)})" if shapes and not isinstance(error, LoopliftError) else ""
        return LoopliftError(f"{where}: {message}{inputs}")


def _message(error: BaseException) -> str:
    """What went wrong first: onnx's implementations wrap an error in one that says less."""
    if not isinstance(error, LoopliftError) and error.__cause__ is not None:
        return _message(error.__cause__)
    return " ".join(str(error).split()) or type(error).__name__


def _steps(traceback: TracebackType | None) -> Iterable[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next

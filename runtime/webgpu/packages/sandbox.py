"""A Jinja environment for text that others wrote: it can compute numbers and put text together, nothing else.

A kernel package may come from anywhere, so its templates and expressions are treated as hostile. What they may do is
listed; all else is refused:

1. *Syntax*: the nodes of `_NODES`. No blocks, inheritance, filters with bodies, or extensions.
2. *Attributes*: none. ``a.b`` looks ``b`` up in a mapping; there are besides the position in a loop and ``get`` of a
   dict. Subscripts are of mappings, sequences and text.
3. *Calls*: the functions given, ``get`` of a dict, and macros. *Filters*: ``replace``. *Tests*: none.
4. *Values*: whole numbers of at most `LARGEST_NUMBER` bits, text, and sequences and dicts of these. Only numbers and
   text are printed.
5. *Work*: `MOST_STEPS` iterations, calls, operators, includes and elements of sequences, `LARGEST_TEXT` characters put
   together, and `LONGEST` seconds, for each text that is rendered or expression evaluated.
6. *Files*: those of one folder and of ours, by plain name, regular, of at most `LARGEST_SOURCE` bytes.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
from jinja2 import nodes, runtime
from jinja2.visitor import NodeTransformer

from looplift.runtime.errors import LoopliftError
from looplift.runtime.files import read_bounded

LARGEST_SOURCE = 1 << 18
"""Bytes of a template, characters of an expression."""
LARGEST_TEXT = 1 << 20
"""Characters that one text takes to put together."""
LARGEST_NUMBER = 1024
"""Bits of a whole number."""
MOST_STEPS = 100_000
LONGEST = 2.0
"""Seconds."""

_NODES = """
    Template Output TemplateData For If Macro Include FromImport Assign Scope
    Const Name Getattr Getitem Slice Call Keyword Filter List Tuple Dict Pair Compare Operand Concat CondExpr
    Add Sub Mul Div FloorDiv Mod Pow Not Neg Pos And Or
""".split()
_LOOP = ("index", "index0", "first", "last", "length")
_REFUSED_NAMES = ("self", "super", "varargs", "kwargs", "caller")
_FORMAT = re.compile(r"%([ds%])")
_WEIGHED, _ITERATED, _JOINED = "weighed", "iterated", "joined"  # no template can name these filters


class _RefusedError(jinja2.TemplateRuntimeError):
    """What a text asked for is not on the list."""


class _Budget:
    """What is left of the work that one text may make."""

    def __init__(self) -> None:
        self._steps, self._characters, self._deadline = MOST_STEPS, LARGEST_TEXT, time.monotonic() + LONGEST

    def step(self, count: int = 1) -> None:
        self._steps -= count
        if self._steps < 0:
            raise _RefusedError(f"more than {MOST_STEPS:,} iterations, calls and operators")
        if time.monotonic() > self._deadline:
            raise _RefusedError(f"not done in {LONGEST:.0f} s")

    def write(self, count: int) -> None:
        self._characters -= count
        if self._characters < 0:
            raise _RefusedError(f"more than {LARGEST_TEXT:,} characters put together")


_budget: contextvars.ContextVar[_Budget] = contextvars.ContextVar("budget")


class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """See the module.

    Args:
        folder, shared: where templates lie, and where those that `folder` does not have.
        functions: what they may call; each has to be harmless for any arguments.
    """

    intercepted_binops = frozenset(jinja2.sandbox.SandboxedEnvironment.default_binop_table)

    def __init__(self, folder: Path, shared: Path, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            loader=_Folder(folder, shared),
            undefined=jinja2.StrictUndefined,
            finalize=_printable,
            optimized=False,  # it would work before there is a budget
            cache_size=64,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self.globals = dict(functions)
        self.filters = {"replace": _replace, _WEIGHED: _weighed, _ITERATED: _iterated, _JOINED: _joined}
        self.tests = {}
        self._functions = tuple(functions.values())

    def render_file(self, name: str, scope: Mapping[str, Any]) -> str:
        """The text that a template of the folder makes.

        Raises:
            LoopliftError: there is no such file, it has a fault, or asks for what is not allowed.
        """
        with _told(name):
            return self.get_template(name).render(scope)

    def render_text(self, text: str, scope: Mapping[str, Any]) -> str:
        """The text that a template makes.

        Raises:
            LoopliftError: as `render_file`.
        """
        with _told(repr(text[:80])):
            return self.from_string(_bounded(text)).render(scope)

    def check_file(self, name: str) -> None:
        """Reads and translates a template of the folder.

        Raises:
            LoopliftError: as `render_file`.
        """
        with _told(name):
            self.get_template(name)

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        """Every text comes by here, parsed, before it becomes Python."""
        return super()._generate(_Guard().visit(source), *arguments, **options)

    def concat(self, parts: Iterable[str]) -> str:
        """Puts the parts of a text together."""
        return _joined(parts)

    def get_template(self, *arguments: Any, **options: Any) -> jinja2.Template:
        """As jinja2's; an include is a step."""
        _budget.get().step()
        return super().get_template(*arguments, **options)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """What ``obj.attribute`` stands for."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if type(obj) is dict and attribute == "get":
            return obj.get
        if isinstance(obj, runtime.LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return self._missing(obj, attribute)

    def _missing(self, obj: Any, name: str) -> jinja2.Undefined:
        if isinstance(obj, jinja2.Undefined):
            obj._fail_with_undefined_error()
        return self.undefined(obj=obj, name=name)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """What ``obj[argument]`` stands for."""
        if isinstance(obj, Mapping | list | tuple | str | range):
            with contextlib.suppress(TypeError, LookupError):
                return obj[argument]
        return self._missing(obj, str(argument))

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a text may call it."""
        if isinstance(obj, runtime.Macro) or any(obj is function for function in self._functions):
            return True
        return isinstance(obj, types.BuiltinMethodType) and type(obj.__self__) is dict and obj.__name__ == "get"

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as jinja2's)
        """Calls it, if it may be called."""
        _budget.get().step()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """``left operator right``, if what comes out is known to be small."""
        _budget.get().step()
        if operator == "%" and isinstance(left, str):
            return _format(left, right)
        if isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple):
            return _sequence(operator, left, right)
        for number in (left, right):
            if not isinstance(number, int | float):
                raise _RefusedError(f"{operator} of a {type(number).__name__}")
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _require_bits(left.bit_length() * abs(right))
        return _number(super().call_binop(context, operator, left, right))


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """A budget for the work in the block, and one kind of error: whatever goes wrong there is the text's fault.

    Hostile text can make any Python code fail in many ways (recursion, overflow, nested too deeply to compile).
    """
    token = _budget.set(_Budget())
    try:
        yield
    except LoopliftError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise LoopliftError(f"{what}: {reason}") from error
    finally:
        _budget.reset(token)


class Expression:
    """An expression, translated once."""

    def __init__(self, environment: Sandbox, source: str) -> None:
        with _told(f"expression {source[:80]!r} has no value"):
            self._run = environment.compile_expression(_bounded(source), undefined_to_none=False)
        self._source = source

    def __call__(self, scope: Mapping[str, Any]) -> Any:
        """Its value.

        Raises:
            LoopliftError: it names something that is not in scope, or asks for what is not allowed.
        """
        with _told(f"expression {self._source[:80]!r} has no value"):
            value = self._run(scope)
            if isinstance(value, jinja2.Undefined):
                value._fail_with_undefined_error()
            if not isinstance(value, str | int | float | list | tuple | dict):
                raise _RefusedError(f"it is a {type(value).__name__}")
            return value


def _bounded(source: str) -> str:
    if len(source) > LARGEST_SOURCE:
        raise _RefusedError(f"longer than {LARGEST_SOURCE:,} characters")
    return source


class _Folder(jinja2.BaseLoader):
    """Templates of a folder and of the shared one, by the plain names of regular files."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self._folders = (folder, shared)

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """The text of one."""
        if not template or Path(template).name != template:
            raise LoopliftError(f"template {template!r} is not the name of a file in {self._folders[0]}")
        path = next(filter(Path.exists, (f / template for f in self._folders)), self._folders[0] / template)
        return read_bounded(path, LARGEST_SOURCE), str(path), lambda: False

    def list_templates(self) -> list[str]:
        """Their names."""
        return sorted(path.name for path in self._folders[0].iterdir() if path.suffix == ".jinja")


class _Guard(NodeTransformer):
    """Refuses nodes that are not listed, and has loops, sequences and concatenations checked where they run."""

    def visit(self, node: nodes.Node, *arguments: Any, **options: Any) -> Any:
        """Checks a node and all below it."""
        kind = type(node).__name__
        if kind not in _NODES:
            raise _RefusedError(f"{kind} is not allowed (line {node.lineno})")
        if isinstance(node, nodes.Name | nodes.Getattr):
            name = node.name if isinstance(node, nodes.Name) else node.attr
            if name.startswith("_") or name in _REFUSED_NAMES:
                raise _RefusedError(f"name {name!r} is not allowed (line {node.lineno})")
        if isinstance(node, nodes.Const):
            _number(node.value)
        below = self.generic_visit(node, *arguments, **options)
        if isinstance(below, nodes.For):
            below.iter = _filtered(below.iter, _ITERATED)
        elif isinstance(below, nodes.List | nodes.Dict) or (isinstance(below, nodes.Tuple) and below.ctx == "load"):
            return _filtered(below, _WEIGHED)
        elif isinstance(below, nodes.Concat):
            return _filtered(nodes.List(below.nodes, lineno=below.lineno), _JOINED)
        return below


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _printable(value: Any) -> Any:
    """Numbers and text are printed; an undefined value fails by itself, with its name."""
    if isinstance(value, str | int | float | jinja2.Undefined):
        return value
    raise _RefusedError(f"a {type(value).__name__} can't be printed")


def _weighed(sequence: Any) -> Any:
    """A sequence, each element of it and of those in it a step: what is shared counts as often as it is met."""
    for item in (*sequence, *sequence.values()) if isinstance(sequence, dict) else sequence:
        _budget.get().step()
        if isinstance(item, list | tuple | dict):
            _weighed(item)
        elif not isinstance(item, str | int | float):
            raise _RefusedError(f"a {type(item).__name__} in a sequence")
    return sequence


def _iterated(sequence: Any) -> Any:
    if not isinstance(sequence, list | tuple | range | Mapping | str):
        raise _RefusedError(f"a loop over a {type(sequence).__name__}")
    _budget.get().step(len(sequence))
    return sequence


def _joined(parts: Iterable[Any]) -> str:
    budget, kept = _budget.get(), []
    for part in parts:
        text = str(_printable(part))
        budget.write(len(text))
        kept.append(text)
    return "".join(kept)


def _replace(text: str, old: str, new: str) -> str:
    if not all(isinstance(part, str) for part in (text, old, new)):
        raise _RefusedError("replace is for text")
    _budget.get().write(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _format(pattern: str, values: Any) -> str:
    """``%d``, ``%s`` and ``%%``, without widths."""
    given = values if isinstance(values, tuple) else (values,)
    if re.sub(_FORMAT, "", pattern).count("%"):
        raise _RefusedError(f"format {pattern[:40]!r}: only %d, %s and %%")
    text = pattern % tuple(map(_printable, given))
    _budget.get().write(len(text))
    return text


def _sequence(operator: str, left: Any, right: Any) -> Any:
    if operator == "+" and type(left) is type(right):
        size = len(left) + len(right)
    elif operator == "*" and isinstance(right, int):
        size = len(left) * max(right, 0)
    else:
        raise _RefusedError(f"{operator} of a {type(left).__name__} and a {type(right).__name__}")
    budget = _budget.get()
    (budget.write if isinstance(left, str) else budget.step)(size)
    made = left + right if operator == "+" else left * right
    return made if isinstance(made, str) else _weighed(made)


def _number(value: Any) -> Any:
    if isinstance(value, int):
        _require_bits(value.bit_length())
    return value


def _require_bits(bits: int) -> None:
    if bits > LARGEST_NUMBER:
        raise _RefusedError(f"a number of more than {LARGEST_NUMBER} bits")


def bounded_range(*bounds: int) -> range:
    """``range``, of no more numbers than there may be steps.

    Raises:
        TemplateRuntimeError: there are more.
    """
    made = range(*bounds)
    if len(made) > MOST_STEPS:
        raise _RefusedError(f"a range of more than {MOST_STEPS:,} numbers")
    return made


def product(factors: Iterable[int]) -> int:
    """The product of whole numbers.

    Raises:
        TemplateRuntimeError: it is too large.
    """
    result = 1
    for factor in _iterated(factors):
        result = _number(result * factor)
    return result


def least(*values: Any) -> Any:
    """The smallest of the values, or of those in the only one."""
    return min(*map(_counted, values))


def greatest(*values: Any) -> Any:
    """The greatest of the values, or of those in the only one."""
    return max(*map(_counted, values))


def _counted(value: Any) -> Any:
    return value if isinstance(value, int | float) else _iterated(value)

"""Text of kernel packages may come from anyone: it computes numbers and text, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import looplift.runtime.ops
from looplift.runtime.errors import LoopliftError
from looplift.runtime.webgpu import check_package, update_digests
from looplift.runtime.webgpu.packages import sandbox as limits
from looplift.runtime.webgpu.packages.expressions import evaluate, make_environment
from looplift.runtime.webgpu.packages.package import load_package

SHIPPED = sorted(Path(looplift.runtime.ops.__path__[0]).glob("*/build/webgpu"))
SCOPE = {"shapes": {"x": (2, 3)}, "derive": {"n": 7}}

ESCAPES = [
    "''.__class__.__mro__[1].__subclasses__()",
    "''['__class__']",
    "shapes.x.__class__",
    "shapes.x['__class__']",
    "range.__globals__",
    "ceilDiv.__globals__['__builtins__'].__import__('os').system('COMMAND')",
    "ceilDiv.__globals__",
    "numel.__code__",
    "max.__self__",
    "{}.get.__self__",
    "{}.update",
    "[].append",
    "[].append(1)",
    "'{0.__class__}'.format(1)",
    "'{0.__class__}'.format",
    "'%(x)s' % {'x': 1}",
    "'x'|attr('__class__')",
    "[1]|map(attribute='__class__')|list",
    "'{0}'|format(1)",
    "lipsum.__globals__.os.popen('COMMAND').read()",
    "cycler.__init__.__globals__.os",
    "joiner",
    "namespace()",
    "dict(a=1)",
    "self.__init__",
    "self",
    "context",
    "environment",
    "shapes.keys()",
    "max([1, 2], key=ceilDiv)",
    "undefined_thing.x",
    "x is defined",
    "'a' is callable",
]

BOMBS = [
    "2 ** (2 ** 40)",
    "10 ** 10000000",
    "'a' * 10 ** 9",
    "[0] * 10 ** 9",
    "'%999999999d' % 1",
    "'%*d' % (10 ** 9, 1)",
    "range(10 ** 18)",
    "max(range(10 ** 9))",
    "numel(range(1, 99999))",
    "numel([2 ** 900, 2 ** 900])",
    "'a'|replace('', 'a' * 1000)|replace('', 'a' * 100000)",
    "0x" + "f" * 100_000,
    "9" * 5000,
    "(" * 5000 + "1" + ")" * 5000,
    "1" + "+1" * 10_000,
    "[" * 3000 + "]" * 3000,
    "not " * 5000 + "1",
    "x" + ".a" * 20_000,
    " ~ ".join(["'" + "a" * 1000 + "'"] * 2000),
    "'x' + " * 3000 + "'x'",
]

TEMPLATES = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% set r = range(999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in [1,2,3,4,5,6,7,8] %}" * 18 + "{% endfor %}" * 18,
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% include 'bad.wgsl.jinja' %}{% include 'bad.wgsl.jinja' %}",
    "{% set a = 'aaaaaaaa' %}" + "{% set a = a ~ a %}" * 60,
    "{% set a = 'aaaaaaaa' %}" + "{% set a = a + a %}" * 60,
    "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60 + "{{ a == b }}",
    "{% set a = (1, 2) %}" + "{% set a = (a, a) %}" * 60 + "{{ {a: 1}[a] }}",
    "{% set a = {0: 0} %}" + "{% set a = {0: a, 1: a} %}" * 60 + "{{ a }}",
    "{% set x %}{% for i in range(9999) %}" + "a" * 10_000 + "{% endfor %}{% endset %}",
    "{% macro m() %}" + "a" * 100_000 + "{% endmacro %}{% for i in range(9999) %}{{ m() }}{% endfor %}",
    "{% for i in range(9999) %}" + "a" * 10_000 + "{% endfor %}",
    "{% macro f() %}{{ f(a=kwargs, b=kwargs) }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ varargs }}{% endmacro %}{{ f() }}",
    "{% for i in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{% for i in [1, 2] %}{{ loop.__init__ }}{% endfor %}",
    "{% for i in [1, 2] %}{{ loop.cycle(1, 2) }}{% endfor %}",
    "{% import 'bad.wgsl.jinja' as m %}{{ m.__dict__ }}",
    "{% from 'bad.wgsl.jinja' import __class__ %}",
    "{% extends 'bad.wgsl.jinja' %}",
    "{% block b %}{{ self.b() }}{% endblock %}",
    "{% call range(3) %}{% endcall %}",
    "{% filter replace('a', 'b') %}{% endfilter %}",
    "{% include '../../../metadata.json' %}",
    "{% include '/etc/passwd' %}",
    "{% include ['nothing', 'bad.wgsl.jinja'] %}",
    "{{ [1, 2] }}",
    "{{ range }}",
    "{{ shapes }}",
    "{% if 1 %}" * 5000,
    "{% for i in range(1) %}" * 500 + "{% endfor %}" * 500,
    "a" * (limits.LARGEST_SOURCE + 1),
]


@pytest.fixture(autouse=True)
def in_time():
    """No text takes longer than it may, by some margin for a busy machine."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < limits.LONGEST + 15


def short(text: str) -> str:
    return text[:40]


@pytest.mark.parametrize("expression", [*ESCAPES, *BOMBS], ids=short)
def test_hostile_expressions_have_no_value(expression, tmp_path):
    trace = tmp_path / "trace"
    with pytest.raises(LoopliftError):
        evaluate(expression.replace("COMMAND", f"touch {trace}"), SCOPE)
    assert not trace.exists()


@pytest.mark.parametrize("text", [*TEMPLATES, *(f"{{{{ {text} }}}}" for text in ESCAPES + BOMBS)], ids=short)
def test_hostile_templates_make_no_text(text, tmp_path):
    (tmp_path / "bad.wgsl.jinja").write_text(text.replace("COMMAND", f"touch {tmp_path / 'trace'}"))
    with pytest.raises(LoopliftError):
        make_environment(tmp_path).render_file("bad.wgsl.jinja", SCOPE)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad.wgsl.jinja"]


def test_the_steps_are_counted_in_loops_over_constants(tmp_path):
    count = limits.MOST_STEPS // 16
    text = f"{{% for i in range({count}) %}}{{% for k in [1, 2, 3, 4] %}}{{% endfor %}}{{% endfor %}}"
    assert make_environment(tmp_path).render_text(text, {}) == ""
    with pytest.raises(LoopliftError, match="more than 100,000 iterations"):
        make_environment(tmp_path).render_text(text.replace(str(count), str(4 * count)), {})


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{{ 'vec%d<%s>%%' % (2, 'u32') }}", "vec2<u32>%"),
        ("{% for a, b in [(1, 2), (3, 4)] %}{{ a * b }}{{ '' if loop.last else ',' }}{% endfor %}", "2,12"),
        ("{{ {'a': 11}.get('a', 0) + {'a': 11}.get('b', 1) }}", "12"),
        ("{{ 'u32' | replace('u', 'f') ~ 4 }}", "f324"),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{{ 2 ** 32 - 1 }} {{ shapes.x[0] }} {{ shapes['x'][1:][0] }} {{ 7 // 2 }} {{ 7 % 4 }}", "4294967295 2 3 3 3"),
    ],
)
def test_what_kernels_need_is_there(text, made, tmp_path):
    assert make_environment(tmp_path).render_text(text, SCOPE) == made


@pytest.fixture
def package(tmp_path):
    """A copy of a shipped package, and a function that edits its manifest and brings the digests up to date."""
    folder = tmp_path / "webgpu"
    shutil.copytree(SHIPPED[0], folder)

    def edit(change, name="manifest.json"):
        path = folder / name
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        update_digests(folder)
        return folder

    return edit


COMMAND = "{{ ceilDiv.__globals__['__builtins__'].__import__('os').system('touch TRACE') }}"


@pytest.mark.parametrize("place", ["derive", "when", "type", "shader", "shape"])
def test_a_prepared_package_runs_no_command(place, package, device, tmp_path):
    trace = tmp_path / "trace"
    text = COMMAND.replace("TRACE", str(trace))

    def change(manifest):
        if place == "derive":
            manifest["derive"] = {"first": text[2:-2], **manifest["derive"]}
        elif place == "when":
            manifest["when"] = text[2:-2]
        elif place == "shape":
            manifest["outputs"]["v_final"]["shape"] = text[2:-2]
        elif place == "type":
            for binding in manifest["bindings"].values():
                if "type" in binding:
                    binding["type"] = text
        else:
            for file in (tmp_path / "webgpu").glob("*.jinja"):
                file.write_text(text + file.read_text())

    check = check_package(package(change), device)
    assert check.problem
    assert not trace.exists()


def walks(manifest):
    """The first pass of each variant that walks, whichever is chosen."""
    return [v["passes"][0] for v in manifest["variants"] if "dispatch" in v["passes"][0]]


def repeat(manifest, count):
    for variant in manifest["variants"]:
        if "dispatch" in variant["passes"][0]:
            variant["passes"].insert(0, {"repeat": {"count": count, "index": "k"}, "passes": variant["passes"][:1]})


@pytest.mark.parametrize(
    "change",
    [
        lambda m: repeat(m, 10**9),
        lambda m: m["bindings"]["run_counts"].update(scratch=10**15),
        lambda m: m["bindings"]["walk_shape"]["uniform"].update(limit=-1),
        lambda m: m["bindings"]["scan_output"].update(offset=-16),
        lambda m: [walk.update(dispatch={"x": 10**9}) for walk in walks(m)],
        lambda m: [walk.update(dispatch={"threads": -1}) for walk in walks(m)],
    ],
)
def test_sizes_are_bounded_before_anything_is_made(change, package, device):
    assert "not from 0 to" in check_package(package(change), device).problem


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(cases=7),
        lambda t: t["cases"].insert(0, 7),
        lambda t: t["cases"][0].update(inputs=[]),
        lambda t: t["cases"][0].update(attributes={"emit_previous": "x"}),
        lambda t: t["cases"][0]["inputs"].update(m=7),
        lambda t: t["cases"][0]["inputs"]["m"].update(shape=[5]),
        lambda t: t["cases"][0]["inputs"]["m"].update(dtype="object"),
        lambda t: t["cases"][0]["inputs"]["m"]["data"].update(values=["x"]),
        lambda t: t["cases"][0]["inputs"]["m"]["data"].update(values=[2**80]),
        lambda t: t["cases"][0]["outputs"]["v_final"].update(tolerance="x"),
    ],
)
def test_broken_tests_of_a_package_are_one_line(change, package, device):
    problem = check_package(package(change, "test.json"), device).problem
    assert problem
    assert "\n" not in problem


@pytest.mark.parametrize("name", ["manifest.json", "runs.wgsl.jinja", "metadata.json", "test.json"])
def test_a_pipe_in_a_package_is_not_opened(name, package, device, tmp_path):
    folder = package(lambda manifest: None)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert check_package(folder, device).problem


def test_a_deep_manifest_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(LoopliftError, match="not a readable JSON file"):
        load_package(tmp_path)

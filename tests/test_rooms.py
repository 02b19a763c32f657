"""How the project is laid out: who imports whom, what is installed, what every file keeps to."""

import ast
import collections
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("looplift", "passes", "patterns", "runtime")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
SCRIPTS = sorted(path for folder in ("examples", "benchmarks") for path in (ROOT / folder).glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAY_IMPORT = {
    "patterns": ("looplift.patterns",),
    "runtime": ("looplift.runtime",),
    "passes": ("looplift.passes", "looplift.patterns", "looplift.runtime.ops", "looplift.runtime.errors"),
    "looplift": ("looplift",),
}
ONLY_WHERE_USED = ("numba", "wgpu", "onnxruntime", "onnx_graphsurgeon", "matplotlib")
LONGEST = 400


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    """The dotted name that a source file is imported by."""
    room, *rest = path.relative_to(ROOT).with_suffix("").parts
    parts = ["looplift", *([] if room == "looplift" else [room]), *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, path: Path) -> Iterator[str]:
    """Dotted names that a file imports, relative ones resolved; ``from a import b`` gives ``a.b``."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def within(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in allowed)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_only_the_rooms_it_may(path: Path) -> None:
    allowed = MAY_IMPORT[path.relative_to(ROOT).parts[0]]
    ours = [module for module in imported(ast.parse(path.read_text()), path) if within(module, ("looplift",))]
    assert [module for module in ours if not within(module, allowed)] == []


def test_the_front_door_is_imported_by_no_room() -> None:
    front = {module_name(path) for path in SOURCES if path.relative_to(ROOT).parts[0] == "looplift"} - {"looplift"}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] != "looplift":
            modules = set(imported(ast.parse(path.read_text()), path))
            assert not {module for module in modules if any(within(module, (door,)) for door in front)}, path


FLOORS = {
    "patterns": ("graph", "engines", "loops", "recurrences"),
    "passes": ("graph", "clean", "count", "updates", "stack", "vectorize", "recurrences", "lift", "targets"),
}
"""The folders of a room, from the ground up: none imports one above it. A lift builds recurrences, so these come first."""


@pytest.mark.parametrize("room", FLOORS)
def test_no_floor_imports_one_above_it(room: str) -> None:
    floors = FLOORS[room]
    assert {path.parent.name for path in (ROOT / room).glob("*/__init__.py")} == set(floors)
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] != room or len(path.relative_to(ROOT).parts) < 3:
            continue
        above = floors[floors.index(path.relative_to(ROOT).parts[1]) + 1 :]
        modules = imported(ast.parse(path.read_text()), path)
        climbing = [m for m in modules if any(within(m, (f"looplift.{room}.{floor}",)) for floor in above)]
        assert climbing == [], path


def at_import_time(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported: not those of functions, nor under TYPE_CHECKING."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.stmt):
            yield node
        todo += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_heavy_packages_are_imported_where_they_are_used(path: Path) -> None:
    for statement in at_import_time(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            tree = ast.Module([statement], [])
            assert not [module for module in imported(tree, path) if within(module, ONLY_WHERE_USED)]


def test_import_looplift_loads_none_of_them() -> None:
    code = (
        "import sys, looplift, looplift.cli; looplift.optimize; looplift.Session; looplift.verify; "
        f"print([name for name in {ONLY_WHERE_USED!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", ["looplift", "looplift.passes.pipeline", "looplift.runtime.webgpu", "looplift.patterns"]
)
def test_a_tool_at_the_root_of_a_clone_finds_every_room(module: str) -> None:
    """However looplift is installed: here as if it were not, since an editable install has a finder of its own."""
    code = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if '__editable__' not in str(f)]; "
        f"sys.path.insert(0, ''); import {module} as found; print(found.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.startswith(str(ROOT)), done.stderr


MOST_FILES = 15


def test_no_folder_is_crowded() -> None:
    files = collections.Counter(path.parent for path in SOURCES)
    assert {name(folder): count for folder, count in files.items() if count > MOST_FILES} == {}


def test_no_file_imports_itself_by_way_of_others() -> None:
    modules = {module_name(path): path for path in SOURCES}
    needs: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = imported(ast.parse(path.read_text()), path)
        needs[module] = {m if m in modules else m.rpartition(".")[0] for m in found} & set(modules) - {module}
    assert tuple(graphlib.TopologicalSorter(needs).static_order())  # raises a CycleError, which names the circle


def test_every_package_is_installed() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no reader of TOML")
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent for path in SOURCES if path.name == "__init__.py"}
    packages = {module_name(folder / "__init__.py"): name(folder) for folder in folders}
    assert set(setup["packages"]) == set(packages)
    for package, folder in packages.items():
        assert installed_from(package, setup["package-dir"]) == folder


def installed_from(package: str, mapping: dict[str, str]) -> str:
    """The folder that setuptools takes a package from: the longest mapped prefix, then the rest of the name."""
    parts = package.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in mapping:
            return "/".join([mapping[prefix], *parts[length:]])
    return "/".join(parts)


def test_every_folder_with_code_is_a_package() -> None:
    assert {path.parent for path in SOURCES} == {path.parent for path in SOURCES if path.name == "__init__.py"}


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS, *TESTS], ids=name)
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt)/\w")


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS, *TESTS, *sorted(ROOT.glob("*.md")), ROOT / ".ci/run"], ids=name)
def test_no_paths_of_a_machine(path: Path) -> None:
    if path != Path(__file__).resolve():
        assert MACHINE_PATH.findall(path.read_text()) == []


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not is_overload(node):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    method
                    for method in node.body
                    if isinstance(method, ast.FunctionDef)
                    and not method.name.startswith("_")
                    and not is_overload(method)
                )


def is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)


@pytest.mark.parametrize("path", [*SOURCES, *sorted((ROOT / "examples").glob("*.py"))], ids=name)
def test_public_names_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the module has none"
    assert [node.name for node in public_definitions(tree) if not ast.get_docstring(node)] == []

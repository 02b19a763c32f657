"""`packaging/wheels.py`: wheels that install for other systems, and what it checks of a library."""

from __future__ import annotations

import platform
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from looplift.runtime.onnxruntime.compile import NAME, SOURCES, compile_library, find_compiler
from tests.runtime.kernel_cases import need_compiler

ROOT = Path(__file__).resolve().parents[1]
WHEELS = runpy.run_path(str(ROOT / "packaging" / "wheels.py"))


def fake_wheel(folder: Path) -> Path:
    path = folder / "looplift-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("looplift/__init__.py", "")
        wheel.writestr("looplift/runtime/onnxruntime/liblooplift_onnxruntime.so", b"of the machine that made it")
        wheel.writestr("looplift-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: looplift\nVersion: 0.1.0\n")
        wheel.writestr("looplift-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n")
        wheel.writestr("looplift-0.1.0.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("system", WHEELS["SYSTEMS"], ids=lambda system: system.target)
def test_a_wheel_has_the_library_of_its_system_alone(system, tmp_path) -> None:
    made_for_it = tmp_path / system.library
    made_for_it.write_bytes(b"of the other system")
    made = WHEELS["assemble"](fake_wheel(tmp_path), made_for_it, system.tag, tmp_path)
    assert made.name == f"looplift-0.1.0-py3-none-{system.tag}.whl"
    target = tmp_path / "installed"
    first = system.tag.split(".")[0]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*command, "--platform", first, "--only-binary=:all:", str(made)], check=True)
    files = [path for path in target.rglob("*") if path.suffix in (".so", ".dylib", ".dll")]
    assert files == [target / "looplift/runtime/onnxruntime" / system.library]
    assert files[0].read_bytes() == b"of the other system"


def test_names_of_libraries_are_those_that_are_looked_for() -> None:
    assert NAME in {system.library for system in WHEELS["SYSTEMS"]}


@pytest.mark.slow
def test_fused_instructions_are_found(library, tmp_path) -> None:
    if platform.machine() != "x86_64" or shutil.which("objdump") is None:
        pytest.skip("needs objdump and a compiler for x86-64")
    assert WHEELS["fused_instructions"](library) == 0
    fused = tmp_path / "fused.so"
    compile_library(fused, flags=["-fPIC", "-O2", "-mfma", "-ffp-contract=fast"])
    assert WHEELS["fused_instructions"](fused) > 0
    text = tmp_path / "text.so"
    text.write_text("no library")
    assert WHEELS["fused_instructions"](text) is None


@pytest.mark.slow
def test_rows_of_made_up_bits_hang_on_the_rounding(tmp_path, monkeypatch) -> None:
    need_compiler()
    compiler = find_compiler()
    right = WHEELS["digest_of_rows"](compiler)
    first, *rows = right.splitlines()
    assert first == "exact"
    assert len(set(rows)) == len(rows) == 16
    assert WHEELS["digest_of_rows"]([*compiler, "-DROWS_PLAIN_ONLY"]) == right
    assert (SOURCES / "rows_plain.c").read_text().count("ROWS_PLAIN_ONLY") == 1

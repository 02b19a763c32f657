"""Makes the wheels with the kernels for ONNX Runtime, for all systems from one machine, by the package ziglang.

    pip install -e '.[zig]' && python packaging/wheels.py --out dist

A wheel is what `pip wheel` makes of this folder, with the library of one system in it, for every Python 3. What could
be checked of each is printed: that no instruction fuses products with sums, where a disassembler (binutils-multiarch)
knows the format, and that random rows have the same bits, where the system runs here or in an emulator (qemu-user).
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import hashlib
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAKER: dict[str, Any] = runpy.run_path(str(ROOT / "runtime" / "onnxruntime" / "compile.py"))
ZIG = (sys.executable, "-m", "ziglang", "cc")
INSIDE = "looplift/runtime/onnxruntime"
"""Where the library is in a wheel."""

FUSED = re.compile(r"\tv?fn?m(?:add|sub)\w*\s|\tfml[as]\s|\tfn?m(?:add|sub)\s")
"""Instructions of x86-64 and aarch64 that multiply and add with one rounding, as objdump writes them."""


@dataclasses.dataclass(frozen=True)
class System:
    """A system to make a wheel for.

    Attributes:
        tag: as the wheel's file name has it.
        target: zig's name of it, with the oldest version of the system's library that will do.
        library: the file name.
        runs: zig's name of the same processor for programs that need no libraries, and what runs them; none if nothing.
        flags: more flags.
    """

    tag: str
    target: str
    library: str
    runs: tuple[str, str] | None = None
    flags: tuple[str, ...] = ("-fPIC",)


SYSTEMS = (
    System(
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "x86_64-linux-gnu.2.17",
        "liblooplift_onnxruntime.so",
        ("x86_64-linux-musl", "qemu-x86_64"),
    ),
    System(
        "manylinux_2_17_aarch64.manylinux2014_aarch64",
        "aarch64-linux-gnu.2.17",
        "liblooplift_onnxruntime.so",
        ("aarch64-linux-musl", "qemu-aarch64"),
    ),
    System("macosx_11_0_x86_64", "x86_64-macos.11.0", "liblooplift_onnxruntime.dylib"),
    System("macosx_11_0_arm64", "aarch64-macos.11.0", "liblooplift_onnxruntime.dylib"),
    System("win_amd64", "x86_64-windows-gnu", "looplift_onnxruntime.dll", flags=()),
)


def make_base(folder: Path) -> Path:
    """The wheel that pip makes here."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def assemble(base: Path, library: Path, tag: str, out: Path) -> Path:
    """Writes a wheel like `base` with another library, for every Python 3 on the systems of `tag`."""
    name, version, *_ = base.name.split("-")
    made = out / f"{name}-{version}-py3-none-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(base) as wheel:
        files = {
            entry: wheel.read(entry) for entry in wheel.namelist() if not entry.endswith((".so", ".dylib", ".dll"))
        }
    files[f"{INSIDE}/{library.name}"] = library.read_bytes()
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: looplift\nRoot-Is-Purelib: false\n{tags}".encode()
    files.pop(f"{info}/RECORD", None)
    record = "".join(f"{entry},sha256={_digest(data)},{len(data)}\n" for entry, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as wheel:
        for entry, data in sorted(files.items()):
            wheel.writestr(zipfile.ZipInfo(entry, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return made


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def fused_instructions(library: Path) -> int | None:
    """How many instructions of a library fuse a product with a sum; None where no disassembler knows its format."""
    if shutil.which("objdump") is None:
        return None
    done = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=False)
    return len(FUSED.findall(done.stdout)) if done.returncode == 0 and "\tret" in done.stdout else None


def digest_of_rows(compiler: Sequence[str], command: Sequence[str] = ()) -> str:
    """What the rows of made-up bits are, by a program that `compiler` makes and `command` runs."""
    sources = MAKER["SOURCES"]
    flags = [flag for flag in MAKER["FLAGS"] if flag not in ("-shared", "-s")]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "digest"
        files = [ROOT / "packaging" / "digest.c", *sorted(sources.glob("*.c"))]
        subprocess.run([*compiler, *flags, f"-I{sources}", "-o", program, *files], check=True)
        return subprocess.run([*command, program], capture_output=True, text=True, check=True).stdout


def check(system: System, library: Path) -> str:
    """What could be checked, in words.

    Raises:
        SystemExit: it is wrong.
    """
    fused = fused_instructions(library)
    if fused:
        raise SystemExit(f"{system.tag}: {fused} instructions fuse products with sums")
    words = ["not disassembled" if fused is None else "nothing is fused"]
    if system.runs is None:
        return f"{words[0]}, not run"
    target, emulator = system.runs
    here = target.startswith(platform.machine()) and sys.platform == "linux"
    if not here and shutil.which(emulator) is None:
        return f"{words[0]}, not run (no {emulator})"
    found = digest_of_rows([*ZIG, "-target", target, "-static"], [] if here else [emulator])
    if found != digest_of_rows(MAKER["find_compiler"]()):
        raise SystemExit(f"{system.tag}: rows differ from those of this machine's compiler:\n{found}")
    return f"{words[0]}, random rows have the same bits {'here' if here else f'in {emulator}'}"


def main() -> None:
    """Makes and checks them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder (dist)")
    parser.add_argument("--only", choices=[system.tag for system in SYSTEMS], help="one system")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        base = make_base(Path(folder))
        for system in SYSTEMS:
            if options.only in (None, system.tag):
                library = Path(folder) / system.library
                MAKER["compile_library"](library, [*ZIG, "-target", system.target], system.flags)
                made = assemble(base, library, system.tag, options.out)
                print(f"{made.name}: library of {library.stat().st_size:,} bytes, {check(system, library)}")


if __name__ == "__main__":
    main()

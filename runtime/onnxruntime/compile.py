"""Compiles the library of kernels for ONNX Runtime, by a C compiler of the machine or by the package ziglang.

It imports nothing but Python's own modules, since the installation runs it where nothing else is there yet.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent

NAME = {"darwin": "liblooplift_onnxruntime.dylib", "win32": "looplift_onnxruntime.dll"}.get(
    sys.platform, "liblooplift_onnxruntime.so"
)
"""The library's file name on this system."""

FLAGS = (
    *("-std=gnu11", "-O3", "-fno-inline-functions", "-fvisibility=hidden", "-shared", "-s"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
"""Nothing that would let a compiler round otherwise than the source says: products and sums are not contracted.

Without regard to errno and to what traps, which changes no result, rows of 16-bit floats become vectors. Functions
that are not marked are not inlined, which would make the library a tenth larger and no faster.
"""


class CompilerError(Exception):
    """There is no C compiler, or it failed; the message is one line."""


def find_compiler() -> list[str]:
    """The command of a C compiler: what ``CC`` says, one that the machine has, or that of the package ziglang.

    Raises:
        CompilerError: there is none.
    """
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CompilerError("there is no C compiler: install one (cc, gcc or clang), or the package ziglang")


def compile_library(
    output: Path, compiler: Sequence[str] = (), flags: Sequence[str] | None = None, sources: Path = SOURCES
) -> None:
    """Writes the library to a file, whole or not at all.

    Args:
        output: the file.
        compiler: its command; empty: see `find_compiler`.
        flags: for another system than this.
        sources: the folder of the C files.

    Raises:
        CompilerError: there is no C compiler, or it failed.
        OSError: the file can't be written.
    """
    command = list(compiler) or find_compiler()
    more = (["-fPIC"] if sys.platform != "win32" else []) if flags is None else list(flags)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".kernels-") as folder:
        made = Path(folder) / output.name
        files = [str(path) for path in sorted(sources.glob("*.c"))]
        command += [*FLAGS, *more, "-o", str(made), *files]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CompilerError(f"{command[0]} can't be run: {error.strerror}") from error
        if done.returncode != 0 or not made.is_file():
            words = " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"
            raise CompilerError(f"{command[0]} failed: {words}")
        made.replace(output)

"""The C program of docs/onnxruntime.md, compiled and run against the ONNX Runtime that is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import onnxruntime
import pytest

import looplift
from looplift.runtime.onnxruntime.compile import SOURCES, find_compiler

DOC = Path(__file__).resolve().parents[2] / "docs" / "onnxruntime.md"

STEPS = """<ir_version: 8, opset_import: ["": 17]>
g (int64 M, float[D] v, float[D] s) => (float[D] y, float[n,D] z) {
    y, z = Loop (M, , v) <body = b (int64 i, bool c, float[D] p) => (bool c2, float[D] q, float[D] r) {
        c2 = Identity (c)
        q = Add (p, s)
        r = Identity (q)
    }>
}"""

USED = {
    "GetErrorMessage": (2, "const char *(*{})(OrtStatus *)"),
    "CreateEnv": (3, "OrtStatus *(*{})(int, const char *, OrtEnv **)"),
    "CreateSession": (7, "OrtStatus *(*{})(OrtEnv *, const char *, OrtSessionOptions *, OrtSession **)"),
    "Run": (
        9,
        "OrtStatus *(*{})(OrtSession *, void *, const char *const *, const OrtValue *const *, size_t, "
        "const char *const *, size_t, OrtValue **)",
    ),
    "CreateSessionOptions": (10, "OrtStatus *(*{})(OrtSessionOptions **)"),
    "CreateTensorWithDataAsOrtValue": (
        49,
        "OrtStatus *(*{})(OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)",
    ),
    "GetTensorMutableData": (51, "OrtStatus *(*{})(OrtValue *, void **)"),
    "GetTensorShapeElementCount": (64, "OrtStatus *(*{})(OrtTensorTypeAndShapeInfo *, size_t *)"),
    "GetTensorTypeAndShape": (65, "OrtStatus *(*{})(OrtValue *, OrtTensorTypeAndShapeInfo **)"),
    "CreateCpuMemoryInfo": (69, "OrtStatus *(*{})(int, int, OrtMemoryInfo **)"),
    "RegisterCustomOpsLibrary_V2": (228, "OrtStatus *(*{})(OrtSessionOptions *, const char *)"),
}
"""What the program calls of the C API, by position; the package on PyPI has no header."""


def header() -> str:
    """A header with as much of the C API as the program needs."""
    kinds = "Status Env SessionOptions Session MemoryInfo Value TensorTypeAndShapeInfo".split()
    members, place = [], 0
    for name, (position, declaration) in USED.items():
        if position > place:
            members.append(f"void *before_{name}[{position - place}];")
        members.append(f"{declaration.format(name)};")
        place = position + 1
    return "\n".join(
        [
            "#include <stddef.h>\n#include <stdint.h>",
            *(f"typedef struct Ort{kind} Ort{kind};" for kind in kinds),
            f"typedef struct {{ {' '.join(members)} }} OrtApi;",
            "typedef struct { const OrtApi *(*GetApi)(uint32_t); const char *(*GetVersionString)(void); } OrtApiBase;",
            "const OrtApiBase *OrtGetApiBase(void);",
            "enum { ORT_API_VERSION = 17, ORT_LOGGING_LEVEL_WARNING = 2, OrtArenaAllocator = 1, OrtMemTypeDefault = 0,",
            "ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7 };",
        ]
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the engine's library is found by its name on Linux")
def test_the_program_of_the_docs(library, tmp_path) -> None:
    (program,) = re.findall(r"```c\n(.*?)```", DOC.read_text(), re.DOTALL)
    (printed,) = re.findall(r"prints\n`(.*?)`", DOC.read_text())
    (tmp_path / "program.c").write_text(program)
    (tmp_path / "onnxruntime_c_api.h").write_text(header())
    (engine,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    built = tmp_path / "program"
    command = [*find_compiler(), "-Wall", "-Werror", "-I", tmp_path, "-o", built, tmp_path / "program.c", engine]
    subprocess.run(command, check=True)
    model = tmp_path / "m.onnx"
    lifted = looplift.optimize(onnx.parser.parse_model(STEPS))
    del lifted.functions[:]  # so that it runs by the kernel or not at all
    onnx.save(lifted, model)
    (tmp_path / "libonnxruntime.so.1").symlink_to(engine)  # as it calls itself
    paths = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([built, model, library], capture_output=True, text=True, env=paths, check=False)
    assert done.stdout == f"{printed}\n", done.stderr


def test_the_positions_are_those_of_the_library() -> None:
    """What both declare, they declare alike."""
    ours = dict(re.findall(r"ORT_(\w+) = (\d+),", (SOURCES / "ort_api.h").read_text()))
    shared = [name for name in USED if name in ours]
    assert len(shared) == 2
    assert all(USED[name][0] == int(ours[name]) for name in shared)

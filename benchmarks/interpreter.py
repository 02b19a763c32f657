"""Measures the interpreter on loops that stay loops, against ONNX Runtime and onnx.reference, in one run.

Prints a table and writes it to interpreter.md beside this file. Every engine gets the same model and inputs; a time is
the best of several runs; onnx.reference runs fewer iterations and its time is scaled.
"""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

from looplift.runtime import Session

Feeds = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and the inputs for so many iterations."""

    name: str
    iterations: int
    model: onnx.ModelProto
    feeds: Callable[[int], Feeds]
    reference: bool = True
    """Whether onnx.reference gives this loop's values, so that its time means something."""


def loop(body: str, *, state: str = "float[N]", inputs: str = "", row: str = "q") -> onnx.ModelProto:
    """A model with one Loop; the body computes q from p and stacks a row."""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64 M, {state} v{inputs}) => ({state} y, float[R, N] z) {{
            on = Constant <value = bool {{1}}> ()
            y, z = Loop <body = b (int64 i, bool c, {state} p) => (bool c2, {state} q, float[N] r) {{
                c2 = Identity(c)
                {body}
                r = Identity({row})
            }}> (M, on, v)
        }}""")


def elementwise(count: int) -> str:
    """A body of `count` ops, each fed by the one before."""
    ops = ["Add({x}, s)", "Mul({x}, h)", "Sub({x}, s)", "Tanh({x})"]
    lines = [f"t{n} = {ops[n % 4].format(x=f't{n - 1}' if n else 'p')}" for n in range(count - 1)]
    return "\n".join([*lines, f"q = Add(t{count - 2}, s)"])


SCAN = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N] v, float[T, N] a, float[T, N] b) => (float[N] y, float[T, N] z) {
        y, z = Scan <num_scan_inputs = 2, body = b (float[N] p, float[N] c, float[N] d) => (float[N] q, float[N] r) {
            m = Mul(p, c)
            q = Add(m, d)
            r = Identity(q)
        }> (v, a, b)
    }""")
NESTED = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (int64 M, float[N] v, float[N] s) => (float[N] y) {
        on = Constant <value = bool {1}> ()
        ten = Constant <value = int64 {10}> ()
        y = Loop <body = outer (int64 i, bool c, float[N] p) => (bool c2, float[N] q) {
            c2 = Identity(c)
            q = Loop <body = inner (int64 j, bool d, float[N] u) => (bool d2, float[N] w) {
                d2 = Identity(d)
                w = Add(u, s)
            }> (ten, on, p)
        }> (M, on, v)
    }""")


def vectors(**shapes: tuple[int, ...]) -> Callable[[int], Feeds]:
    """Inputs of these shapes; a -1 is the number of iterations. M is that number."""

    def make(iterations: int) -> Feeds:
        rng = np.random.default_rng(0)
        filled = {n: tuple(iterations if d == -1 else d for d in shape) for n, shape in shapes.items()}
        feeds = {n: (rng.random(shape) * 0.5).astype(np.float32) for n, shape in filled.items()}
        return {"M": np.array(iterations), **feeds}

    return make


STEP = ", float[N] s"
CASES = [
    Case("Add-step, dim 4, stacked", 100_000, loop("q = Add(p, s)", inputs=STEP), vectors(v=(4,), s=(4,)), False),
    Case("Scan, Mul-Add, dim 4, stacked", 100_000, SCAN, vectors(v=(4,), a=(-1, 4), b=(-1, 4)), False),
    Case(
        "20 element-wise ops, dim 4",
        20_000,
        loop(elementwise(20), inputs=f"{STEP}, float[N] h"),
        vectors(v=(4,), s=(4,), h=(4,)),
        False,
    ),
    Case(
        "MatMul-Add, dim 64",
        20_000,
        loop("m = MatMul(w, p)\nq = Add(m, s)", inputs=f"{STEP}, float[N, N] w"),
        vectors(v=(64,), s=(64,), w=(64, 64)),
        False,
    ),
    Case(
        "Gather by iteration, Add",
        50_000,
        loop("x = Gather(xs, i)\nq = Add(p, x)", inputs=", float[R, N] xs"),
        vectors(v=(4,), xs=(-1, 4)),
        False,
    ),
    Case("nested: 10 adds an iteration", 10_000, NESTED, vectors(v=(4,), s=(4,))),
]


def best(run: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(case: Case) -> tuple[float, float, float]:
    """Seconds an iteration in looplift, ONNX Runtime and onnx.reference, after checking that the first two agree."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # more only wait for each other in bodies of this size
    ours = Session(case.model, device="numpy")
    theirs = onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [info.name for info in case.model.graph.input]
    feeds = {name: value for name, value in case.feeds(case.iterations).items() if name in names}
    for a, b in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    few = max(100, case.iterations // 50)
    fewer = {name: value for name, value in case.feeds(few).items() if name in names}
    reference = ReferenceEvaluator(case.model)
    return (
        best(lambda: ours.run(None, feeds)) / case.iterations,
        best(lambda: theirs.run(None, feeds)) / case.iterations,
        best(lambda: reference.run(None, fewer), 2) / few,
    )


def main() -> None:
    """Measure every case, print the table and write it."""
    lines = [
        f"Microseconds an iteration, best of five runs, one thread; numpy {np.__version__}, "
        f"ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}.",
        "",
        "| loop | iterations | looplift | ONNX Runtime | onnx.reference | looplift / ORT | reference / looplift |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        ours, theirs, reference = measure(case)
        row = f"| {case.name} | {case.iterations:,} | {ours * 1e6:.2f} | {theirs * 1e6:.2f} | {reference * 1e6:.1f} "
        lines.append(f"{row}| {ours / theirs:.2f} | {reference / ours:.0f} |")
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""Lifts a loop that builds a time grid, verifies it, and runs it three ways.

    python examples/time_grid.py

A sampler exported with its step size as an input walks t = t + dt, n times, and keeps every t. An engine runs that as
n iterations; looplift makes it one node. Adding up rounds in every step, so ``t0 + k * dt`` is not the same: the lifted
node gives the bits of the loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser

import looplift

TIME_GRID = """
<ir_version: 10, opset_import: ["" : 21]>
time_grid (int64 steps, float t0, float dt) => (float t_end, float[steps] grid) {
  yes = Constant <value = bool {1}> ()
  [time_grid] t_end, grid = Loop <body = step (int64 k, bool go, float t) => (bool go_on, float t_next, float t_now) {
    go_on  = Identity(go)
    t_now  = Identity(t)
    t_next = Add(t, dt)
  }> (steps, yes, t0)
}
"""

STEPS = 100_000


def main() -> int:
    """Prints what is lifted, the verification and the timings; returns 1 if anything differs."""
    original = onnx.parser.parse_model(TIME_GRID)
    lifted = looplift.optimize(original)

    print(looplift.explain(original))
    print("\nbefore:", *_op_types(original), "\nafter: ", *_op_types(lifted))

    check = looplift.verify(original, lifted)
    print(f"\nverify: {check}")

    feeds = {"steps": np.array(STEPS), "t0": np.array(0, np.float32), "dt": np.array(0.1, np.float32)}
    print(f"\n{STEPS:,} steps of 0.1 in float32:")
    grids = [_run(label, run, feeds) for label, run in _runners(original, lifted)]
    exact = all(grid.tobytes() == grids[0].tobytes() for grid in grids)
    multiplied = np.float32(0) + np.arange(STEPS, dtype=np.float32) * np.float32(0.1)
    print(f"  all of them the same bits: {'yes' if exact else 'NO'}")
    print(f"  the last t: {grids[0][-1]!s}; t0 + k * dt would give {multiplied[-1]!s}")
    return 0 if check and exact else 1


def _op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _runners(original: onnx.ModelProto, lifted: onnx.ModelProto) -> list[tuple[str, Callable[..., Any]]]:
    kernel = looplift.Session(lifted)
    runners = [
        ("the loop, in looplift's interpreter", looplift.Session(original, "numpy").run),
        (f"the lifted node, kernel on {kernel.device.split(' (')[0]}", kernel.run),
    ]
    try:
        import onnxruntime
    except ImportError:
        return runners
    session = onnxruntime.InferenceSession(original.SerializeToString(), providers=["CPUExecutionProvider"])
    return [("the loop, in ONNX Runtime", session.run), *runners]


def _run(label: str, run: Callable[..., Any], feeds: dict[str, np.ndarray]) -> np.ndarray:
    run(None, feeds)
    start = time.perf_counter()
    _, grid = run(None, feeds)
    print(f"  {label:<45}{(time.perf_counter() - start) * 1e3:9.2f} ms")
    return np.asarray(grid)


if __name__ == "__main__":
    sys.exit(main())

"""PrefixSum and LinearRecurrence on the host against ONNX Runtime's Scan.

Prints a table and writes it to ``recurrences.md`` beside this file. Every time is the best of some runs.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import onnx.parser
import onnxruntime

from looplift.runtime.ops import all_ops, compiled

SHAPES = [(1_000, 4_096), (10_000, 256), (100_000, 16), (100_000, 1)]

SCANS = {
    "PrefixSum": """
        scan (float[n] v_initial, float[t, n] x) => (float[n] v_final, float[t, n] scan_output) {
            v_final, scan_output = Scan <num_scan_inputs = 1, body = body (float[n] v, float[n] now) => (
                float[n] updated, float[n] emitted
            ) {
                updated = Add (v, now)
                emitted = Identity (updated)
            }> (v_initial, x)
        }""",
    "LinearRecurrence": """
        scan (float[n] v_initial, float[t, n] a, float[t, n] b) => (float[n] v_final, float[t, n] scan_output) {
            v_final, scan_output = Scan <num_scan_inputs = 2, body = body (float[n] v, float[n] f, float[n] now) => (
                float[n] updated, float[n] emitted
            ) {
                product = Mul (f, v)
                updated = Add (product, now)
                emitted = Identity (updated)
            }> (v_initial, a, b)
        }""",
}


def best(run: Callable[[], object], repeat: int) -> float:
    """The shortest of `repeat` times, in milliseconds."""
    shortest = math.inf
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        shortest = min(shortest, (time.perf_counter() - begin) * 1e3)
    return shortest


def main() -> None:
    rng = np.random.default_rng(0)
    lines = [
        "# Recurrences over time on the host, float32, both outputs, milliseconds",
        "",
        "| op | time | columns | ONNX Runtime Scan | by numpy alone | times faster | with numba | times faster |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, text in SCANS.items():
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for steps, columns in SHAPES:
            names = [value.name for value in session.get_inputs()]
            inputs = [rng.uniform(-1, 1, size=(steps, columns)).astype(np.float32) for _ in names]
            inputs[0] = inputs[0][0]
            kernel = functools.partial(all_ops()[name].numpy, inputs, {}, (True, True))
            scan = functools.partial(session.run, None, dict(zip(names, inputs, strict=True)))
            expected, theirs = scan(), best(scan, 3)
            cells = []
            for worth in (math.inf, 0):
                with mock.patch.object(compiled, "WORTH", worth):
                    assert all(np.array_equal(a, b) for a, b in zip(expected, kernel(), strict=True)), "other bits"
                    ours = best(kernel, 10)
                cells.append(f"{ours:.2f} | {theirs / ours:.1f}")
            lines.append(f"| {name} | {steps:,} | {columns:,} | {theirs:.2f} | {' | '.join(cells)} |")
    table = "\n".join(lines) + "\n"
    print(table, end="")
    Path(__file__).with_suffix(".md").write_text(table)


if __name__ == "__main__":
    main()

"""AddStep on the host against ONNX Runtime's Loop and against writing the same output once.

Prints a table and writes it to ``add_step.md`` beside this file. Every time is the best of some runs, taken in turns.
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

SHAPES = [(1_000_000, 1), (100_000, 16), (10_000, 100), (1_000, 10_000), (100, 100_000)]

LOOP = """
<ir_version: 8, opset_import: ["": 17]>
loop (int64 M, float[n] v_initial, float[n] step) => (float[n] v_final, float[m, n] scan_output) {
    on = Constant <value = bool {1}> ()
    v_final, scan_output = Loop (M, on, v_initial) <body = body (int64 i, bool c, float[n] v) => (
        bool still, float[n] updated, float[n] emitted
    ) {
        still = Identity (c)
        updated = Add (v, step)
        emitted = Identity (updated)
    }>
}
"""


def best(runs: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The shortest of `repeat` times of each run, in milliseconds; they take turns, so that all meet the same load."""
    times = dict.fromkeys(runs, math.inf)
    for _ in range(repeat):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name] = min(times[name], (time.perf_counter() - begin) * 1e3)
    return times


def by_numpy(kernel: Callable[..., object], *arguments: object) -> object:
    """The kernel as it runs where numba is not installed."""
    with mock.patch.object(compiled, "WORTH", math.inf):
        return kernel(*arguments)


def fill(shape: tuple[int, int]) -> None:
    np.empty(shape, np.float32).fill(1)


def main() -> None:
    kernel = all_ops()["AddStep"].numpy
    session = onnxruntime.InferenceSession(
        onnx.parser.parse_model(LOOP).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    lines = [
        "# AddStep on the host, float32, both outputs, milliseconds",
        "",
        "| M | columns | ONNX Runtime Loop | fill of the output | by numpy alone | times faster | share "
        "| with numba | times faster | share |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for count, columns in SHAPES:
        limit = np.array(count)
        initial, step = (rng.normal(size=(2, columns)) * [[1], [0.01]]).astype(np.float32)
        feeds = {"M": limit, "v_initial": initial, "step": step}
        runs: dict[str, Callable[[], object]] = {
            "numba": functools.partial(kernel, [limit, None, initial, step], {}, (True, True)),
            "numpy": functools.partial(by_numpy, kernel, [limit, None, initial, step], {}, (True, True)),
            "fill": functools.partial(fill, (count, columns)),
        }
        loop = {"loop": functools.partial(session.run, None, feeds)}
        expected = session.run(None, feeds)
        for got in (runs["numba"](), runs["numpy"]()):
            assert isinstance(got, tuple)
            assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True)), "not the same bits"
        took = best(runs, 30) | best(loop, 3)
        lines.append(
            f"| {count:,} | {columns:,} | {took['loop']:.2f} | {took['fill']:.2f} | "
            + " | ".join(
                f"{took[way]:.2f} | {took['loop'] / took[way]:.1f} | {took['fill'] / took[way]:.2f}"
                for way in ("numpy", "numba")
            )
            + " |"
        )
    many = functools.partial(
        kernel, [np.array(10**9), None, np.zeros(1, "f4"), np.full(1, 0.1, "f4")], {}, (True, False)
    )
    took = best({"final": many}, 30)
    lines += ["", "share: of the speed at which the same memory can be filled."]
    lines += ["", f"v_final alone for M = 1e9: {took['final']:.2f} ms"]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()

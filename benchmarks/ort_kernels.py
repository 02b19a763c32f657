"""Loops in ONNX Runtime four ways, in one run: as written, in standard operators, as our nodes by their definitions,
and as our nodes by the kernels in C.

Prints a table, writes it to ``onnxruntime.md`` and draws ``onnxruntime.png``, beside this file. All models run in the
same process on the same inputs, in turns; a time is the best of several runs; outputs are compared bit for bit first.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from standard import (
    FACTORS,
    READ_X,
    ROWS,
    SCAN,
    SECONDS,
    STEP,
    Case,
    _feeds,
    _with_width,
    exports,
    hard,
    known,
    loop,
    model,
    narrow,
    same,
)

import looplift

TURN = 0.1
"""Seconds, at least one run, after which it is another's turn."""


@dataclasses.dataclass(frozen=True)
class Row:
    """Seconds of one case, and of a fill of its largest output."""

    case: Case
    original: float
    standard: float
    definition: float
    kernel: float
    fill: float


def sizes() -> list[Case]:
    """Each recurrence from narrow and long to wide and short."""
    steps = loop("q = Add (p, s)", inputs=STEP)
    sums = loop(f"{READ_X} q = Add (p, x_now)", inputs=ROWS)
    linear = model(SCAN.format(body="m = Mul (a_now, p) q = Add (m, x_now)"))
    average = loop(f"{READ_X} m = Mul (p, s) q = Add (m, x_now)", inputs=STEP + ROWS)
    discounted = loop(f"a_now = Gather (a, i) {READ_X} m = Mul (a_now, p) q = Add (m, x_now)", inputs=FACTORS + ROWS)
    wanted = [
        ("AddStep", steps, [(1_000_000, 1), (10_000, 100), (1_000, 10_000), (100, 100_000), (10, 4)]),
        ("PrefixSum", sums, [(100_000, 1), (1_000, 4_096), (10, 4)]),
        ("LinearRecurrence", linear, [(100_000, 1), (100_000, 16), (10_000, 256), (1_000, 4_096), (10, 4)]),
        ("LinearRecurrence, a invariant", average, [(100_000, 1), (1_000, 4_096)]),
        ("LinearRecurrence of a Loop", discounted, [(100_000, 16)]),
    ]
    return [
        Case("Kernels", f"{name}, {length:,} x {width:,}", _with_width(subject, width), _feeds(subject, width, length))
        for name, subject, pairs in wanted
        for length, width in pairs
    ]


def session(subject: onnx.ModelProto, *, kernels: bool = False) -> onnxruntime.InferenceSession:
    """One thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if kernels:
        looplift.ort.session_options(options)
    return onnxruntime.InferenceSession(subject.SerializeToString(), options)


def measure(case: Case) -> Row:
    """The best times.

    Raises:
        ValueError: the bits differ.
    """
    lifted = looplift.optimize(case.model)
    sessions = {
        "original": session(case.model),
        "standard": session(looplift.optimize(case.model, target="standard")),
        "definition": session(lifted),
        "kernel": session(lifted, kernels=True),
    }
    expected = sessions["original"].run(None, case.feeds)
    for name, other in sessions.items():
        for left, right in zip(expected, other.run(None, case.feeds), strict=True):
            if not same(left, right):
                raise ValueError(f"{case.name}, {name}: not the same bits")
    runs = [lambda other=other: other.run(None, case.feeds) for other in sessions.values()]
    return Row(case, *_best([*runs, _fill(expected)]))


def _best(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The shortest time of each; they take turns, in which each runs for a while, as a model in use does."""
    times, began = [np.inf] * len(runs), time.perf_counter()
    rounds = 0
    while rounds < 3 or time.perf_counter() - began < SECONDS:
        for k, run in enumerate(runs):
            turn = start = time.perf_counter()
            while start - turn < TURN:
                run()
                now = time.perf_counter()
                times[k] = min(times[k], now - start)
                start = now
        rounds += 1
    return times


def _fill(outputs: Sequence[object]) -> Callable[[], None]:
    """Fills an array like the largest output, which was written to before."""
    largest = max((out for out in outputs if isinstance(out, np.ndarray)), key=lambda array: array.nbytes)
    array = np.ones_like(largest)
    return lambda: array.fill(1)


def line(row: Row) -> str:
    """A row of the table."""
    times = (row.original, row.standard, row.definition, row.kernel)
    shown = " | ".join(f"{seconds * 1e3:.3f}" for seconds in times)
    gains = f"{row.original / row.kernel:,.1f} | {row.standard / row.kernel:,.1f} | {row.fill / row.kernel:.2f}"
    return f"| {row.case.name} | {shown} | {gains} |"


def draw(rows: Sequence[Row], path: Path) -> None:
    """For each case, how many times faster than as written each way is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ways = {
        "standard": ("standard operators", "C0"),
        "definition": ("definitions", "C1"),
        "kernel": ("kernels", "C2"),
    }
    figure, axes = pyplot.subplots(figsize=(9, 0.22 * len(rows) + 1.5))
    for way, (label, color) in ways.items():
        gains = [row.original / getattr(row, way) for row in reversed(rows)]
        axes.plot(gains, range(len(rows)), "o", color=color, label=label, markersize=4, alpha=0.8)
    axes.set_yticks(range(len(rows)), [row.case.name for row in reversed(rows)], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("times faster than the loop as written, ONNX Runtime, CPU, one thread")
    axes.legend(loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measures every case, prints the table, writes it and draws it."""
    lines = [
        f"Milliseconds, best of the runs of {SECONDS:g} s, ONNX Runtime {onnxruntime.__version__}, CPU, one thread, "
        f"onnx {onnx.__version__}, Python {platform.python_version()}, {platform.machine()}. Outputs are equal, bit "
        "for bit. The last columns: how many times faster the kernel is than the loop as written and than the standard "
        "operators, and its share of the speed at which numpy fills an array like the largest output. The kernel's "
        "models are the definitions', run with `looplift.ort.session_options()`.",
    ]
    rows: list[Row] = []
    group = ""
    for case in [*sizes(), *known(), *narrow(1), *narrow(16), *exports(), *hard()]:
        if case.group != group:
            group = case.group
            lines += [
                "",
                f"### {group[0].upper()}{group[1:]}",
                "",
                "| loop | as written | standard | definition | kernel | times faster | than standard | of a fill |",
                "|---|---|---|---|---|---|---|---|",
            ]
        rows.append(measure(case))
        lines.append(line(rows[-1]))
        print(lines[-1], flush=True)
    lines[0] += f" The machine had {os.cpu_count()} cores, and a load of {os.getloadavg()[0]:.1f} at the end."
    worst = min(rows, key=lambda row: min(row.standard, row.original) / row.kernel)
    lines += [
        "",
        f"Least of all: {worst.case.name}, {worst.standard / worst.kernel:.2f} times as fast as in standard operators, "
        f"{worst.original / worst.kernel:.2f} as fast as written.",
    ]
    Path(__file__).with_name("onnxruntime.md").write_text("\n".join(lines) + "\n")
    draw(rows, Path(__file__).with_name("onnxruntime.png"))
    print(lines[-1])


if __name__ == "__main__":
    main()

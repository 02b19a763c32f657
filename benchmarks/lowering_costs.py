"""Measures what ``passes/lowering/cost.py`` is chosen by: one add-step as a Loop, as the Scan and as the CumSum.

Prints the table that stands there. The forms are the lowering's own, forced by its limits; ONNX Runtime runs them in
turns, a time is the best of several runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from unittest import mock

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import looplift
from looplift.passes.recurrences.forms import cost

SIZES = [(1, 10_000), (16, 10_000), (64, 10_000), (256, 3_000), (1_024, 1_000), (4_096, 300), (65_536, 30)]
SECONDS = 0.5
EVERYTHING = 1 << 40
LIMITS = {"Scan": 0, "CumSum": EVERYTHING}
"""The widest state that goes to CumSum, to have one form or the other."""


def loop(width: int, *, stacked: bool) -> onnx.ModelProto:
    """An add-step of a state of known width; its states stacked, or only the last."""
    rows = f", float[n,{width}] z" if stacked else ""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64 M, float[{width}] v, float[{width}] s) => (float[{width}] y{rows}) {{
            y{", z" if stacked else ""} = Loop (M, , v) <body = b (int64 i, bool c, float[{width}] p)
                => (bool c2, float[{width}] q{f", float[{width}] r" if stacked else ""}) {{
                c2 = Identity (c)
                q = Add (p, s)
                {"r = Identity (q)" if stacked else ""}
            }}>
        }}""")


def forms(subject: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """The loop itself and both ways to lower it."""
    found = {"Loop": subject}
    for name, widest in LIMITS.items():
        with mock.patch.multiple(cost, WIDEST_SUM=widest, WIDEST_SUM_FOR_LAST=widest):
            found[name] = looplift.optimize(subject, target="standard")
    return found


def session(subject: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime as it comes, on the CPU."""
    return onnxruntime.InferenceSession(subject.SerializeToString(), providers=["CPUExecutionProvider"])


def best(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest time of each run in microseconds; they take turns."""
    times, rounds, began = dict.fromkeys(runs, math.inf), 0, time.perf_counter()
    while rounds < 3 or (time.perf_counter() - began < SECONDS * len(runs) and rounds < 200):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name] = min(times[name], (time.perf_counter() - start) * 1e6)
        rounds += 1
    return times


def measure(width: int, count: int, *, stacked: bool) -> dict[str, float]:
    """Microseconds of each form."""
    rng = np.random.default_rng(0)
    feeds = {"M": np.array(count), "v": rng.random(width, np.float32), "s": rng.random(width, np.float32)}
    sessions = {name: session(each) for name, each in forms(loop(width, stacked=stacked)).items()}
    return best({name: (lambda each=each: each.run(None, feeds)) for name, each in sessions.items()})


def main() -> None:
    """Prints the table."""
    names = ["Loop", *LIMITS]
    print(f"| stacked states, D x N | {' | '.join(names)} | last state only | {' | '.join(names)} |")
    print("|" + "---|" * (2 * len(names) + 2))
    for width, count in SIZES:
        stacked, last = (measure(width, count, stacked=wanted) for wanted in (True, False))
        cells = [f"{times[name]:,.0f}" for times in (stacked, last) for name in names]
        print(f"| {width:,} x {count:,} | {' | '.join(cells[:3])} | | {' | '.join(cells[3:])} |", flush=True)


if __name__ == "__main__":
    main()

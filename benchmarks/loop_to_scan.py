"""A Loop that reads rows by its number against the Scan that `LoopToScan` makes of it.

Prints a table and writes it to ``loop_to_scan.md`` beside this file. Every time is the best of some runs, one thread;
the two take turns. "branch": the trip count is an input, so the Scan stands in an If and its rows are gathered first.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime

from looplift.passes.graph.names import fix_names
from looplift.passes.journal import Journal
from looplift.passes.targets.loop_to_scan import LoopToScan
from looplift.runtime import Session

GRU = """gx = MatMul(r, W)
    gh = MatMul(h, U)
    zrx, nx = Split<axis=-1>(gx, parts)
    zrh, nh = Split<axis=-1>(gh, parts)
    zr = Add(zrx, zrh)
    gates = Sigmoid(zr)
    z, reset = Split<axis=-1>(gates)
    kept = Mul(reset, nh)
    candidate = Add(nx, kept)
    proposed = Tanh(candidate)
    difference = Sub(h, proposed)
    weighted = Mul(z, difference)
    new = Add(proposed, weighted)"""

CASES = {
    "running maximum": ("new = Max(h, r)", (1, 4), (1, 4)),
    "running maximum, wide": ("new = Max(h, r)", (1, 4096), (1, 4096)),
    "matrix recurrence": ("m = MatMul(h, U)\nnew = Add(m, r)", (2, 4), (2, 4)),
    "GRU, small": (GRU, (2, 4), (2, 3)),
    "GRU": (GRU, (8, 64), (8, 64)),
}
"""Body, shape of a row, shape of the state."""

FORMS = ("axis 0", "axis 1", "branch")


def text(body: str, row: tuple[int, int], state: tuple[int, int], trips: int, form: str) -> str:
    """The Loop as ONNX text."""
    (batch, width), units = row, state[1]
    weights = [
        f"float[{size},{3 * units if body is GRU else units}] {name}"
        for name, size in (("W", width), ("U", units))
        if f", {name})" in body
    ]
    whole = {"axis 0": f"{trips},{batch},{width}", "axis 1": f"{batch},{trips},{width}"}.get(form, f"n,{batch},{width}")
    inputs = [f"float[{whole}] x", f"float[{batch},{units}] h0", *weights, *(["int64 M"] if form == "branch" else [])]
    shape = f"float[{batch},{units}]"
    return f"""<ir_version: 8, opset_import: ["": 17]>
        bench ({", ".join(inputs)}) => ({shape} last, float[k,{batch},{units}] rows) {{
            parts = Constant<value_ints=[{2 * units},{units}]>()
            {"" if form == "branch" else f"M = Constant<value_int={trips}>()"}
            last, rows = Loop(M, , h0) <body = b (int64 i, bool c, {shape} h) => (bool d, {shape} new, {shape} out) {{
                d = Identity(c)
                r = Gather<axis={int(form == "axis 1")}>(x, i)
                {body}
                out = Identity(new)
            }}>
        }}"""


def as_scan(loop: ir.Model) -> ir.Model:
    """The model with the pass run on it alone."""
    scan = loop.clone()
    assert LoopToScan()(scan, Journal.begin(scan))
    fix_names(scan)
    return scan


def best(runs: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The shortest of `repeat` times of each, in microseconds, taken in turns."""
    shortest = dict.fromkeys(runs, math.inf)
    for _ in range(repeat):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            shortest[name] = min(shortest[name], (time.perf_counter() - begin) * 1e6)
    return shortest


def in_onnxruntime(model: ir.Model) -> onnxruntime.InferenceSession:
    """A session on one thread of the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def measure(case: str, trips: int, form: str) -> str:
    """One row of the table."""
    loop = ir.from_onnx_text(text(*CASES[case], trips, form))
    models = {"Loop": loop, "Scan": as_scan(loop)}
    rng = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for value in loop.graph.inputs:
        assert value.shape is not None
        shape = [dim if isinstance(dim, int) else trips for dim in value.shape]
        feeds[value.name or ""] = (rng.normal(size=shape) / 4).astype(np.float32)
    if "M" in feeds:
        feeds["M"] = np.array(trips, np.int64)
    engines = [
        {name: in_onnxruntime(model) for name, model in models.items()},
        {name: Session(model, device="numpy") for name, model in models.items()},
    ]
    cells = []
    for sessions in engines:
        runs = {name: functools.partial(session.run, None, feeds) for name, session in sessions.items()}
        assert all(np.array_equal(a, b) for a, b in zip(*(run() for run in runs.values()), strict=True)), "other bits"
        times = best(runs, 8 if trips > 100 else 60)
        cells += [f"{times['Loop']:,.0f}", f"{times['Scan']:,.0f}", f"{times['Loop'] / times['Scan']:.2f}"]
    return f"| {case} | {trips:,} | {form} | {' | '.join(cells)} |"


def main() -> None:
    lines = [
        "# Loops that read rows, as Scans (float32, one thread, microseconds)",
        "",
        "| body | iterations | read along | ONNX Runtime Loop | Scan | times faster "
        "| Session Loop | Scan | times faster |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        for trips in (1, 12, 1000):
            for form in FORMS:
                lines.append(measure(case, trips, form))
                print(lines[-1], flush=True)
    table = "\n".join(lines) + "\n"
    Path(__file__).with_suffix(".md").write_text(table)


if __name__ == "__main__":
    main()

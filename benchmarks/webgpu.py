"""AddStep on a WebGPU device, against filling the same memory, the one-invocation-per-column form, and ONNX Runtime.

Prints a table, writes it to ``webgpu.md`` and a plot to ``webgpu.png`` beside this file (or under the name given as the
only argument, for another device). Every time is the best of
some runs, taken in turns so that all meet the same load, and ends when the result lies in device memory (ONNX Runtime's
in host memory). Both WebGPU forms are checked against adding in order before they are timed.

With LOOPLIFT_ORT_WEBGPU=<python of an environment with onnxruntime-webgpu>, its Loop on the same driver is timed too.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime

from looplift.runtime.ops import all_ops
from looplift.runtime.ops.add_step.webgpu_kernel import tunables
from looplift.runtime.webgpu import Device, DeviceTensor, DeviceUnavailableError, open_device
from looplift.runtime.webgpu.describe import behaviour_in_words
from looplift.runtime.webgpu.device import Dispatch, Slice
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.packages.package import package_of, read_json

HERE = Path(__file__).parent
PACKAGE = package_of(all_ops()["AddStep"].package or "")

LOOP = """
<ir_version: 8, opset_import: ["": 17]>
loop (int64 M, float[n] v_initial, float[n] step) => (float[m, n] scan_output) {
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

FILL = """
override WORKGROUP = 64u;
override UNITS = 1u;
@group(0) @binding(0) var<storage, read_write> memory: array<vec4<u32>>;
@group(0) @binding(1) var<uniform> size: vec4<u32>; // units
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  var at = (group.y * grid.x + group.x) * WORKGROUP * UNITS + local;
  for (var unit = 0u; unit < UNITS && at < size.x; unit++) {
    memory[at] = size;
    at += WORKGROUP;
  }
}
"""

PER_COLUMN = """
@group(0) @binding(0) var<storage, read> v_initial: array<f32>;
@group(0) @binding(1) var<storage, read> step: array<f32>;
@group(0) @binding(2) var<storage, read_write> scan_output: array<f32>;
@group(0) @binding(3) var<uniform> size: vec4<u32>; // rows, columns
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let column = id.x;
  if (column >= size.y) {
    return;
  }
  var state = v_initial[column];
  let increment = step[column];
  for (var row = 0u; row < size.x; row++) {
    state += increment;
    scan_output[row * size.y + column] = state;
  }
}
"""

ORT_WEBGPU = """
import json, sys, time
import numpy as np, onnxruntime
model, rows, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
session = onnxruntime.InferenceSession(model, providers=["WebGpuExecutionProvider"])
assert session.get_providers()[0] == "WebGpuExecutionProvider"
def run(count):
    column = np.ones(columns, np.float32)
    begin = time.perf_counter()
    session.run(None, {"M": np.array(count), "v_initial": column, "step": column})
    return time.perf_counter() - begin
run(2)
print(json.dumps(run(rows) * 1e3))
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """Milliseconds of one shape; None where a form gives no result or was not run."""

    rows: int
    columns: int
    ours: float
    fill: float
    per_column: float | None
    ort_cpu: float
    ort_webgpu: float | None


def best(runs: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The shortest time of each run, in milliseconds, over as many turns as the time allows (at least five)."""
    times = dict.fromkeys(runs, math.inf)
    end, turns = time.perf_counter() + seconds, 0
    while turns < 5 or time.perf_counter() < end:
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name] = min(times[name], (time.perf_counter() - begin) * 1e3)
        turns += 1
    return times


def fill_runs(device: Device, size: int) -> dict[str, Callable[[], object]]:
    """Plain fills of so many bytes: several shapes of dispatch, of which the best counts."""
    units = -(-size // 16)
    memory = DeviceTensor(device, (units * 4,), np.uint32)
    count = device.constants(np.array([units, 1, 2, 3], np.uint32).tobytes())
    runs: dict[str, Callable[[], object]] = {}
    for workgroup, per_invocation in ((64, 1), (256, 1), (256, 2), (256, 4), (256, 16), (64, 64)):
        constants = {"WORKGROUP": workgroup, "UNITS": per_invocation}
        pipeline = device.pipeline(FILL, ["read_write", "uniform"], constants)
        groups = -(-units // (workgroup * per_invocation))
        across = min(groups, 65535)
        bindings = (Slice(memory.buffer, 0, units * 16), Slice(count, 0, 16))
        dispatch = Dispatch(pipeline, bindings, (across, -(-groups // across), 1))
        runs[f"fill {workgroup} x {per_invocation}"] = finished(
            device, lambda dispatch=dispatch: device.submit([dispatch])
        )
    return runs


def finished(device: Device, queue: Callable[[], object]) -> Callable[[], object]:
    """Queue work and wait for it."""

    def run() -> None:
        queue()
        device.fence()

    return run


def per_column(
    device: Device, rows: int, initial: np.ndarray, step: np.ndarray
) -> tuple[Callable[[], object], DeviceTensor]:
    """The form that walks through a column in one invocation."""
    columns = initial.size
    tensors = [DeviceTensor.upload(device, initial), DeviceTensor.upload(device, step)]
    output = DeviceTensor.upload(device, np.zeros((rows, columns), np.float32))
    size = device.constants(np.array([rows, columns, 0, 0], np.uint32).tobytes())
    slices = [Slice(tensor.buffer, 0, tensor.stored_bytes) for tensor in (*tensors, output)]
    pipeline = device.pipeline(PER_COLUMN, ["read", "read", "read_write", "uniform"], {})
    dispatch = Dispatch(pipeline, (*slices, Slice(size, 0, 16)), (-(-columns // 64), 1, 1))
    keep = tensors

    def run() -> None:
        device.submit([dispatch])
        device.fence()
        assert keep

    return run, output


def add_in_order(rows: int, initial: np.ndarray, step: np.ndarray) -> np.ndarray:
    stacked = np.empty((rows, initial.size), np.float32)
    stacked[0] = initial + step
    for row in range(1, rows):
        np.add(stacked[row - 1], step, out=stacked[row])
    return stacked


def measure(device: Device, session: Any, rows: int, columns: int, seconds: float) -> Row:
    random = np.random.default_rng(0)
    initial, step = random.standard_normal((2, columns)).astype(np.float32)
    expected = add_in_order(rows, initial, step)
    inputs = {"m": np.array(rows, np.uint32), "cond": np.array(True), "v_initial": initial, "step": step}
    tensors = {name: DeviceTensor.upload(device, value) for name, value in inputs.items()}

    wanted, device_tunables = {"scan_output": (rows, columns)}, tunables(device)

    def ours() -> DeviceTensor:
        return run_package(PACKAGE, device, tensors, wanted, None, device_tunables)["scan_output"]

    if not np.array_equal(ours().numpy(), expected):
        raise SystemExit(f"AddStep is wrong at {rows} x {columns}")
    run_per_column, output = per_column(device, rows, initial, step)
    run_per_column()
    per_column_right = np.array_equal(output.numpy(), expected)
    feeds = {"M": np.array(rows), "v_initial": initial, "step": step}
    fills = fill_runs(device, rows * columns * 4)
    times = best({"ours": finished(device, ours), "per column": run_per_column, **fills}, seconds)
    ort = best({"ort": lambda: session.run(None, feeds)}, seconds / 4)["ort"]
    return Row(
        rows,
        columns,
        times["ours"],
        min(times[name] for name in fills),
        times["per column"] if per_column_right else None,
        ort,
        ort_webgpu(rows, columns),
    )


def ort_webgpu(rows: int, columns: int) -> float | None:
    """ONNX Runtime's WebGPU provider on the same loop, in the environment named by LOOPLIFT_ORT_WEBGPU; one run."""
    python = os.environ.get("LOOPLIFT_ORT_WEBGPU")
    if not python:
        return None
    model = HERE / "webgpu_loop.onnx"
    model.write_bytes(onnx.parser.parse_model(LOOP).SerializeToString())
    timed = min(rows, 10_000)
    try:
        command = [python, "-c", ORT_WEBGPU, str(model), str(timed), str(columns)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return None
    finally:
        model.unlink()
    if result.returncode:
        print(f"onnxruntime-webgpu: {result.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return float(json.loads(result.stdout.strip().splitlines()[-1])) * rows / timed


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def table(device: Device, found: list[Row]) -> str:
    lines = [
        "# AddStep on WebGPU, float32, all rows, milliseconds",
        "",
        f"Device: {device.name}; it {behaviour_in_words(device)}.",
        "",
        "| M x dim | looplift | fill | fill / looplift | one invocation a column | ORT CPU Loop | ORT / looplift "
        "| ORT WebGPU Loop |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        lines.append(
            f"| {row.rows:,} x {row.columns:,} | {milliseconds(row.ours)} | {milliseconds(row.fill)} "
            f"| {row.fill / row.ours:.2f} | {milliseconds(row.per_column) if row.per_column else 'wrong'} "
            f"| {milliseconds(row.ort_cpu)} | {row.ort_cpu / row.ours:.1f} | {milliseconds(row.ort_webgpu)} |"
        )
    lines += [
        "",
        "fill: the best of six plain fills of that memory with vec4 stores; no kernel that writes it can beat that.",
        "wrong: the result differs from adding in order (the driver ends the loop early, or flushes).",
        "ORT WebGPU Loop: beyond 10,000 iterations extrapolated from 10,000; - where it was not run.",
    ]
    return "\n".join(lines) + "\n"


def plot(device: Device, found: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    series = {
        "looplift": [row.ours for row in found],
        "plain fill": [row.fill for row in found],
        "one invocation a column": [row.per_column for row in found],
        "ORT CPU Loop": [row.ort_cpu for row in found],
        "ORT WebGPU Loop": [row.ort_webgpu for row in found],
    }
    shown = {name: values for name, values in series.items() if any(values)}
    figure, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(shown)
    for place, (name, values) in enumerate(shown.items()):
        axes.bar(
            [spot + place * width for spot in range(len(found))], [value or 0 for value in values], width, label=name
        )
    axes.set_xticks(
        [spot + 0.4 - width / 2 for spot in range(len(found))], [f"{r.rows:,} x {r.columns:,}" for r in found]
    )
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds")
    axes.set_title(f"AddStep, float32, all rows, on {device.name}", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    seconds = float(os.environ.get("LOOPLIFT_BENCH_SECONDS", "4"))
    try:
        device = open_device("webgpu")
    except DeviceUnavailableError as error:
        print(f"not measured: {error}")
        return
    session = onnxruntime.InferenceSession(
        onnx.parser.parse_model(LOOP).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    shapes = [case["outputs"]["scan_output"]["shape"] for case in read_json(PACKAGE.folder / "bench.json")["cases"]]
    found = [measure(device, session, rows, columns, seconds) for rows, columns in shapes]
    text = table(device, found)
    print(text)
    name = sys.argv[1] if len(sys.argv) > 1 else "webgpu"
    (HERE / f"{name}.md").write_text(text, encoding="utf-8")
    plot(device, found, HERE / f"{name}.png")


if __name__ == "__main__":
    main()

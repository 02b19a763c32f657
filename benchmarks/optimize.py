"""How the CPU time of `optimize` grows: layers, depth of nests, length of bodies, number of nodes.

Prints tables, writes them to ``optimize.md`` and draws ``optimize.png``, beside this file. Each time is that of one
call in this process, after a small model has been optimized, so that imports do not count.
"""

from __future__ import annotations

import cProfile
import dataclasses
import platform
import pstats
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import onnx.parser

import looplift

TARGETS = ("kernel", "standard")
TOP = 12
"""Functions in the profile."""

BEFORE = {24: (25.7, 26.6)}
"""Seconds for so many layers of an exported model like the chain here, before growth was looked at."""


@dataclasses.dataclass(frozen=True)
class Family:
    """Models that differ in one size."""

    name: str
    size: str
    build: Callable[[int], onnx.ModelProto]
    sizes: Sequence[int]


def model(graph: str) -> onnx.ModelProto:
    """A model from ONNX text without its header."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')


def mamba(layers: int) -> onnx.ModelProto:
    """Layers as the TorchScript exporter writes a Mamba block: projections, and a loop that appends rows to a list."""
    text = "".join(_layer(k) for k in range(layers))
    sizes = "float[16, 16] w, float[16] norm, float[1, 16, 4] h"
    constants = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {-1}, int64[1] far = {9223372036854775807}"
    return model(
        f"g (float[1, T, 16] x0, {sizes}, bool on, float[1, T, 4] b, float[1, T, 4] c) => (float[1, T, 16] x{layers}) "
        f"<{constants}, int64 axis = {{1}}, float two = {{2}}> {{ {text} }}"
    )


def _layer(k: int) -> str:
    return f"""
    square{k} = Pow (x{k}, two)
    mean{k} = ReduceMean <axes = [-1]> (square{k})
    root{k} = Sqrt (mean{k})
    scaled{k} = Div (x{k}, root{k})
    normal{k} = Mul (scaled{k}, norm)
    in{k} = MatMul (normal{k}, w)
    gate{k} = Sigmoid (in{k})
    u{k} = Mul (in{k}, gate{k})
    wide{k} = Unsqueeze (u{k}, last)
    spread{k} = Unsqueeze (b, one)
    turned{k} = Transpose <perm = [0, 2, 1, 3]> (spread{k})
    db{k} = Mul (wide{k}, turned{k})
    slow{k} = Neg (gate{k})
    decay{k} = Exp (slow{k})
    thin{k} = Unsqueeze (decay{k}, last)
    da{k} = Expand (thin{k}, one)
    shape{k} = Shape (x{k})
    n{k} = Gather (shape{k}, axis)
    none{k} = SequenceEmpty <dtype = 1> ()
    final{k}, all{k} = Loop (n{k}, on, h, none{k}) <body = body{k} (int64 t{k}, bool go{k}, float[1, 16, 4] p{k},
        seq(float[1, 16]) rows{k}) => (bool still{k}, float[1, 16, 4] q{k}, seq(float[1, 16]) more{k}) {{
        still{k} = Identity (go{k})
        sa{k} = Slice (da{k}, zero, far, zero, one)
        a{k} = Gather <axis = 1> (sa{k}, t{k})
        sb{k} = Slice (db{k}, zero, far, zero, one)
        now{k} = Gather <axis = 1> (sb{k}, t{k})
        moved{k} = Mul (a{k}, p{k})
        q{k} = Add (moved{k}, now{k})
        sc{k} = Slice (c, zero, far, zero, one)
        cnow{k} = Gather <axis = 1> (sc{k}, t{k})
        cwide{k} = Unsqueeze (cnow{k}, one)
        product{k} = Mul (q{k}, cwide{k})
        row{k} = ReduceSum <keepdims = 0> (product{k}, last)
        more{k} = SequenceInsert (rows{k}, row{k})
    }}>
    y{k} = ConcatFromSequence <axis = 1, new_axis = 1> (all{k})
    z{k} = Mul (y{k}, gate{k})
    out{k} = MatMul (z{k}, w)
    x{k + 1} = Add (x{k}, out{k})"""


def nest(depth: int) -> onnx.ModelProto:
    """Loops within one another around one addition."""
    inner = f"q{depth} = Add (p{depth}, s)"
    for k in range(depth - 1, -1, -1):
        inner = f"""q{k} = Loop (n, , p{k}) <body = b{k} (int64 i{k}, bool c{k}, float p{k + 1})
            => (bool d{k}, float q{k + 1}) {{ d{k} = Identity (c{k}) {inner} }}>"""
    return model(f"g (int64 n, float p0, float s) => (float q0) {{ {inner} }}")


def body(additions: int) -> onnx.ModelProto:
    """A body of so many additions."""
    lines = "\n".join(f"q{k + 1} = Add (q{k}, s)" for k in range(additions))
    return model(
        f"""g (int64 n, float x, float s) => (float y) {{
            y = Loop (n, , x) <body = b (int64 i, bool c, float q0) => (bool d, float q{additions}) {{
                d = Identity (c) {lines}
            }}>
        }}"""
    )


def nodes(count: int) -> onnx.ModelProto:
    """A chain of so many nodes; each fiftieth is a loop."""
    lines = []
    for k in range(count):
        lines.append(f"x{k + 1} = {'Tanh (' if k % 2 else 'Add (s, '}x{k})")
        if k % 50 == 25:
            lines[-1] = f"""x{k + 1} = Loop (n, , x{k}) <body = b{k} (int64 i{k}, bool c{k}, float[4] p{k})
                => (bool d{k}, float[4] q{k}) {{ d{k} = Identity (c{k}) q{k} = Add (p{k}, s) }}>"""
    return model(f"g (int64 n, float[4] x0, float[4] s) => (float[4] x{count}) {{ {' '.join(lines)} }}")


FAMILIES = (
    Family("Mamba layers", "layers", mamba, (1, 3, 6, 12, 24, 48)),
    Family("nested loops", "depth", nest, (1, 5, 10, 20, 30)),
    Family("length of a body", "additions", body, (50, 100, 200, 400, 800)),
    Family("nodes, each fiftieth a loop", "nodes", nodes, (1000, 2000, 5000, 10000)),
)


def seconds(subject: onnx.ModelProto, target: str) -> float:
    """CPU time of one call."""
    begin = time.process_time()
    looplift.optimize(subject, target=target)
    return time.process_time() - begin


def profile(subject: onnx.ModelProto) -> list[str]:
    """A table of the functions of ours that most time is spent in, with what they call."""
    recorded = cProfile.Profile()
    recorded.runcall(looplift.optimize, subject, target="standard")
    root = str(Path(__file__).parents[1])
    total, found = 0.0, []
    for (file, _, name), (_, calls, own, with_called, _) in pstats.Stats(recorded).stats.items():  # type: ignore[attr-defined]
        total += own
        if file.startswith(root) and ".venv" not in file and not name.startswith("<"):
            found.append((own, with_called, calls, f"{Path(file).relative_to(root)}: {name}"))
    lines = ["| function | calls | itself, % | with what it calls, % |", "|---|---|---|---|"]
    for own, with_called, calls, name in sorted(found, reverse=True)[:TOP]:
        lines.append(f"| `{name}` | {calls:,} | {own / total:.1%} | {with_called / total:.1%} |")
    return lines


def draw(times: Sequence[tuple[Family, Sequence[tuple[float, ...]]]], path: Path) -> None:
    """A plot for each family, with the slope of what is linear."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, plots = pyplot.subplots(1, len(times), figsize=(3 * len(times), 2.8))
    for axes, (family, rows) in zip(plots, times, strict=True):
        for k, target in enumerate(TARGETS):
            axes.plot(family.sizes, [row[k] for row in rows], marker=".", label=target)
        line = [rows[-1][0] * size / family.sizes[-1] for size in family.sizes]
        axes.plot(family.sizes, line, color="grey", linestyle=":", label="linear")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(family.name, fontsize=8)
        axes.set_xlabel(family.size, fontsize=8)
        axes.tick_params(labelsize=7)
    plots[0].set_ylabel("seconds of CPU time", fontsize=8)
    plots[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    """Measures every family, prints the tables, writes them and draws them."""
    lines = [f"Seconds of CPU time of `optimize`, Python {platform.python_version()}, {platform.machine()}."]
    for target in TARGETS:
        seconds(mamba(1), target)
    times = []
    for family in FAMILIES:
        lines += ["", f"### {family.name.capitalize()}", "", f"| {family.size} | kernel | standard |", "|---|---|---|"]
        rows = []
        for size in family.sizes:
            subject = family.build(size)
            rows.append(tuple(seconds(subject, target) for target in TARGETS))
            lines.append(f"| {size:,} | {rows[-1][0]:.2f} | {rows[-1][1]:.2f} |")
            print(lines[-1], flush=True)
        times.append((family, rows))
    for size, (kernel, standard) in BEFORE.items():
        lines += ["", f"Before growth was looked at, {size} layers of an exported model took {kernel:.1f} s for the "]
        lines[-1] += f"target `kernel` and {standard:.1f} s for `standard`."
    lines += [
        "",
        "### Where the time goes",
        "",
        "12 layers, target `standard`, under a profiler.",
        "",
        *profile(mamba(12)),
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")
    draw(times, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()

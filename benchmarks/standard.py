"""Loops in unmodified ONNX Runtime, as written and in the standard operators that looplift makes of them, in one run.

Prints a table, writes it to ``standard.md`` and draws ``standard.png``, beside this file. Both models run in the same
process on the same inputs, in turns; a time is the best of several runs; outputs are compared bit for bit first.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import looplift

EXPORTS = Path(__file__).parents[1] / "tests" / "data" / "exports"
SECONDS = 1.0
"""How long each side of a case is measured, at least two runs."""

Feeds = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and its inputs; `group` says where the table shows it."""

    group: str
    name: str
    model: onnx.ModelProto
    feeds: Feeds


def model(graph: str, opset: int = 17) -> onnx.ModelProto:
    """A model from ONNX text without its header."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {graph}')


def loop(
    body: str, *, kind: str = "float", inputs: str = "", row: str | None = "q", opset: int = 17
) -> onnx.ModelProto:
    """A Loop whose body makes q of p, and stacks `row` if any."""
    stacked = f", {kind}[n,k] z" if row else ""
    return model(
        f"""g (int64 M, {kind}[D] v{inputs}) => ({kind}[D] y{stacked}) {{
            y{", z" if row else ""} = Loop (M, , v) <body = b (int64 i, bool c, {kind}[D] p)
                => (bool c2, {kind}[D] q{", r" if row else ""}) {{
                c2 = Identity (c)
                {body}
                {f"r = Identity ({row})" if row else ""}
            }}>
        }}""",
        opset,
    )


# As the TorchScript exporter writes `dA[:, t] * h + dB[:, t]`: the whole tensor is sliced in every iteration.
MAMBA = """
g (float[1,T,C,S] dA, float[1,T,C,S] dB, float[1,T,S] w, float[1,C,S] h, int64 M) => (float[1,n,C] y) {
    on = Constant <value = bool {1}> ()
    none = SequenceEmpty <dtype = 1> ()
    last, all = Loop (M, on, h, none) <body = b (int64 t, bool c, float[1,C,S] p, seq(float[1,C]) rows)
        => (bool c2, float[1,C,S] q, seq(float[1,C]) more) {
        c2 = Identity (c)
        begin = Constant <value = int64[1] {0}> ()
        axis = Constant <value = int64[1] {1}> ()
        end = Constant <value = int64[1] {9223372036854775807}> ()
        all_a = Slice (dA, begin, end, begin, axis)
        a = Gather <axis = 1> (all_a, t)
        all_b = Slice (dB, begin, end, begin, axis)
        b_now = Gather <axis = 1> (all_b, t)
        moved = Mul (a, p)
        q = Add (moved, b_now)
        all_w = Slice (w, begin, end, begin, axis)
        w_now = Gather <axis = 1> (all_w, t)
        wide = Unsqueeze (w_now, axis)
        product = Mul (q, wide)
        last_axis = Constant <value = int64[1] {-1}> ()
        row = ReduceSum <keepdims = 0> (product, last_axis)
        more = SequenceInsert (rows, row)
    }>
    y = ConcatFromSequence <axis = 1, new_axis = 1> (all)
}"""

APPEND = """
g (int64 M, float[D] v, float[D] s) => (float[n,k] y) {
    on = Constant <value = bool {1}> ()
    none = SequenceEmpty <dtype = 1> ()
    last, all = Loop (M, on, v, none) <body = b (int64 i, bool c, float[D] p, seq(float[D]) rows)
        => (bool c2, float[D] q, seq(float[D]) more) {
        c2 = Identity (c)
        q = Add (p, s)
        more = SequenceInsert (rows, q)
    }>
    y = ConcatFromSequence <axis = 0, new_axis = 1> (all)
}"""

SCAN = """
g (float[D] v, float[T,D] a, float[T,D] x) => (float[D] y, float[T,D] z) {{
    y, z = Scan <num_scan_inputs = 2, body = b (float[D] p, float[D] a_now, float[D] x_now)
        => (float[D] q, float[D] r) {{
        {body}
        r = Identity (q)
    }}> (v, a, x)
}}"""

READ_X = "x_now = Gather (x, i)"
READ_A = "a_now = Gather (a, i)"
STEP, ROWS, FACTORS = ", float[D] s", ", float[T,D] x", ", float[T,D] a"


def narrow(width: int, length: int = 10_000) -> list[Case]:
    """Every recurrence in its plain spelling."""
    label = f"{length:,} x {width}"
    models = {
        "add-step, stacked": loop("q = Add (p, s)", inputs=STEP),
        "add-step, stacked before": loop("q = Add (p, s)", inputs=STEP, row="p"),
        "add-step, last": loop("q = Add (p, s)", inputs=STEP, row=None),
        "add-step, int64": loop("q = Add (p, s)", kind="int64", inputs=", int64[D] s"),
        "add-step, float16": loop("q = Add (p, s)", kind="float16", inputs=", float16[D] s"),
        "add-step, opset 9": loop("q = Add (p, s)", inputs=STEP, opset=9),
        "prefix sum, stacked": loop(f"{READ_X} q = Add (p, x_now)", inputs=ROWS),
        "prefix sum, last": loop(f"{READ_X} q = Add (p, x_now)", inputs=ROWS, row=None),
        "prefix sum, Scan": model(SCAN.format(body="q = Add (p, x_now)")),
        "linear, stacked": loop(f"{READ_A} {READ_X} m = Mul (a_now, p) q = Add (m, x_now)", inputs=FACTORS + ROWS),
        "moving average": loop(f"{READ_X} m = Mul (p, s) q = Add (m, x_now)", inputs=STEP + ROWS),
    }
    return [Case("narrow states", f"{name}, {label}", m, _feeds(m, width, length)) for name, m in models.items()]


def hard() -> list[Case]:
    """Where there is least to gain: few iterations, wide states, loops that are the smallest Scan already."""
    stacked, last = loop("q = Add (p, s)", inputs=STEP), loop("q = Add (p, s)", inputs=STEP, row=None)
    gather = loop(f"{READ_X} q = Add (p, x_now)", inputs=ROWS)
    linear = model(SCAN.format(body="m = Mul (a_now, p) q = Add (m, x_now)"))
    models = {
        "add-step, stacked": stacked,
        "add-step, last": last,
        "prefix sum, stacked": gather,
        "linear, Scan": linear,
    }
    sizes = [(1, 4), (2, 4), (10, 4), (300, 4096), (30, 65536)]
    return [
        Case("least to gain", f"{name}, {n:,} x {width:,}", _with_width(m, width), _feeds(m, width, n))
        for name, m in models.items()
        for n, width in sizes
    ]


def _with_width(original: onnx.ModelProto, width: int) -> onnx.ModelProto:
    """The model with a state of known width."""
    copy = onnx.ModelProto()
    copy.CopyFrom(original)
    graphs = [copy.graph, *(a.g for node in copy.graph.node for a in node.attribute if a.name == "body")]
    for info in (info for graph in graphs for info in (*graph.input, *graph.output)):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in ("D", "k"):
                dim.dim_value = width
    return copy


def _feeds(subject: onnx.ModelProto, width: int, length: int) -> Feeds:
    """Inputs by the names that the models here use; factors stay below 1."""
    rng = np.random.default_rng(0)
    feeds = {}
    for info in subject.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [length if d.dim_param == "T" else width for d in info.type.tensor_type.shape.dim]
        if info.name == "M":
            feeds["M"] = np.array(length)
        else:
            feeds[info.name] = np.asarray(rng.random(shape) * (9 if dtype.kind == "i" else 0.9)).astype(dtype)
    return feeds


def known() -> list[Case]:
    """The loops by which exported models are known to be slow."""
    rng = np.random.default_rng(0)
    mamba = {
        "dA": rng.random((1, 1000, 256, 16), np.float32),
        "dB": rng.random((1, 1000, 256, 16), np.float32),
        "w": rng.random((1, 1000, 16), np.float32),
        "h": np.zeros((1, 256, 16), np.float32),
        "M": np.array(1000),
    }
    append, add, total = (
        model(APPEND),
        loop("q = Add (p, s)", inputs=STEP),
        loop(f"{READ_X} q = Add (p, x_now)", inputs=ROWS),
    )
    sized = {d: mamba["dA"].shape[k] for k, d in ((1, "T"), (2, "C"), (3, "S"))}
    scan = model(MAMBA)
    for info in scan.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sized:
                dim.dim_value = sized[dim.dim_param]
    return [
        Case("known to be slow", "Mamba selective scan, list append, 1,000 x [256, 16]", scan, mamba),
        Case("known to be slow", "add-step, list append, 10,000 x 64", append, _feeds(append, 64, 10_000)),
        Case("known to be slow", "add-step, 1,000,000 x 1", add, _feeds(add, 1, 1_000_000)),
        Case("known to be slow", "running sum as Loop(Gather), 10,000 x 64", total, _feeds(total, 64, 10_000)),
    ]


def exports(length: int = 10_000, width: int = 16) -> list[Case]:
    """The exporters' models in the tests, those that take their length or width as an input."""
    cases = []
    for path in sorted(EXPORTS.glob("*.onnx")):
        subject = onnx.load(path)
        feeds = {}
        for info in subject.graph.input:
            kind = info.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            extents = [d.dim_value or (width if d.dim_param == "D" else length) for d in kind.shape.dim]
            counts = dtype.kind == "i" and math.prod(extents) == 1
            value = np.full(extents, length) if counts else np.random.default_rng(1).random(extents)
            feeds[info.name] = np.asarray(value).astype(dtype)
        if _runs(subject):
            cases.append(Case("exporters' models", path.stem, subject, feeds))
    return cases


def _runs(subject: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime takes the model: three of the exports are there because nobody does."""
    try:
        session(subject)
    except Exception as error:  # ONNX Runtime has no common class for its errors
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        return False
    return True


def session(subject: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime on the CPU; one thread, so that other work on the machine shows less."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(subject.SerializeToString(), options, providers=["CPUExecutionProvider"])


def same(left: object, right: object) -> bool:
    """The same bits, in lists and maps too."""
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.shape == right.shape and left.tobytes() == right.tobytes()
    return left == right


def measure(case: Case) -> tuple[float, float, str]:
    """Seconds before and after, and which loops are left."""
    lowered = looplift.optimize(case.model, target="standard")
    before, after = session(case.model), session(lowered)
    for left, right in zip(before.run(None, case.feeds), after.run(None, case.feeds), strict=True):
        if not same(left, right):
            raise ValueError(f"{case.name}: not the same bits")
    best = _best([lambda: before.run(None, case.feeds), lambda: after.run(None, case.feeds)])
    left = sorted({node.op_type for node in _nodes(lowered.graph) if node.op_type in ("Loop", "Scan")})
    return best[0], best[1], ", ".join(left)


def _best(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The shortest time of each run; they take turns, so that all meet the same load."""
    times, spent = [math.inf] * len(runs), 0.0
    rounds = 0
    while rounds < 2 or (spent < SECONDS and rounds < 200):
        for k, run in enumerate(runs):
            start = time.perf_counter()
            run()
            took = time.perf_counter() - start
            times[k] = min(times[k], took)
            spent += took
        rounds += 1
    return times


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return [*graph.node, *(node for each in inner for node in _nodes(each))]


def draw(rows: Sequence[tuple[Case, float]], path: Path) -> None:
    """Bars of the speed-ups, one colour a group."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = list(dict.fromkeys(case.group for case, _ in rows))
    figure, axes = pyplot.subplots(figsize=(9, 0.22 * len(rows) + 1.2))
    for k, (case, gain) in enumerate(reversed(rows)):
        axes.barh(k, gain, color=f"C{groups.index(case.group)}")
        axes.text(gain, k, f" {gain:,.1f}", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [case.name for case, _ in reversed(rows)], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times faster than the loop as written, ONNX Runtime, CPU")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measures every case, prints the table, writes it and draws it."""
    lines = [
        f"Milliseconds, best of the runs of {SECONDS:g} s, ONNX Runtime {onnxruntime.__version__}, CPU, one thread, "
        f"onnx {onnx.__version__}, Python {platform.python_version()}, {platform.machine()}. Outputs are equal.",
    ]
    rows: list[tuple[Case, float]] = []
    group = ""
    for case in [*known(), *narrow(1), *narrow(16), *exports(), *hard()]:
        if case.group != group:
            group = case.group
            lines += [
                "",
                f"### {group.capitalize()}",
                "",
                "| loop | as written | standard ops | times faster | loops left |",
            ]
            lines.append("|---|---|---|---|---|")
        before, after, left = measure(case)
        rows.append((case, before / after))
        lines.append(f"| {case.name} | {before * 1e3:.3f} | {after * 1e3:.3f} | {before / after:.1f} | {left} |")
        print(lines[-1], flush=True)
    gains = [gain for case, gain in rows if case.group == "narrow states"]
    lines += ["", f"Geometric mean on narrow states: {math.exp(np.mean(np.log(gains))):.1f} times faster. "]
    lines[-1] += f"Least of all: {min(gain for _, gain in rows):.2f}."
    text = "\n".join(lines) + "\n"
    Path(__file__).with_suffix(".md").write_text(text)
    draw(rows, Path(__file__).with_suffix(".png"))
    print(lines[-1])


if __name__ == "__main__":
    main()

"""The options of each command."""

from __future__ import annotations

import argparse
import importlib.metadata

TARGETS = ("kernel", "standard")
DEFINITIONS = ("fast", "loop")
DEVICES = ("auto", "numpy", "webgpu", "onnxruntime")
"""As `looplift.passes.pipeline` has them; written again, since that takes long to import."""


def parser() -> argparse.ArgumentParser:
    """The options of all commands; ``command`` names the module that runs it."""
    main = argparse.ArgumentParser(
        prog="looplift", description="Lifts ONNX loops into kernels, and proves that the result is the same bits."
    )
    main.add_argument("--version", action="version", version=f"looplift {importlib.metadata.version('looplift')}")
    commands = main.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_optimize(commands.add_parser("optimize", help="lift the loops of a model"))
    _add_explain(commands.add_parser("explain", help="say what each loop computes and whether it is lifted"))
    _add_verify(commands.add_parser("verify", help="compare two models, bit for bit"))
    _add_bench(commands.add_parser("bench", help="measure a model against its rewritten form"))
    _add_run(commands.add_parser("run", help="run a model"))
    commands.add_parser("devices", help="list the devices that can run kernels").set_defaults(command="devices")
    kernels = _add_kernels(
        commands.add_parser("kernels", help="look after kernel packages, build those for ONNX Runtime")
    )
    for command in (*commands.choices.values(), *kernels.choices.values()):
        command.add_argument("--debug", action="store_true", help="show the trace of an error, and what libraries log")
    return main


def _whole(text: str) -> int:
    return _between(text, 0, 2**31 - 1)


def _positive(text: str) -> int:
    return _between(text, 1, 2**31 - 1)


def _trips(text: str) -> int:
    return _between(text, -(2**31), 2**31 - 1)


def _between(text: str, least: int, greatest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= greatest:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a whole number from {least:,} to {greatest:,}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a number of seconds from 0 to 1,000,000")
    return value


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("-o", "--output", required=True, help="the file to write; may be the input")
    _add_pipeline(parser)
    parser.add_argument(
        "--definitions",
        default="fast",
        choices=DEFINITIONS,
        help="of custom ops: what ONNX Runtime runs fastest (default), or a loop, for engines with another CumSum",
    )
    parser.add_argument("--verify", action="store_true", help="verify first; write nothing if the result differs")
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--trace", metavar="DIR", help="also write the model as text after each pass that changed it")
    _add_checking(parser)
    parser.set_defaults(command="optimize")


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", default="kernel", choices=TARGETS, help="custom ops with definitions (default), or only ai.onnx"
    )
    parser.add_argument("--no-exact", action="store_true", help="also rewrite where results round differently")
    dims = parser.add_argument_group("sizes of inputs; a dim is a name of the model's, or INPUT:AXIS, such as x:0")
    dims.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="repeatable")
    dims.add_argument("--same-dim", action="append", default=[], metavar="A=B", help="are equal, always; repeatable")


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the ONNX file")
    _add_pipeline(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--html", metavar="FILE", help="write a page that shows each loop before and after")
    parser.set_defaults(command="explain")


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("original", help="an ONNX file")
    parser.add_argument("model", help="the file to compare with it")
    _add_checking(parser)
    parser.set_defaults(command="verify")


def _add_checking(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verification")
    group.add_argument("--inputs", action="append", default=[], metavar="NPZ", help="inputs to check first; repeatable")
    group.add_argument("--cases", type=_whole, default=48, help="how many inputs to make up (default: %(default)s)")
    group.add_argument("--seed", type=_whole, default=0, help="they follow from it (default: %(default)s)")
    group.add_argument("--seconds", type=_seconds, default=60.0, help="end after this time (default: %(default)s)")
    group.add_argument("--ulp", type=_whole, default=0, help="accept such a distance (default: none, the same bits)")
    group.add_argument(
        "--allow-few", action="store_true", help="be content if the original fails in more than two thirds of the cases"
    )
    group.add_argument("--device", default="numpy", choices=("numpy", "webgpu"), help="where kernels run too")
    group.add_argument(
        "--counterexample", metavar="NPZ", help="where to save one (default: counterexample.npz, or -2 if that is read)"
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("original", help="the ONNX file")
    parser.add_argument("model", nargs="?", help="a file to measure it against (default: what optimize makes of it)")
    parser.add_argument("--inputs", metavar="NPZ", help="one array per input; made up if not given")
    group = parser.add_argument_group("inputs that are made up")
    group.add_argument("--trips", type=_trips, default=1000, help="what decides how often loops run (%(default)s)")
    group.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="a symbolic dim; repeatable")
    group.add_argument("--size", type=_whole, default=100, help="of the other unknown dims (%(default)s)")
    group.add_argument("--seed", type=_whole, default=0, help="they follow from it (%(default)s)")
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--repeat", type=_positive, default=20, help="runs after the first, which is not counted (%(default)s)"
    )
    group.add_argument("--seconds", type=_seconds, default=5.0, help="of one model in one engine (%(default)s)")
    group.add_argument("--device", default="auto", choices=DEVICES[:3], help="of looplift's session")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command="bench")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("--inputs", metavar="NPZ", help="one array per input; made up if not given")
    parser.add_argument("--output", metavar="NPZ", help="where to write the outputs")
    parser.add_argument("--device", default="auto", choices=DEVICES)
    parser.add_argument("--seed", type=_whole, default=0, help="of inputs that are made up")
    parser.set_defaults(command="run")


def _add_kernels(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="check digests, manifest and templates, and run the package's tests")
    check.add_argument("folder", nargs="*", help="where a manifest.json lies (default: those of looplift's own ops)")
    check.set_defaults(command="kernels", build=False)
    build = commands.add_parser(
        "build", help="compile the kernels for ONNX Runtime (needs a C compiler or the extra zig)"
    )
    build.add_argument("-o", "--output", metavar="FILE", help="the library (default: where looplift finds it)")
    build.set_defaults(command="kernels", build=True)
    return commands

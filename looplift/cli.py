"""The command line: ``looplift optimize | explain | verify | bench | run | devices | kernels``."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.resources
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from looplift import console, interop, storage
from looplift.bench import bench
from looplift.checking import feeds as feeds_file
from looplift.checking.check import verify
from looplift.checking.inputs import Feeds, generate, make_one
from looplift.checking.outcome import Check
from looplift.optimizer import explain, lift
from looplift.passes.pipeline import TARGETS
from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import all_ops
from looplift.session import Session

EQUAL, DIFFERENT, FAILED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""

_TIMES = ("before", "after")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code.

    0: done; 1: two models differ; 2: it could not be done, with one line on standard error; 130: interrupted.
    """
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without one, Mesa complains on standard error
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except LoopliftError as error:
        console.complain(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        console.complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="looplift", description="Lifts ONNX loops into kernels, and proves that the result is the same bits."
    )
    parser.add_argument("--version", action="version", version=f"looplift {importlib.metadata.version('looplift')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_optimize(commands.add_parser("optimize", help="lift the loops of a model"))
    _add_explain(commands.add_parser("explain", help="say what each loop computes and whether it is lifted"))
    _add_verify(commands.add_parser("verify", help="compare two models, bit for bit"))
    _add_bench(commands.add_parser("bench", help="measure a model against its rewritten form"))
    _add_run(commands.add_parser("run", help="run a model"))
    commands.add_parser("devices", help="list the devices that can run kernels").set_defaults(command=_devices)
    _add_kernels(commands.add_parser("kernels", help="look after kernel packages"))
    return parser


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("-o", "--output", required=True, help="the file to write; may be the input")
    _add_pipeline(parser)
    parser.add_argument("--verify", action="store_true", help="verify first; write nothing if the result differs")
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    _add_checking(parser)
    parser.set_defaults(command=_optimize)


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", default="kernel", choices=TARGETS, help="custom ops with definitions (default), or only ai.onnx"
    )
    parser.add_argument("--no-exact", action="store_true", help="also rewrite where results round differently")


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the ONNX file")
    _add_pipeline(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--html", metavar="FILE", help="write a page that shows each loop before and after")
    parser.set_defaults(command=_explain)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("original", help="an ONNX file")
    parser.add_argument("model", help="the file to compare with it")
    _add_checking(parser)
    parser.set_defaults(command=_verify)


def _add_checking(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verification")
    group.add_argument("--inputs", action="append", default=[], metavar="NPZ", help="inputs to check first; repeatable")
    group.add_argument("--cases", type=int, default=48, help="how many inputs to make up (default: %(default)s)")
    group.add_argument("--seed", type=int, default=0, help="they follow from it (default: %(default)s)")
    group.add_argument("--seconds", type=float, default=60.0, help="begin no case later (default: %(default)s)")
    group.add_argument("--ulp", type=int, default=0, help="accept such a distance (default: none, the same bits)")
    group.add_argument("--device", default="numpy", choices=("numpy", "webgpu"), help="where kernels run too")
    group.add_argument(
        "--counterexample", default="counterexample.npz", metavar="NPZ", help="where to save one (default: %(default)s)"
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("original", help="the ONNX file")
    parser.add_argument("model", nargs="?", help="a file to measure it against (default: what optimize makes of it)")
    parser.add_argument("--inputs", metavar="NPZ", help="one array per input; made up if not given")
    group = parser.add_argument_group("inputs that are made up")
    group.add_argument("--trips", type=int, default=1000, help="what decides how often loops run (%(default)s)")
    group.add_argument("--dim", action="append", default=[], metavar="N=SIZE", help="a symbolic dim; repeatable")
    group.add_argument("--size", type=int, default=100, help="of the other unknown dims (%(default)s)")
    group.add_argument("--seed", type=int, default=0, help="they follow from it (%(default)s)")
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--repeat", type=int, default=20, help="runs after the first, which is not counted (%(default)s)"
    )
    group.add_argument("--seconds", type=float, default=5.0, help="of one model in one engine (%(default)s)")
    group.add_argument("--device", default="auto", choices=("auto", "numpy", "webgpu"), help="of looplift's session")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_bench)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("--inputs", metavar="NPZ", help="one array per input; made up if not given")
    parser.add_argument("--output", metavar="NPZ", help="where to write the outputs")
    parser.add_argument("--device", default="auto", choices=("auto", "numpy", "webgpu"))
    parser.add_argument("--seed", type=int, default=0, help="of inputs that are made up")
    parser.set_defaults(command=_run)


def _add_kernels(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="check digests, manifest and templates, and run the package's tests")
    check.add_argument("folder", nargs="*", help="where a manifest.json lies (default: those of looplift's own ops)")
    check.set_defaults(command=_check_kernels)


def _optimize(options: argparse.Namespace) -> int:
    _require_folder(options.output)
    with console.working(f"reading {options.model}"):
        source = interop.read(options.model)
    with console.working(f"lifting the loops of {options.model}"):
        result, report = lift(source, target=options.target, exact=not options.no_exact)
    console.show(console.report_table(report))
    before = interop.to_ir(source)
    after = before if result is None else result
    nodes = console.count_ops(before), console.count_ops(after)
    if result is not None:
        console.show(console.ops_table(*nodes))
        if options.verify:
            code = _settle(_check(options, options.model, result), options)
            if code != EQUAL:
                console.complain(f"{options.output} is not written")
                return code
    sizes = [storage.bytes_on_disk(options.model)]  # before the output may take its place
    _write(source, result, options.output)
    sizes.append(storage.bytes_on_disk(options.output))
    if options.json:
        told = report.to_json(
            target=options.target,
            exact=not options.no_exact,
            nodes=dict(zip(_TIMES, nodes, strict=True)),
            bytes=dict(zip(_TIMES, sizes, strict=True)),
        )
        storage.write_bytes(told.encode(), options.json)
    console.say(f"wrote {options.output}: {sizes[1]:,} bytes, {sizes[0]:,} before")
    return EQUAL


def _require_folder(path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise LoopliftError(f"can't write {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise LoopliftError(f"can't write {path}: it is a folder")


def _write(source: interop.Source, result: ir.Model | None, path: str) -> None:
    external = source.proto is not None and next(storage.external_tensors(source.proto), None) is not None
    if result is None and not external:
        storage.write_bytes(Path(source.given).read_bytes(), path)
        return
    model = interop.to_ir(source) if result is None else result
    with console.working(f"writing {path}"):
        if external or storage.weight_bytes(model) >= storage.LARGEST_PROTO:
            storage.write_with_data(model, path, lambda each: interop.to_proto(each, source))
        else:
            storage.write_bytes(interop.to_proto(model, source).SerializeToString(), path)


def _explain(options: argparse.Namespace) -> int:
    if options.html:
        _require_folder(options.html)
    with console.working(f"looking into {options.model}"):
        report = explain(options.model, options.target, not options.no_exact)
    if options.html:
        storage.write_bytes(report.to_html().encode(), options.html)
        console.say(f"{report.summary()}; wrote {options.html}")
    else:
        print(report.to_json() if options.json else report)
    return EQUAL


def _verify(options: argparse.Namespace) -> int:
    return _settle(_check(options, options.original, options.model), options)


def _check(options: argparse.Namespace, original: interop.ModelLike, model: interop.ModelLike) -> Check:
    ports = interop.to_ir(interop.read(original)).graph.inputs if options.inputs else ()
    given = [feeds_file.load(path, ports) for path in options.inputs]
    with console.working("verifying") as say:
        return verify(
            original,
            model,
            given,
            cases=options.cases,
            seed=options.seed,
            seconds=options.seconds,
            ulp=options.ulp,
            device=options.device,
            progress=lambda done, total: say(f"verifying: case {done} of {total}"),
        )


def _settle(check: Check, options: argparse.Namespace) -> int:
    """Prints the check, saves its counterexample, and gives the exit code."""
    console.show(console.check_table(check))
    if check.counterexample is not None:
        console.say(f"first difference: {check.counterexample}")
        check.counterexample.save(options.counterexample)
        console.say(f"its inputs are in {options.counterexample}; try them with --inputs")
        return DIFFERENT
    if not check:
        console.complain("the original failed on all inputs, so nothing was compared: give --inputs that it accepts")
        return FAILED
    return EQUAL


def _bench(options: argparse.Namespace) -> int:
    source = interop.read(options.original)
    model = interop.to_ir(source)
    models: dict[str, interop.ModelLike] = {options.original: options.original}
    with console.working("measuring") as say:
        if options.model:
            models[options.model] = options.model
        else:
            models |= {f"optimized, target {target}": _lifted(source, target) for target in TARGETS}
        if options.inputs:
            feeds = feeds_file.load(options.inputs, model.graph.inputs)
        else:
            dims = dict(map(_dim, options.dim))
            feeds = make_one(model, dims=dims, size=options.size, count=options.trips, seed=options.seed)
        rows = bench(models, feeds, repeat=options.repeat, seconds=options.seconds, device=options.device, progress=say)
    if options.json:
        print(console.bench_json(rows, feeds))
    else:
        console.show(console.bench_table(rows, feeds))
    if all(row.problem for row in rows):
        raise LoopliftError(f"{rows[0].engine}: {rows[0].problem}")
    return DIFFERENT if any(row.same_bits is False for row in rows) else EQUAL


def _lifted(source: interop.Source, target: str) -> ir.Model:
    result, _ = lift(source, target=target, exact=True)
    if result is None:
        raise LoopliftError(f"{source.name} has no Loop or Scan: there is nothing to measure")
    return result


def _dim(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not (name and size.isdecimal()):
        raise LoopliftError(f"--dim {text}: write NAME=SIZE, such as N=1000")
    return name, int(size)


def _run(options: argparse.Namespace) -> int:
    with console.working(f"running {options.model}") as say:
        session = Session(options.model, options.device, progress=lambda *state: say(_loop_state(*state)))
        model = interop.to_ir(interop.read(options.model))
        feeds, origin = _feeds(options, model)
        started = time.perf_counter()
        outputs = session.run(None, feeds)
        seconds = time.perf_counter() - started
    named = dict(zip((value.name or "" for value in model.graph.outputs), outputs, strict=True))
    console.show(console.values_table(f"{seconds * 1e3:.1f} ms on {session.device}, inputs {origin}", named))
    if options.output:
        feeds_file.save(options.output, named)
        console.say(f"wrote {options.output}")
    return EQUAL


def _feeds(options: argparse.Namespace, model: ir.Model) -> tuple[Feeds, str]:
    if options.inputs:
        return feeds_file.load(options.inputs, model.graph.inputs), f"from {options.inputs}"
    case = next(itertools.islice(generate(model, seed=options.seed), 1))
    return case.feeds, f"made up (seed {options.seed})"


def _loop_state(node: str, iteration: int, limit: int | None) -> str:
    return f"{node}: iteration {iteration}" + (f" of {limit}" if limit else "")


def _devices(_: argparse.Namespace) -> int:
    from looplift.runtime.ops.compiled import numba_is_installed
    from looplift.runtime.webgpu import describe_devices

    rows: Sequence[Any] = describe_devices()
    if rows:
        console.show(console.rows_table("WebGPU adapters", rows))
    else:
        console.say("no WebGPU adapter (or the package wgpu is not installed): device 'auto' is numpy")
    note = "numba makes" if numba_is_installed() else "with the extra 'compiled', numba would make"
    console.say(f"numpy is always there; {note} machine code of its loops over rows")
    return EQUAL


def _check_kernels(options: argparse.Namespace) -> int:
    from looplift.runtime.webgpu import check_package

    rows = [check_package(Path(folder)) for folder in options.folder or _own_packages()]
    console.show(console.rows_table("kernel packages", rows))
    return DIFFERENT if any(row.problem for row in rows) else EQUAL


def _own_packages() -> list[str]:
    modules = [op.package for op in all_ops().values() if op.package is not None]
    return [str(importlib.resources.files(module) / "build" / "webgpu") for module in modules]

"""``looplift optimize``."""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx_ir as ir

from looplift import console, interop, storage
from looplift.cli.codes import EQUAL
from looplift.cli.paths import require_folder
from looplift.cli.verify import check, settle
from looplift.optimizer import lift

_TIMES = ("before", "after")


def run(options: argparse.Namespace) -> int:
    """Lifts the loops of a model and writes the result."""
    require_folder(options.output)
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
            code = settle(check(options, options.model, result), options, unwritten=options.output)
            if code != EQUAL:
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

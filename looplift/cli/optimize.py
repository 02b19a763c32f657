"""``looplift optimize``."""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx_ir as ir

from looplift import console, interop, storage
from looplift.cli.codes import EQUAL
from looplift.cli.dims import pairs, sizes
from looplift.cli.paths import counterexample, require_outputs
from looplift.cli.trace import Trace
from looplift.cli.verify import check, settle
from looplift.optimizer import lift, with_dims

_TIMES = ("before", "after")


def run(options: argparse.Namespace) -> int:
    """Lifts the loops of a model and writes the result."""
    outputs = {"-o": options.output, "--json": options.json, **counterexample(options, options.verify)}
    require_outputs({**outputs, "-o": None}, [options.model])  # which -o may be
    require_outputs(outputs, options.inputs)
    with console.working(f"reading {options.model}"):
        source = with_dims(interop.read(options.model), sizes(options.dim), pairs(options.same_dim))
    assert source.proto is not None
    weights = storage.data_files(source.proto, Path(source.folder))
    beside = {"the weights beside -o": f"{options.output}.data"} if weights else {}
    require_outputs({**outputs, **beside, "-o": None}, [*options.inputs, options.model])
    require_outputs({**outputs}, weights)
    with console.working(f"lifting the loops of {options.model}"):
        watch = Trace(options.trace) if options.trace else None
        result, report = lift(
            source,
            target=options.target,
            exact=not options.no_exact,
            definitions=options.definitions,
            watch=watch,
        )
    before = interop.to_ir(source)
    after = before if result is None else result
    nodes = console.count_ops(before), console.count_ops(after)
    told = (
        [console.report_table(report)] if result is None else [console.report_table(report), console.ops_table(*nodes)]
    )
    if result is not None and options.verify:
        found = check(options, before if source.assumed else options.model, result)
        if not found:
            console.show(*told)
            return settle(found, options, unwritten=options.output)
        told.append(console.check_table(found))
    written = [storage.bytes_on_disk(options.model)]  # before the output may take its place
    _write(source, result, options.output)
    written.append(storage.bytes_on_disk(options.output))
    if options.json:
        content = report.to_json(
            target=options.target,
            exact=not options.no_exact,
            nodes=dict(zip(_TIMES, nodes, strict=True)),
            bytes=dict(zip(_TIMES, written, strict=True)),
        )
        storage.write_bytes(content.encode(), options.json)
    console.show(*told)  # only now, since whoever reads may stop at any line
    console.say(f"wrote {options.output}: {written[1]:,} bytes, {written[0]:,} before")
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

"""``looplift bench``."""

from __future__ import annotations

import argparse

import onnx_ir as ir

from looplift import console, interop
from looplift.bench import bench
from looplift.cli.codes import DIFFERENT, EQUAL
from looplift.cli.dims import sizes
from looplift.optimizer import lift
from looplift.passes.pipeline import TARGETS
from looplift.runtime.errors import LoopliftError
from looplift.verification import feeds as feeds_file
from looplift.verification.cases.made_up import make_one


def run(options: argparse.Namespace) -> int:
    """Measures models on the same inputs."""
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
            feeds = make_one(model, dims=sizes(options.dim), size=options.size, count=options.trips, seed=options.seed)
        rows = bench(models, feeds, repeat=options.repeat, seconds=options.seconds, device=options.device, progress=say)
    if options.json:
        console.say(console.bench_json(rows, feeds))
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

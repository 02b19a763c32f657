"""``looplift run``."""

from __future__ import annotations

import argparse
import itertools
import time

import onnx_ir as ir

from looplift import console, interop
from looplift.cli.codes import EQUAL
from looplift.cli.paths import require_outputs
from looplift.session import Session
from looplift.verification import feeds as feeds_file
from looplift.verification.cases.made_up import Feeds, generate


def run(options: argparse.Namespace) -> int:
    """Runs a model once."""
    require_outputs({"--output": options.output}, filter(None, (options.model, options.inputs)))
    with console.working(f"running {options.model}") as say:
        session = Session(options.model, options.device, progress=lambda *state: say(_loop_state(*state)))
        model = interop.to_ir(interop.read(options.model))
        feeds, origin = _feeds(options, model)
        started = time.perf_counter()
        outputs = session.run(None, feeds)
        seconds = time.perf_counter() - started
    named = dict(zip((value.name or "" for value in model.graph.outputs), outputs, strict=True))
    if options.output:
        feeds_file.save(options.output, named)
    console.show(console.values_table(f"{seconds * 1e3:.1f} ms on {session.device}, inputs {origin}", named))
    if options.output:
        console.say(f"wrote {options.output}")
    return EQUAL


def _feeds(options: argparse.Namespace, model: ir.Model) -> tuple[Feeds, str]:
    if options.inputs:
        return feeds_file.load(options.inputs, model.graph.inputs), f"from {options.inputs}"
    case = next(itertools.islice(generate(model, seed=options.seed), 1))
    return case.feeds, f"made up (seed {options.seed})"


def _loop_state(node: str, iteration: int, limit: int | None) -> str:
    return f"{node}: iteration {iteration}" + (f" of {limit}" if limit else "")

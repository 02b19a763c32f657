"""``looplift verify``, and the check that ``looplift optimize --verify`` makes."""

from __future__ import annotations

import argparse

from looplift import console, interop
from looplift.checking import feeds as feeds_file
from looplift.checking.check import verify
from looplift.checking.outcome import Check
from looplift.cli.codes import DIFFERENT, EQUAL, FAILED


def run(options: argparse.Namespace) -> int:
    """Compares two models."""
    return settle(check(options, options.original, options.model), options)


def check(options: argparse.Namespace, original: interop.ModelLike, model: interop.ModelLike) -> Check:
    """Compares two models as the options say."""
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


def settle(found: Check, options: argparse.Namespace) -> int:
    """Prints the check, saves its counterexample, and gives the exit code."""
    console.show(console.check_table(found))
    if found.counterexample is not None:
        console.say(f"first difference: {found.counterexample}")
        found.counterexample.save(options.counterexample)
        console.say(f"its inputs are in {options.counterexample}; try them with --inputs")
        return DIFFERENT
    if not found:
        console.complain("the original failed on all inputs, so nothing was compared: give --inputs that it accepts")
        return FAILED
    return EQUAL

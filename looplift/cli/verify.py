"""``looplift verify``, and the check that ``looplift optimize --verify`` makes."""

from __future__ import annotations

import argparse
import contextlib

from looplift import console, interop, messages, storage
from looplift.cli.codes import DIFFERENT, EQUAL, HARDLY_TESTED
from looplift.cli.paths import counterexample, require_outputs
from looplift.verification import feeds as feeds_file
from looplift.verification import memory
from looplift.verification.check import verify
from looplift.verification.outcome import Check


def run(options: argparse.Namespace) -> int:
    """Compares two models."""
    require_outputs(counterexample(options), [options.original, options.model, *options.inputs])
    return settle(check(options, options.original, options.model), options)


def check(options: argparse.Namespace, original: interop.ModelLike, model: interop.ModelLike) -> Check:
    """Compares two models as the options say; the original is a path, or what was read from ``options.model``."""
    ports = interop.to_ir(interop.read(original)).graph.inputs if options.inputs else ()
    given = [feeds_file.load(path, ports) for path in options.inputs]
    # What is made up is small; inputs that a person gives may be large.
    allowance = memory.allowance(storage.bytes_on_disk(original if isinstance(original, str) else options.model))
    bound = contextlib.nullcontext() if given else memory.at_most(allowance)
    with bound, console.working("verifying") as say:
        return verify(
            original,
            model,
            given,
            cases=options.cases,
            seed=options.seed,
            seconds=options.seconds,
            ulp=options.ulp,
            device=options.device,
            allow_few=options.allow_few,
            progress=lambda done, total: say(f"verifying: case {done} of {total}"),
        )


def settle(found: Check, options: argparse.Namespace, unwritten: str = "") -> int:
    """Prints the check, saves its counterexample, and gives the exit code.

    Args:
        found: the check.
        options: of the command.
        unwritten: a file that is written only if the check succeeds.
    """
    failure = f"{unwritten} is not written" if unwritten else ""
    console.show(console.check_table(found))
    if found.counterexample is not None:
        path = counterexample(options)["--counterexample"]
        found.counterexample.save(path)
        console.say(f"first difference: {found.counterexample}")
        console.say(f"its inputs are in {path}; try them with --inputs")
        if failure:
            messages.complain(failure)
        return DIFFERENT
    if not found:
        messages.complain(": ".join(filter(None, (failure, f"{found.headline}; {found.advice}"))))
        return HARDLY_TESTED
    return EQUAL

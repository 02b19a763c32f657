"""Shows one program before and after, or runs many and says what differs and what they contain."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import time

import onnx_ir as ir

from looplift import interop, optimizer
from programs.check import TARGETS, check
from programs.generate import FIRST, program
from programs.shrink import shrink, still


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m programs", description=__doc__)
    parser.add_argument("--seed", type=int, help="show this one")
    parser.add_argument("--shrink", action="store_true", help="make what differs smaller first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    if options.seed is not None:
        show(options.seed, options.shrink)
    else:
        many(range(options.first, options.first + options.count))


def show(seed: int, smaller: bool) -> None:
    """Prints a program, its optimized forms, its findings and its differences."""
    subject = program(seed)
    differences = check(subject).differences
    if smaller and differences:
        case = differences[0].case or FIRST
        subject = shrink(dataclasses.replace(subject, feeds={case: subject.feeds[case]}), still(differences[0]))
    print(subject.text())
    print(subject.feeds if smaller else "")
    for target in TARGETS:
        after, report = optimizer.lift(interop.read(subject.model), target=target, exact=True)
        print(f"\n-- for {target}\n{report}")
        if after is not None:
            print(ir.to_onnx_text(after))
    for difference in check(subject).differences:
        print(difference)


def many(seeds: range) -> None:
    """Prints each difference, then what the programs contain."""
    total: collections.Counter[str] = collections.Counter()
    start = time.process_time()
    for done, seed in enumerate(seeds):
        if done and done % 100 == 0:
            print(f"{done} programs in {time.process_time() - start:.1f} s of CPU", flush=True)
        subject = program(seed)
        outcome = check(subject)
        total.update(set(subject.used))
        total.update(f"ran in {name}" for name in outcome.ran)
        total["ran"] += bool(outcome.ran)
        total.update(f"ran as written in {name}" for name in outcome.as_written)
        found = [finding for report in outcome.reports for finding in report.findings]
        total["something lifted"] += any(finding.lifted for finding in found)
        total["something lifted or simplified"] += any(finding.lifted or finding.actions for finding in found)
        total["different"] += bool(outcome.differences)
        for difference in outcome.differences[:1]:
            print(f"{seed}: {difference}", flush=True)
    print(f"\n{len(seeds)} programs in {time.process_time() - start:.1f} s of CPU; share of those with")
    for name, count in sorted(total.items()):
        print(f"  {100 * count / len(seeds):5.1f} %  {name}")


if __name__ == "__main__":
    main()

"""``looplift explain``."""

from __future__ import annotations

import argparse

from looplift import console, storage
from looplift.cli.codes import EQUAL
from looplift.cli.paths import require_folder
from looplift.optimizer import explain


def run(options: argparse.Namespace) -> int:
    """Says what became of each loop, as text, JSON or a page."""
    if options.html:
        require_folder(options.html)
    with console.working(f"looking into {options.model}"):
        report = explain(options.model, options.target, not options.no_exact)
    if options.html:
        storage.write_bytes(report.to_html().encode(), options.html)
        console.say(f"{report.summary()}; wrote {options.html}")
    else:
        print(report.to_json() if options.json else report)
    return EQUAL

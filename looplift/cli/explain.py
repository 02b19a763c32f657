"""``looplift explain``."""

from __future__ import annotations

import argparse

from looplift import console, storage
from looplift.cli.codes import EQUAL
from looplift.cli.dims import pairs, sizes
from looplift.cli.paths import require_outputs
from looplift.optimizer import explain


def run(options: argparse.Namespace) -> int:
    """Says what became of each loop, as text, JSON or a page."""
    require_outputs({"--html": options.html}, [options.model])
    with console.working(f"looking into {options.model}"):
        dims, same = sizes(options.dim), pairs(options.same_dim)
        report = explain(options.model, options.target, not options.no_exact, dims=dims, same_dims=same)
    if options.html:
        storage.write_bytes(report.to_html().encode(), options.html)
        console.say(f"{report.summary()}; wrote {options.html}")
    else:
        console.say(report.to_json() if options.json else str(report))
    return EQUAL

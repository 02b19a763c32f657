"""The options are read before anything heavy is imported."""

import subprocess
import sys

from looplift.cli import options
from looplift.passes import pipeline


def test_the_targets_are_those_of_the_pipeline() -> None:
    assert options.TARGETS == pipeline.TARGETS


def test_help_needs_no_onnx() -> None:
    code = (
        "import sys, looplift.cli\n"
        "try: looplift.cli.main(['optimize', '--help'])\n"
        "except SystemExit: print([name for name in ('onnx', 'onnx_ir', 'numpy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.splitlines()[-1] == "[]"

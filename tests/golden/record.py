"""Compares what the pipeline makes of every known model with the golden file, or makes a new one.

    python tests/golden/record.py                  compare; exit status 1 and a list of models if anything differs
    python tests/golden/record.py --write          make this the golden file
    python tests/golden/record.py --models DIR     keep the models there, to look at those that differ

The models are all that the tests give the pipeline (the tests run once for that), the exports in ``tests/data`` and
random programs of fixed seeds. A change that moves or merges code keeps every digest; a change of a result is a commit
of its own, which says why, and comes with a new golden file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import onnx

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from golden import hashes  # noqa: E402


def collect(folder: Path) -> None:
    """Runs the tests and keeps the models that they give the pipeline. A test that fails is not this script's affair."""
    environment = {**os.environ, "LOOPLIFT_COLLECT": str(folder), "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "golden.collect"]
    tests = [f"tests/{room}" for room in ("patterns", "passes", "looplift")]
    subprocess.run([*command, *tests], cwd=TESTS.parent, env=environment, stdout=subprocess.DEVNULL, check=False)


def digests_of(file: Path) -> str:
    """The digests of a model in a file."""
    return hashes.digests(onnx.load(file))


def main() -> int:
    """Compares or writes; the exit status."""
    parser = argparse.ArgumentParser(description="Compare the pipeline's results with the golden file.")
    parser.add_argument("--write", action="store_true", help="make this the golden file")
    parser.add_argument("--models", type=Path, help="keep the models there; if it has some, those are used")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob("*.onnx")):
            collect(folder)
        files = sorted(folder.glob("*.onnx"))
        with ProcessPoolExecutor(2) as pool:
            found = dict(zip((file.stem for file in files), pool.map(digests_of, files, chunksize=16), strict=True))
    found |= {name: hashes.digests(proto) for name, proto in hashes.shipped()}
    if args.write:
        hashes.write(found)
        print(f"{len(found)} models recorded")
        return 0
    old = hashes.recorded()
    different = [name for name in found if name in old and old[name] != found[name]]
    for name in different:
        print(f"{name}: {old[name]} became {found[name]}")
    print(f"{len(different)} of {len(set(found) & set(old))} models differ; {len(set(found) - set(old))} are new")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

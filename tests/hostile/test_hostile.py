"""Mutants of good models through every command, each in a process with 2 GB and 10 s of work.

Each ends with exit code 0 to 3 and, if it could not do its work, with one line on standard error; a run that is still
going after 10 s (a model may ask for 2^63 iterations) ends at an interrupt. To keep the tests short, commands rotate:
those of every day take each of 500 files through one of the six, the slow ones each of 2,000 (`LOOPLIFT_MUTANTS`) through three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile import mutate

SERVER = Path(__file__).with_name("server.py")
FEW, MANY, SHARE = 500, int(os.environ.get("LOOPLIFT_MUTANTS", "2000")), 250


class Commands:
    """The commands that one file goes through, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.file, self.lifted = folder / "m.onnx", folder / "k.onnx"
        self.folder = folder
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(folder)}
        self._server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env={**os.environ, **threads},
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def close(self) -> None:
        self._server.kill()
        self._server.wait()

    def all(self) -> Iterator[list[str]]:
        """Each command's arguments, in order: what is verified is what was written before."""
        file, out = str(self.file), str(self.folder / "out")
        yield ["explain", file]
        yield ["optimize", file, "-o", str(self.lifted)]
        yield ["optimize", file, "-o", out, "--target", "standard"]
        other = str(self.lifted if self.lifted.exists() else self.file)
        yield ["verify", file, other, "--cases", "3", "--seconds", "2"]
        yield ["run", file, "--device", "numpy", "--output", out]
        small = ["--trips", "3", "--size", "3", "--repeat", "1", "--seconds", "0.1", "--device", "numpy"]
        yield ["bench", file, *small]

    def run(self, arguments: list[str]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(arguments) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def faults(self, content: bytes, chosen: set[int]) -> list[str]:
        """What commands do wrong on a file."""
        self.file.write_bytes(content)
        self.lifted.unlink(missing_ok=True)
        found = []
        for place, arguments in enumerate(self.all()):
            if place in chosen:
                fault = wrong(self.run(arguments))
                found += [f"{arguments[0]}: {fault}"] if fault else []
        return found


def wrong(answer: dict[str, Any]) -> str:
    """What is wrong with how a command ended; empty if nothing."""
    code, lines = answer["code"], answer["err"].splitlines()
    if answer["interrupted"] and code == 130:
        return "" if not lines else f"interrupted, with {lines[0]}"
    if code not in (0, 1, 2, 3):
        return f"exit code {code}: {lines[-1] if lines else ''}"
    if len(lines) > 1 or (code in (2, 3) and len(lines) != 1):
        return f"exit code {code} with {len(lines)} lines: {lines[:2]}"
    if any(ord(character) < 32 and character != "\n" for character in answer["err"] + answer["out"]):
        return "control characters"
    return ""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    made = Commands(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


def test_good_models_go_through(commands: Commands) -> None:
    commands.file.write_bytes((mutate.EXPORTS / "tf_while_addstep.onnx").read_bytes())
    codes = [commands.run(arguments)["code"] for arguments in commands.all()]
    assert codes == [0] * 6


def test_mutants_follow_from_their_number() -> None:
    models = mutate.seeds()
    made = [mutate.mutant(number, models) for number in range(60)]
    assert made == [mutate.mutant(number, models) for number in range(60)]
    assert sum(one not in models for one in made) > 40


def test_mutants_end_well(commands: Commands) -> None:
    models = mutate.seeds()
    found = {
        number: commands.faults(mutate.mutant(number, models), {number // len(models) % 6}) for number in range(FEW)
    }
    assert {number: faults for number, faults in found.items() if faults} == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, FEW + MANY, SHARE))
def test_many_mutants_end_well(first: int, commands: Commands) -> None:
    models = mutate.seeds()
    halves = {0, 1, 3}, {2, 4, 5}
    found = {
        number: commands.faults(mutate.mutant(number, models), halves[number // len(models) % 2])
        for number in range(first, first + SHARE)
    }
    assert {number: faults for number, faults in found.items() if faults} == {}

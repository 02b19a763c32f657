"""Mutants of good models through every command, with 2 GB and 10 s of work for each.

Each ends with exit code 0 to 3 and, if it could not do its work, with one line on standard error; a run that is still
going after 10 s (a model may ask for 2^63 iterations) ends at an interrupt. A file goes through all six commands in a
process forked for it (`server`); what is wrong there is tried again in a process for the command alone. The tests of
every day take so many files as there is time for, the slow ones 10,000 (`LOOPLIFT_MUTANTS`).
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
FEW, MANY, SHARE = 500, int(os.environ.get("LOOPLIFT_MUTANTS", "10000")), 250


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

    def all(self) -> list[list[str]]:
        """Each command's arguments, in order: what is verified is what was written before."""
        file, lifted, out = str(self.file), str(self.lifted), str(self.folder / "out")
        small = ["--trips", "3", "--size", "3", "--repeat", "1", "--seconds", "0.1", "--device", "numpy"]
        return [
            ["explain", file],
            ["optimize", file, "-o", lifted],
            ["optimize", file, "-o", out, "--target", "standard"],
            ["verify", file, lifted, "--cases", "2", "--seconds", "2"],
            ["run", file, "--device", "numpy", "--output", out],
            ["bench", file, *small],
        ]

    def run(self, commands: list[list[str]]) -> list[dict[str, Any]]:
        """How they ended, one after the other."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(commands) + "\n")
        self._server.stdin.flush()
        answers: list[dict[str, Any]] = json.loads(self._server.stdout.readline())
        return answers

    def faults(self, content: bytes) -> list[str]:
        """What commands do wrong on a file, also where each has a process of its own."""
        self.file.write_bytes(content)
        self.lifted.write_bytes(content)  # verified where nothing is written
        commands = self.all()
        wrongly = [each for each, answer in zip(commands, self.run(commands), strict=True) if wrong(answer)]
        alone = ((arguments[0], wrong(*self.run([arguments]))) for arguments in wrongly)
        return [f"{command}: {fault}" for command, fault in alone if fault]


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
    content = (mutate.EXPORTS / "tf_while_addstep.onnx").read_bytes()
    commands.file.write_bytes(content)
    commands.lifted.write_bytes(content)
    assert [answer["code"] for answer in commands.run(commands.all())] == [0] * 6
    assert commands.lifted.read_bytes() != content


def test_mutants_follow_from_their_number() -> None:
    models = mutate.seeds()
    made = [mutate.mutant(number, models) for number in range(60)]
    assert made == [mutate.mutant(number, models) for number in range(60)]
    assert sum(one not in models for one in made) > 40


def test_mutants_end_well(commands: Commands) -> None:
    models = mutate.seeds()
    found = {number: commands.faults(mutate.mutant(number, models)) for number in range(FEW)}
    assert {number: faults for number, faults in found.items() if faults} == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, FEW + MANY, SHARE))
def test_many_mutants_end_well(first: int, commands: Commands) -> None:
    models = mutate.seeds()
    found = {number: commands.faults(mutate.mutant(number, models)) for number in range(first, first + SHARE)}
    assert {number: faults for number, faults in found.items() if faults} == {}

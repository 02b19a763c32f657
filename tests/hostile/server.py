"""Runs commands of looplift with little memory and time; a script.

Importing takes longer than most commands do, and so does a fork of a large process. So this process imports everything,
runs nothing, and forks for each file; the child runs the commands that the file goes through, one after the other. Each
has 10 s of work, and all of them together 2 GB. A child that ends before it is through, or that had to be interrupted,
is followed by another one for the commands that are left.

Reads a line of JSON for a file: a list of commands, each the list of its arguments. Answers with a line: a list with an
answer for each (`Answer`).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypedDict

MEMORY = 2 << 30
SECONDS = 10.0
PATIENCE = 2.0
"""Seconds that a command may take to end after an interrupt."""

LONGEST_TOLD = 20_000
"""Bytes of standard output and of standard error that are looked at."""


class Answer(TypedDict):
    """How a command ended: the exit code (negative: the signal), and what it told; whether it had to be interrupted."""

    code: int
    out: str
    err: str
    interrupted: bool


class ForkedWorker:
    """Stands for the process that runs ONNX Runtime: forked as well, and as killable."""

    def __init__(self, _arguments: Any, **_options: Any) -> None:
        requests, to_child = os.pipe()
        from_child, answers = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(to_child)
            os.close(from_child)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with contextlib.suppress(BaseException):
                from looplift.verification import ort_worker

                ort_worker.serve(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))
            os._exit(0)
        os.close(requests)
        os.close(answers)
        self.stdin, self.stdout = os.fdopen(to_child, "wb"), os.fdopen(from_child, "rb")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def preload() -> None:
    """Imports what commands use, and has them work once."""
    import onnxruntime  # noqa: F401

    from looplift.cli import options

    for command in ("explain", "optimize", "verify", "run", "bench"):
        importlib.import_module(f"looplift.cli.{command}")
    options.parser = functools.cache(options.parser)  # it takes as long as many a command
    warm_up()
    subprocess.Popen = ForkedWorker  # type: ignore[misc, assignment]
    gc.collect()
    gc.freeze()


def warm_up() -> None:
    """Fills what is remembered from command to command, in this thread: schemas, kernels' text, numpy's tables."""
    from looplift.cli import main

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        for path in sorted((Path(__file__).parents[1] / "data" / "exports").glob("*.onnx")):
            for target in ("kernel", "standard"):
                with contextlib.redirect_stdout(nowhere):
                    main(["optimize", str(path), "-o", f"{folder}/m.onnx", "--target", target])
                    main(["run", f"{folder}/m.onnx", "--device", "numpy"])


class Told:
    """What commands write to standard output and standard error; it outlives the process that wrote it."""

    def __init__(self) -> None:
        self._files = {1: os.memfd_create("out"), 2: os.memfd_create("err")}

    def redirect(self) -> None:
        """Has this process write here."""
        for stream, file in self._files.items():
            os.dup2(file, stream)

    def take(self) -> tuple[str, str]:
        """What was written to both since the last time."""
        texts = []
        for file in self._files.values():
            texts.append(os.pread(file, LONGEST_TOLD, 0).decode("utf-8", "replace"))
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
        return texts[0], texts[1]

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)


def work(commands: list[list[str]], told: Told, codes: int) -> None:
    """Runs commands, and tells of each how it ended; in the child, and never returns."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have had ignored
    told.redirect()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for arguments in commands:
        code = run(arguments)
        os.write(codes, json.dumps([code, *told.take()]).encode() + b"\n")
        gc.collect()
    os._exit(0)


def run(arguments: list[str]) -> int:
    """The exit code of one command; what gets out of it is on standard error."""
    from looplift.cli import main

    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 71
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def cpu_seconds(pid: int) -> float:
    """What a process and those that it started have worked: on a busy machine they may have waited most of the time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        started = [int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in _children(task)]
    except OSError:  # it has ended meanwhile
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, started))


def _children(task: Path) -> list[str]:
    """Of a thread."""
    return (task / "children").read_text().split()


class Child:
    """A process that runs commands, and how they end."""

    def __init__(self, commands: list[list[str]]) -> None:
        self._told, (self._codes, to_codes) = Told(), os.pipe()
        self._heard = b""
        self._pid = os.fork()
        if self._pid == 0:
            work(commands, self._told, to_codes)
        os.close(to_codes)

    def next(self) -> Answer:
        """How the next command ends; a child that ended instead, or was interrupted, is good for no other one."""
        interrupted = self._listen()
        if b"\n" in self._heard:
            line, _, self._heard = self._heard.partition(b"\n")
            code, out, err = json.loads(line)
            return {"code": code, "out": out, "err": err, "interrupted": interrupted}
        out, err = self._told.take()
        return {"code": self._end(), "out": out, "err": err, "interrupted": interrupted}

    @property
    def alive(self) -> bool:
        """Whether it may run another command."""
        return self._pid != 0

    def _listen(self) -> bool:
        """Until the child tells how its command ended, or ends; whether the command had to be interrupted."""
        began, worked, interrupted = time.monotonic(), cpu_seconds(self._pid), False
        while b"\n" not in self._heard:
            if select.select([self._codes], [], [], 0.1)[0]:
                part = os.read(self._codes, 1 << 16)
                if not part:
                    break
                self._heard += part
            elif os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break  # and what it started lives on, with the other end of the pipe
            taken, spent = time.monotonic() - began, cpu_seconds(self._pid) - worked
            if taken > SECONDS and not interrupted and (spent > SECONDS or taken > 10 * SECONDS):
                interrupted = True
                os.kill(self._pid, signal.SIGINT)
            elif interrupted and (spent > SECONDS + PATIENCE or taken > 11 * SECONDS):
                os.kill(self._pid, signal.SIGKILL)
        return interrupted

    def _end(self) -> int:
        """Ends it, with all that it started; how it ended."""
        pid, self._pid = self._pid, 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self) -> None:
        if self.alive:
            self._end()
        self._told.close()
        os.close(self._codes)


def some(commands: list[list[str]]) -> list[Answer]:
    """Runs commands in one child, until all are done, one is interrupted, or the child ends; one at least."""
    child, answers = Child(commands), []
    with contextlib.closing(child):
        while len(answers) < len(commands):
            answers.append(child.next())
            if answers[-1]["interrupted"] or not child.alive:
                break
    return answers


def serve() -> None:
    preload()
    print("ready", flush=True)
    for line in sys.stdin:
        commands, answers = json.loads(line), []
        while len(answers) < len(commands):
            answers += some(commands[len(answers) :])
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    serve()

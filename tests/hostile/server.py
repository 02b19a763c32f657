"""Runs commands of looplift, each in a process of its own with little memory and time; a script.

Importing takes longer than most commands do. So this process imports everything, runs nothing, and forks for each
command: it has one thread, and the child is as good as a new process. Reads a JSON list a line: the arguments of a
command; answers with a line: the exit code (negative: the signal), seconds, what is on standard error, and on standard
output.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MEMORY = 2 << 30
SECONDS = 10.0
PATIENCE = 2.0
"""Seconds that a command may take to end after an interrupt."""


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

    for command in ("explain", "optimize", "verify", "run", "bench"):
        importlib.import_module(f"looplift.cli.{command}")
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


def child(arguments: list[str], out: int, err: int) -> None:
    """Never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from looplift.cli import main

        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 71
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def cpu_seconds(pid: int) -> float:
    """What a process has worked: on a busy machine it may have waited for most of the time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(arguments: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(arguments, out.fileno(), err.fileno())
        interrupted = False
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            taken = time.monotonic() - started
            if taken > SECONDS and not interrupted and (cpu_seconds(pid) > SECONDS or taken > 10 * SECONDS):
                interrupted = True
                os.kill(pid, signal.SIGINT)
            elif interrupted and cpu_seconds(pid) > SECONDS + PATIENCE:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001 if taken < 0.1 else 0.02)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        taken = time.monotonic() - started
        told = []
        for stream in (err, out):
            stream.seek(0)
            told.append(stream.read(20_000).decode("utf-8", "replace"))
    code = os.waitstatus_to_exitcode(ended[1])
    return {"code": code, "seconds": taken, "err": told[0], "out": told[1], "interrupted": interrupted}


def serve() -> None:
    preload()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()

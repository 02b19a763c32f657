"""What runs a model during a check: our interpreter, and ONNX Runtime in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import onnx
import onnx_ir as ir

from looplift import interop, storage
from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError, ran_out_of_memory
from looplift.verification.cases.made_up import Feeds
from looplift.verification.compare import Value

MAX_ITERATIONS = 100_000
"""Of one loop, during a check: a loop that runs for longer counts as an error."""


LONGEST_LOAD = 60.0
"""Seconds that ONNX Runtime may take to load a model."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one run: the outputs, or why there are none; `timed_out` if that is the time it took, `seconds`;
    `out_of_memory` if it is the memory that it asked for."""

    outputs: list[Value] | None
    error: str = ""
    timed_out: bool = False
    seconds: float = 0.0
    out_of_memory: bool = False

    @property
    def failed(self) -> bool:
        """Whether the run ended in an error."""
        return self.outputs is None


class Engine(Protocol):
    """Runs one model."""

    def run(self, feeds: Feeds) -> Outcome:
        """Runs it once; an error in the model or its inputs is an outcome, not an exception."""
        ...

    def close(self) -> None:
        """Ends what was started."""
        ...


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same engine with the original and with rewritten models; ``strict``: shapes of empty tensors count."""

    name: str
    original: Engine
    rewritten: tuple[tuple[str, Engine], ...]
    strict: bool


class _TooLongError(BaseException):
    """Ends a run from within; not an Exception, so that no handler takes it for a fault of the model."""


class Interpreter:
    """Our runtime.

    Args:
        model: what to run.
        device: as for a session.
        seconds: a loop that is still running after this time is an error.
        definitions: run our ops by their definitions instead of their kernels.
        extra: as for a session.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        seconds: float,
        device: str = "numpy",
        definitions: bool = False,
        extra: Mapping[tuple[str, str], Callable[..., Any]] = MappingProxyType({}),
    ) -> None:
        self._seconds = seconds
        self._deadline = 0.0
        self._session = Session(
            model, device, definitions=definitions, max_iterations=MAX_ITERATIONS, progress=self._watch, extra=extra
        )

    def _watch(self, _node: str, _iteration: int, _limit: int | None) -> None:
        if time.monotonic() > self._deadline:
            raise _TooLongError

    def run(self, feeds: Feeds) -> Outcome:
        """See `Engine`."""
        started = time.monotonic()
        self._deadline = started + self._seconds
        try:
            outputs = self._session.run(None, feeds)
            return Outcome(outputs, seconds=time.monotonic() - started)
        except LoopliftError as error:
            return Outcome(None, str(error), out_of_memory=ran_out_of_memory(error))
        except _TooLongError:
            return Outcome(None, _no_answer(self._seconds), timed_out=True, seconds=self._seconds)

    def close(self) -> None:
        """Nothing was started."""


_NO_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
"""In ONNX Runtime's words."""

_ENDED = "ONNX Runtime brought its process down"


def _no_answer(seconds: float) -> str:
    return f"no answer in {seconds:.3g} s"


class OnnxRuntime:
    """ONNX Runtime, CPU provider, default optimizations."""

    def __init__(self, model: Path, *, seconds: float, kernels: Path | None = None) -> None:
        """Starts the process, which begins to load the model; see `wait_until_loaded`.

        Args:
            model: the file.
            seconds: longest wait for one answer.
            kernels: a library of custom ops to register.
        """
        self._model = model
        self._kernels = kernels
        self._seconds = seconds
        self._start()

    def _start(self) -> None:
        self._ended = ""
        self._timed_out = False
        self._answers: queue.Queue[Any] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ort_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=self._read, args=(self._process, self._answers), daemon=True).start()
        self._send((str(self._model), None if self._kernels is None else str(self._kernels)))

    def wait_until_loaded(self) -> None:
        """Returns once the model can be run.

        Raises:
            LoopliftError: ONNX Runtime does not take the model.
        """
        problem = self._receive(max(self._seconds, LONGEST_LOAD))
        if problem is not None:
            self.close()
            raise LoopliftError(f"ONNX Runtime does not load the model: {_one_line(problem)}")

    @staticmethod
    def _read(process: subprocess.Popen[bytes], answers: queue.Queue[Any]) -> None:
        assert process.stdout is not None
        while True:
            try:
                answers.put(pickle.load(process.stdout))
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                answers.put(_ENDED)
                return

    def _send(self, request: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reading side notices that the process ended
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()

    def _receive(self, seconds: float) -> Any:
        if self._ended:
            return self._ended
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            answer = None
            self._ended, self._timed_out = _no_answer(seconds), True
        if self._ended or answer is _ENDED:
            self._ended = self._ended or _ENDED
            self.close()
            return self._ended
        return answer

    def run(self, feeds: Feeds) -> Outcome:
        """See `Engine`. After a crash, or a run that took too long, the next one starts a process anew."""
        return self.measure(feeds, repeat=0, seconds=0.0)[0]

    def measure(self, feeds: Feeds, *, repeat: int, seconds: float) -> tuple[Outcome, list[float]]:
        """Runs it once, then up to `repeat` times, all in so many seconds; gives the seconds of these runs, too."""
        if self._ended:
            self._start()
            self.wait_until_loaded()
        started = time.monotonic()
        self._send((feeds, repeat, seconds))
        answer = self._receive(max(self._seconds, seconds))
        elapsed = time.monotonic() - started
        if isinstance(answer, str):
            asked_too_much = any(words in answer for words in _NO_MEMORY)
            return Outcome(None, _one_line(answer), self._timed_out, elapsed, asked_too_much), []
        outputs, taken = answer
        return Outcome(outputs, seconds=elapsed), taken

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def has_onnxruntime() -> bool:
    """Whether onnxruntime is installed; does not import it."""
    return importlib.util.find_spec("onnxruntime") is not None


def file_for_onnxruntime(source: interop.Source, model: ir.Model, folder: Path) -> Path:
    """A file with the model as it was given: the user's own, or one written to `folder`."""
    if source.folder:
        return Path(source.given)
    file = Path(tempfile.mkdtemp(dir=folder)) / "model.onnx"
    if storage.has_external_data(model) or storage.weight_bytes(model) >= storage.LARGEST_PROTO:
        storage.write_with_data(model, file)
    else:
        proto: onnx.ModelProto = source.proto if source.proto is not None else ir.to_proto(model)
        storage.write_bytes(proto.SerializeToString(), file)
    return file

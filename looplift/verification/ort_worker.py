"""A process of its own that runs one model in ONNX Runtime.

ONNX Runtime can't be stopped in the middle of an endless loop, and some malformed models bring the process down, so
it does not run in the user's. Run as a script by `engines.OnnxRuntime`: pickled messages on standard input and output.
First message: the paths of the model and of a library of kernels (or None), answered by None or an error text. Then
feeds, how often to run and for how long at most; answered by the outputs and the seconds of every run, or an error.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

_PR_SET_PDEATHSIG = 1


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until there are no more."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1

    def load(path: str, kernels: str | None) -> Any:
        if kernels is not None:
            options.register_custom_ops_library(kernels)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    session = _answer(answers, lambda: load(*pickle.load(requests)), show=lambda _: None)
    while session is not None:
        try:
            feeds, *limits = pickle.load(requests)
        except EOFError:
            return
        run = functools.partial(session.run, None, feeds)
        _answer(answers, functools.partial(measure, run, *limits), show=lambda measured: measured)


def measure(run: Callable[[], Any], repeat: int, seconds: float) -> tuple[Any, list[float]]:
    """Runs something once, and then up to `repeat` times, but begins no run that would not end in so many seconds.

    Returns:
        What the first run gave, and the seconds that each of the others took, or the first where there are none.
    """
    began = time.perf_counter()
    result = run()
    taken: list[float] = []
    now = time.perf_counter()
    longest = first = now - began
    while len(taken) < repeat and now + longest - began < seconds:
        started = now
        run()
        now = time.perf_counter()
        taken.append(now - started)
        longest = max(longest, taken[-1])
    return result, taken or [first]


def _answer(answers: BinaryIO, work: Any, show: Any) -> Any:
    """Does the work and sends what `show` makes of the result, or the error's text; returns the result or None."""
    try:
        result = work()
        answer = show(result)
    except Exception as error:  # whatever ONNX Runtime raises is an answer to the other side
        result, answer = None, f"{type(error).__name__}: {error}"
    pickle.dump(answer, answers)
    answers.flush()
    return result


def end_with_parent() -> None:
    """Has the system end this process when the one that started it is gone, even if that was killed; in Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    sys.path.pop(0)  # this folder, whose modules are not top-level ones
    answers_only = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints to standard output must not end up between the answers
    serve(sys.stdin.buffer, answers_only)

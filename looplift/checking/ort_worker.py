"""A process of its own that runs one model in ONNX Runtime.

ONNX Runtime can't be stopped in the middle of an endless loop, and some malformed models bring the process down, so
it does not run in the user's. Run as a script by `engines.OnnxRuntime`: pickled messages on standard input and output.
First message: the model's path, answered by None or an error text. Then feeds, answered by a list or an error text.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any, BinaryIO


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until there are no more."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1

    def load(path: str) -> Any:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    session = _answer(answers, lambda: load(pickle.load(requests)), show=lambda _: None)
    while session is not None:
        try:
            feeds = pickle.load(requests)
        except EOFError:
            return
        _answer(answers, lambda feeds=feeds: session.run(None, feeds), show=lambda outputs: outputs)


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


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules are not top-level ones
    answers_only = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints to standard output must not end up between the answers
    serve(sys.stdin.buffer, answers_only)

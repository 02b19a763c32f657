"""Ends work when its time is over, whatever it is doing.

The work goes on in a thread of its own, which is ended from outside: an exception is raised in it at its next step of
Python. A step that is one long call into native code can't be ended; it is left behind, and nobody waits for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

_STACK = 64 << 20
"""Bytes; models nest deeply, and some systems give threads little."""

_GRACE = 0.5
"""Seconds that work which was told to end may take to tidy up."""


class OutOfTimeError(BaseException):
    """Ends work from within; not an Exception, so that no handler takes it for a fault of the model."""


def run_within(seconds: float, work: Callable[[], None], interrupt: Callable[[], None]) -> bool:
    """Does the work, for so many seconds at most.

    Args:
        seconds: how long.
        work: what to do.
        interrupt: called when the time is over: ends what the work may be waiting for.

    Returns:
        Whether it came to its end in time.

    Raises:
        BaseException: what the work raised.
    """
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)

    thread = _start(run)
    try:
        thread.join(max(seconds, 0.0))
    finally:  # time is over, or the person interrupts
        in_time = not thread.is_alive()
        if not in_time:
            _end(thread, interrupt)
    if in_time and failure:
        raise failure[0]
    return in_time


def _start(run: Callable[[], None]) -> threading.Thread:
    before = threading.stack_size(_STACK)
    try:
        thread = threading.Thread(target=run, name="looplift-verify", daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread


def _end(thread: threading.Thread, interrupt: Callable[[], None]) -> None:
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    step = _GRACE / 10
    for _ in range(10):  # again, since one that hits a finalizer is lost
        raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(OutOfTimeError))
        interrupt()
        thread.join(step)
        if not thread.is_alive():
            return

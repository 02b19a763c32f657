"""A run that can't end is refused before it starts; one that takes long hears of Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter.control.loops import MOST_ITERATIONS
from looplift.runtime.ops import compiled
from looplift.runtime.ops.linear_recurrence import numpy_kernel as linear_recurrence
from looplift.runtime.ops.prefix_sum import numpy_kernel as prefix_sum

LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 n, float x) => (float y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float p) => (bool d, float q) {
    d = %s
    q = Cos (p)
  }>
}"""
FEEDS = {"x": np.float32(1)}


@pytest.mark.parametrize("count", [np.iinfo(np.int64).max, MOST_ITERATIONS + 1])
def test_a_loop_that_would_run_for_years_is_refused(count: int) -> None:
    session = Session(ir.from_onnx_text(LOOP % "Identity (c)"), "numpy")
    with pytest.raises(LoopliftError, match=r"would run for .* years; give max_iterations"):
        session.run(None, {"n": np.int64(count), **FEEDS})


def test_rows_that_outgrow_memory_are_refused_in_the_first_iteration() -> None:
    text = LOOP.replace("(float y)", "(float y, float[r] z)").replace("y = Loop", "y, z = Loop")
    text = text.replace("float q)", "float q, float row)").replace("q = Cos (p)", "q = Cos (p)\n row = Identity (q)")
    session = Session(ir.from_onnx_text(text % "Identity (c)"), "numpy")
    with pytest.raises(LoopliftError, match=r"iteration 0 .* the rows of scan output 'row' .* run fewer iterations"):
        session.run(None, {"n": np.int64(2**44), **FEEDS})


def test_a_loop_that_a_condition_may_end_is_not() -> None:
    session = Session(ir.from_onnx_text(LOOP % "Less (i, n)\n stop = Cast <to = 7> (c)"), "numpy", max_iterations=5)
    with pytest.raises(LoopliftError, match="more than max_iterations=5"):
        session.run(None, {"n": np.int64(2**62), **FEEDS})


def test_a_loop_hears_of_ctrl_c() -> None:
    session = Session(ir.from_onnx_text(LOOP % "Identity (c)"), "numpy")
    feeds = {"n": np.int64(2**40), **FEEDS}
    assert seconds_to_end(lambda: session.run(None, feeds)) < 1


KERNELS = {
    "AddStep": "ai.looplift.AddStep (n, , x, x)",
    "PrefixSum": "ai.looplift.PrefixSum (x, ts)",
    "LinearRecurrence": "ai.looplift.LinearRecurrence (x, ts, ts)",
}


@pytest.mark.parametrize("columns", [1, 64])
@pytest.mark.parametrize("engine", ["numpy", "machine code", "webgpu"])
@pytest.mark.parametrize("op", KERNELS)
def test_kernels_hear_of_ctrl_c(
    op: str, engine: str, columns: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if engine == "webgpu":
        request.getfixturevalue("device")  # skips where there is none
    if engine != "machine code":
        monkeypatch.setattr(compiled, "WORTH", 1 << 60)
    text = f"""<ir_version: 10, opset_import: ["" : 21, "ai.looplift" : 1]>
        g (int64 n, float[c] x, float[n, c] ts) => (float[c] y, float[n, c] ys) {{ y, ys = {KERNELS[op]} }}"""
    session = Session(ir.from_onnx_text(text), "webgpu" if engine == "webgpu" else "numpy")
    count = 4_000_000 // columns
    feeds = {
        "n": np.int64(count),
        "x": np.full(columns, 0.1, np.float32),
        "ts": np.full((count, columns), 0.9, np.float32),
    }
    session.run(None, {**feeds, "n": np.int64(50_000), "ts": feeds["ts"][:50_000]})  # compiles
    assert seconds_to_end(lambda: session.run(None, feeds)) < 1


def seconds_to_end(work: Callable[[], object]) -> float:
    """How long work that is done over and over goes on after Ctrl-C: the least of some, the machine may be busy."""
    return min(_seconds_to_end(work) for _ in range(2))


def _seconds_to_end(work: Callable[[], object]) -> float:
    main, sent = threading.main_thread().ident, []
    assert main is not None

    def interrupt() -> None:
        sent.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    timer = threading.Timer(0.1, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        again_and_again(work)
    ended = time.monotonic()
    timer.join()
    return ended - sent[0]


def again_and_again(work: Callable[[], object]) -> None:
    while True:
        work()


@pytest.mark.parametrize("columns", [1, 3, 200])
def test_long_series_are_computed_in_blocks_with_the_same_bits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    state, x, a = (random.standard_normal(shape).astype("f4") for shape in ((columns,), (50, columns), (50, columns)))
    kernels = (
        lambda: prefix_sum.prefix_sum([state, x], {}, [True, True]),
        lambda: linear_recurrence.linear_recurrence([state, a, x], {}, [True, True]),
    )
    wanted = [kernel() for kernel in kernels]
    monkeypatch.setattr(prefix_sum, "AT_ONCE", 7)
    monkeypatch.setattr(compiled, "AT_ONCE", 7)
    monkeypatch.setattr(compiled, "WORTH", 1)  # so that numba does it, where there is one
    for kernel, want in zip(kernels, wanted, strict=True):
        for before, after in zip(want, kernel(), strict=True):
            assert before is not None
            assert after is not None
            assert before.tobytes() == after.tobytes()


def test_machine_code_is_called_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    def build(rows: np.ndarray, state: np.ndarray, addends: np.ndarray) -> None:
        lengths.append(len(rows))
        compiled.add_rows(rows, state, addends)

    monkeypatch.setattr(compiled, "_builds", lambda: {compiled.add_rows: build})
    monkeypatch.setattr(compiled, "AT_ONCE", 8)
    monkeypatch.setattr(compiled, "WORTH", 1)
    rows, step = np.zeros((9, 2), "f4"), np.ones((1, 2), "f4")
    assert compiled.run_compiled(compiled.add_rows, rows, np.zeros(2, "f4"), step)
    assert lengths == [4, 4, 1]
    assert rows[:, 0].tolist() == list(range(1, 10))

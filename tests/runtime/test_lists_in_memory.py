"""Sequences that grow: memory is looked at before it is all taken."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from looplift.runtime import Session
from looplift.runtime.errors import LoopliftError
from looplift.runtime.interpreter import sequences
from looplift.runtime.ops import memory

LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 n, float[c] x) => (seq(float[c]) rows) <int64 zero = {0}> {
  none = SequenceEmpty <dtype = 1> ()
  rows = Loop (n, , none) <body = b (int64 i, bool go, seq(float[c]) p) => (bool still, seq(float[c]) q) {
    still = Identity (go)
    row = Add (x, x)
    q = SequenceInsert (p, row%s)
  }>
}"""
WAYS = {"at its end": "", "at its front": ", zero"}


def run(way: str, count: int, columns: int) -> int:
    session = Session(ir.from_onnx_text(LOOP % WAYS[way]), "numpy")
    return len(session.run(None, {"n": np.int64(count), "x": np.ones(columns, np.float32)})[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("count", "columns"), [(3000, 8), (70, 1000)])
def test_a_list_that_outgrows_memory_is_refused(
    way: str, count: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "SMALL", 1 << 18)
    assert run(way, count, columns) == count
    monkeypatch.setattr(memory, "_available_bytes", lambda: 1 << 20)
    with pytest.raises(LoopliftError, match=r"SequenceInsert .*: a sequence has .* elements, the last .* of .* bytes"):
        run(way, count, columns)


def test_a_few_small_elements_ask_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_available_bytes", lambda: 0)
    assert run("at its end", 1000, 8) == 1000


def test_each_large_element_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sequences, "require_room", asked.append)
    assert run("at its end", 5, 1 << 24) == 5
    assert len(asked) == 5

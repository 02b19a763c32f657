"""The ops that hold graphs, and what emits each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from looplift.runtime.interpreter.call import Call
from looplift.runtime.interpreter.control.emit_branches import emit_if, emit_sequence_map
from looplift.runtime.interpreter.control.emit_loop import emit_loop
from looplift.runtime.interpreter.control.emit_scan import emit_scan
from looplift.runtime.interpreter.source import Line

OPS: Mapping[str, Callable[[Call, onnx.defs.OpSchema], list[Line]]] = {
    "If": emit_if,
    "Loop": emit_loop,
    "Scan": emit_scan,
    "SequenceMap": emit_sequence_map,
}

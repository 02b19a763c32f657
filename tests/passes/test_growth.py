"""What optimizing takes: work grows with the model and not with its square. Calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import onnx_ir as ir
import pytest

from looplift.passes import run_pipeline
from looplift.patterns.graph.walk import loops

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def calls(action: Callable[[], Any]) -> int:
    """How many calls of Python functions an action takes."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def layers(count: int) -> ir.Model:
    """Layers that each stack rows in a list: how long a layer's output is shows once its list is gone."""
    text = ""
    for k in range(count):
        text += f"""
  shape{k} = Shape (x{k})
  n{k} = Gather (shape{k}, zero)
  empty{k} = SequenceEmpty <dtype = 1> ()
  list{k}, v{k} = Loop (n{k}, , empty{k}, init) <body = b{k} (int64 i{k}, bool c{k}, seq(float[N]) s{k}, float[4] p{k})
      => (bool d{k}, seq(float[N]) t{k}, float[4] q{k}) {{
    d{k} = Identity (c{k})
    row{k} = Gather (x{k}, i{k})
    q{k} = Add (p{k}, row{k})
    wide{k} = Unsqueeze (q{k}, axes)
    t{k} = SequenceInsert (s{k}, wide{k})
  }}>
  x{k + 1} = ConcatFromSequence <axis = 0> (list{k})"""
    return ir.from_onnx_text(
        HEADER
        + f"""g (float[T, 4] x0, float[4] init) => (float[T, 4] x{count}) <int64 zero = {{0}}, int64[1] axes = {{0}}> {{
{text}
}}"""
    )


def nest(depth: int) -> ir.Model:
    """A loop in a loop in a loop."""
    inner = f"q{depth} = Add (p{depth}, s)"
    for k in range(depth - 1, -1, -1):
        inner = f"""q{k} = Loop (n, , p{k}) <body = b{k} (int64 i{k}, bool c{k}, float p{k + 1}) => (bool d{k}, float q{k + 1}) {{
  d{k} = Identity (c{k})
  {inner}
}}>"""
    return ir.from_onnx_text(HEADER + f"g (int64 n, float p0, float s) => (float q0) {{\n{inner}\n}}")


def additions(count: int) -> ir.Model:
    """A body of so many additions."""
    lines = "\n".join(f"q{k + 1} = Add (q{k}, s)" for k in range(count))
    return ir.from_onnx_text(
        HEADER
        + f"""g (int64 n, float x, float s) => (float y) {{
  y = Loop (n, , x) <body = b (int64 i, bool c, float q0) => (bool d, float q{count}) {{
    d = Identity (c)
{lines}
  }}>
}}"""
    )


def test_what_a_layer_waits_for_is_known_in_the_same_sweep() -> None:
    model, _ = run_pipeline(layers(20), target="standard")
    assert not loops(model)


@pytest.mark.parametrize(
    ("build", "size", "most"), [(layers, 6, 2.3), (nest, 5, 3.4), (additions, 60, 2.5)], ids=["layers", "nest", "body"]
)
def test_twice_the_size(build: Callable[[int], ir.Model], size: int, most: float) -> None:
    small, large = build(size), build(2 * size)
    run_pipeline(small)  # what is imported and remembered once
    counts = [calls(lambda model=model: run_pipeline(model)) for model in (small, large)]  # type: ignore[misc]
    assert counts[1] < most * counts[0]

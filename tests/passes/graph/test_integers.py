"""int64 arithmetic in a graph saturates, for every int64, and keeps what it claims of its intervals."""

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx_ir.passes.common import NameFixPass

from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.integers import Integer, Integers, constant
from looplift.patterns.graph.constants import INT64_MAX, INT64_MIN
from looplift.patterns.graph.types import Types
from looplift.runtime import Session

near = st.integers(-3, 3)
int64 = st.one_of(
    near,
    near.map(lambda n: INT64_MAX - abs(n)),
    near.map(lambda n: INT64_MIN + abs(n)),
    st.integers(INT64_MIN, INT64_MAX),
)


def saturated(number: int) -> int:
    return min(max(number, INT64_MIN), INT64_MAX)


def evaluated(build, x: int, y: int, *, known: tuple[bool, bool], opset: int) -> int:
    """What the graph that `build` writes makes of two numbers, of which the known ones are constants to it."""
    emitter = Emitter(opset, Types())
    integers = Integers(emitter)
    inputs = [ir.val(name, ir.DataType.INT64, []) for name in "xy"]
    operands = [
        constant(number) if is_known else Integer(INT64_MIN, INT64_MAX, value)
        for number, is_known, value in zip((x, y), known, inputs, strict=True)
    ]
    result = build(integers, *operands)
    copy = emitter.op("Identity", [integers.written(result)])
    copy.name, copy.type = "result", ir.TensorType(ir.DataType.INT64)
    subject = ir.Model(ir.Graph(inputs, [copy], nodes=emitter.nodes, opset_imports={"": opset}, name="g"), ir_version=4)
    NameFixPass()(subject)
    feeds = {"x": np.array(x, np.int64), "y": np.array(y, np.int64)}
    value = Session(subject, device="numpy").run(None, feeds)[0].item()
    assert result.low <= value <= result.high
    return value


CASES = {
    "subtract": (lambda n, x, y: n.subtract(x, y), lambda x, y: saturated(x - y)),
    "minimum": (lambda n, x, y: n.minimum(x, y), min),
    "maximum": (lambda n, x, y: n.maximum(x, y), max),
    "add": (lambda n, x, y: n.add(n.add(x, 5), -7), lambda x, y: saturated(saturated(x + 5) - 7)),
    "clamp": (lambda n, x, y: n.clamp(x, -2, 2), lambda x, y: min(max(x, -2), 2)),
    "select": (lambda n, x, y: n.select(n.less(x, y), x, constant(9)), lambda x, y: x if x < y else 9),
    "wrapped": (lambda n, x, y: n.wrapped_difference(x, y), lambda x, y: (x - y + 2**63) % 2**64 - 2**63),
    "remainder": (lambda n, x, y: n.remainder(x, 8), lambda x, y: x % 8),
}


@pytest.mark.parametrize("opset", [10, 17])
@pytest.mark.parametrize("name", sorted(CASES))
@settings(max_examples=30, deadline=None)
@example(x=0, y=INT64_MIN, known=(False, True))
@given(x=int64, y=int64, known=st.tuples(st.booleans(), st.booleans()))
def test_arithmetic(name, opset, x, y, known):
    build, expected = CASES[name]
    assert evaluated(build, x, y, known=known, opset=opset) == expected(x, y)


@settings(max_examples=30, deadline=None)
@given(x=int64, divisor=st.integers(1, 9), known=st.booleans())
def test_division_of_what_is_not_negative(x, divisor, known):
    found = evaluated(lambda n, x, y: n.divide(x, divisor), x, 0, known=(known, True), opset=17)
    assert found == x // divisor if x >= 0 else found <= 0

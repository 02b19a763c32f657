"""The integer at which a comparison in floating point turns, against a search by bisection."""

import warnings

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import NameFixPass

from looplift.passes.count.threshold import Threshold
from looplift.passes.graph.emit import Emitter
from looplift.passes.graph.integers import Integers
from looplift.patterns.graph.types import Types
from looplift.patterns.loops.exit_condition import Comparison
from looplift.patterns.loops.induction import Progression, integer_range
from looplift.runtime import Session

RELATIONS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
FLOATS = [ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE]
INTS = [ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8]


def bounds(kind) -> list:
    """Powers of two and their neighbours, halves, infinities, numbers anywhere."""
    found = [0.0, 0.5, -0.5, np.inf, -np.inf, 3e9, *np.random.default_rng(0).normal(0, 2.0 ** np.arange(0, 64, 2))]
    found = [kind(number) for number in found]
    for exponent in (1, 2, 7, 8, 9, 10, 11, 12, 14, 15, 16, 22, 23, 24, 25, 30, 31, 32, 52, 53, 54, 61, 62, 63, 64):
        for power in (kind(2.0**exponent), kind(-(2.0**exponent))):
            below, above = np.nextafter(power, kind(-np.inf)), np.nextafter(power, kind(np.inf))
            found += [power, below, above, np.nextafter(above, kind(np.inf))]
    return found


def bisected(relation, bound, kind, low, high) -> int | None:
    """The first integer in t's way at which the comparison fails; None if it holds in all of [low, high]."""

    def holds(number):
        return bool(RELATIONS[relation](np.array(number, np.int64).astype(kind), bound))

    climbs = relation in ("<", "<=")
    passing, failing = (low - 1, high) if climbs else (high + 1, low)
    if holds(failing):
        return None
    while abs(failing - passing) > 1:
        middle = (passing + failing) // 2
        passing, failing = (middle, failing) if holds(middle) else (passing, middle)
    return failing


def in_a_graph(threshold: Threshold, float_type: ir.DataType):
    """The threshold as computed by a graph, and the interval that is claimed of it."""
    emitter = Emitter(17, Types())
    bound = ir.val("bound", float_type, [])
    number = threshold.of_value(bound, Integers(emitter))
    number.value.name = "N"
    graph = ir.Graph([bound], [number.value], nodes=emitter.nodes, opset_imports={"": 17}, name="g")
    subject = ir.Model(graph, ir_version=8)
    NameFixPass()(subject)
    return Session(subject, device="numpy"), number


@pytest.mark.parametrize("relation", sorted(RELATIONS))
@pytest.mark.parametrize("float_type", FLOATS, ids=lambda x: x.name)
@pytest.mark.parametrize("int_type", INTS, ids=lambda x: x.name)
def test_turns_where_the_comparison_first_fails(int_type, float_type, relation):
    low, high = integer_range(int_type)
    climbs = relation in ("<", "<=")
    motion = Progression(int_type, 1 if climbs else -1, low, high)
    threshold = Threshold(Comparison(None, None, relation, None, motion, float_type, None))
    session, claimed = in_a_graph(threshold, float_type)
    kind = float_type.numpy().type
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # casts of infinities, on purpose
        for bound in bounds(kind):
            expected = bisected(relation, bound, kind, low, high)
            for found in (
                threshold.of_number(float(bound)).low,
                session.run(None, {"bound": np.array(bound)})[0].item(),
            ):
                assert claimed.low <= found <= claimed.high
                if expected is None:  # int64 has no number past its end
                    assert (found > high if climbs else found < low) or found in (2**63 - 1, -(2**63))
                elif expected == threshold._first:
                    assert found <= low if climbs else found >= high
                else:
                    assert found == expected, f"{bound}"
        assert session.run(None, {"bound": np.array(np.nan, kind)})[0] == (-(2**63) if climbs else 2**63 - 1)

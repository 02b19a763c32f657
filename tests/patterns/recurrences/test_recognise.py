"""Proofs name every obligation with its fact; refusals say which one failed."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from looplift.patterns.graph.refusal import Refusal
from looplift.patterns.graph.types import Types
from looplift.patterns.graph.view import view_of
from looplift.patterns.loops.dependence import Dependence
from looplift.patterns.loops.evolution import evolution_of
from looplift.patterns.loops.trip import trip_of
from looplift.patterns.recurrences.recognise import recognise
from looplift.patterns.recurrences.recurrence import Question

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (int64 n, float[{dim}] x, float[4] s, float[9,4] r) => (float[K] v) {{
  v = Loop (n, "", x) <body = b (int64 i, bool ci, p) => (bool co, u) {{ co = Identity(ci) {body} }}>
}}"""


def answer(body: str, dim: str = "4"):
    (node,) = [node for node in ir.from_onnx_text(LOOP.format(body=body, dim=dim)).graph if node.op_type == "Loop"]
    view = view_of(node, 17)
    types = Types().with_body(view)
    evolution = evolution_of(view.carries[0], view, types, Dependence(view, types))
    return recognise(Question(view.carries[0], evolution, view, trip_of(view, Types()), types))


@pytest.mark.parametrize(
    ("body", "once", "shape"),
    [
        ("u = Add(p, s)", "adds once", "grows"),
        ("t = Gather(r, i) u = Add(p, t)", "adds once", "before and after every iteration"),
        (
            "t = Gather(r, i) a = Mul(p, t) u = Add(a, s)",
            "multiplies once, then adds once",
            "before and after every iteration",
        ),
    ],
)
def test_a_proof_names_its_obligations(body, once, shape):
    trip, form, free, keeps = answer(body).obligations
    assert trip.name == "the trip count is known before the loop starts"
    assert once in form.name
    assert "every iteration" in free.name or "depend on the state" in free.name
    assert shape in keeps.fact


@pytest.mark.parametrize(
    ("body", "dim", "reason"),
    [
        ("u = Identity(p)", "4", "never changes"),
        ("u = Neg(s)", "4", "overwritten"),
        ("u = Tanh(p)", "4", "Tanh"),
        ("t = Gather(r, i) u = Add(p, t)", "D", "keeps its shape is not known"),
    ],
)
def test_a_refusal_names_the_obligation_that_failed(body, dim, reason):
    refusal = answer(body, dim)
    assert isinstance(refusal, Refusal)
    assert reason in str(refusal)

"""Repeated operators are found, whatever stands around them."""

import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

import looplift
from looplift.patterns.loops.unrolled import FEWEST, repeated


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, 0)),
        ("a b c d e", (0, 0)),
        ("a a a a a a a a", (0, 0)),
        ("x a b a b a b y", (0, 0)),
        ("x a b a b a b a b y", (2, 4)),
        ("x a b c a b c a b c a b c a b c a y", (3, 5)),
        ("x a a b a a b a a b a a b", (3, 4)),
    ],
)
def test_copies(text, found):
    assert repeated(text.split()) == found


@given(
    st.lists(st.sampled_from("abc"), min_size=2, max_size=6), st.integers(FEWEST, 9), st.lists(st.sampled_from("xyz"))
)
def test_no_copies_are_missed(block, times, around):
    length, count = repeated([*around, *block * times, *around])
    if len(set(block)) > 1:
        assert length * count >= len(block) * times - len(block)


def test_a_model_without_loops_says_what_stands_there():
    steps = "".join(f"a{k} = Mul(h{k}, x) h{k + 1} = Add(a{k}, x)\n" for k in range(6))
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[3] x, float[3] h0) => (float[3] h6) {{ {steps} }}'
    report = looplift.explain(onnx.parser.parse_model(text))
    assert report.summary() == (
        "the model: no Loop or Scan (the same 2 operators 6 times over: layers, or a loop that the exporter unrolled)"
    )
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Neg(x) }'
    assert looplift.explain(onnx.parser.parse_model(text)).summary() == "the model: no Loop or Scan"

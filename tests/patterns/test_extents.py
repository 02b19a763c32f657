"""Shapes that a graph computes with."""

import pytest

from looplift.patterns.types import Types, infer_node
from tests.helpers import model


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("s = Shape(x)\n y = Expand(v, s)", ("A", 3)),
        ("s = Shape(x)\n t = Shape(v)\n c = Concat<axis=0>(s, t)\n y = ConstantOfShape(c)", ("A", 3, 3)),
        ("s = Shape<start=1>(x)\n y = Expand(v, s)", (3,)),
        ("s = Shape(x)\n g = Gather(s, last)\n y = Expand(v, g)", (3,)),
        ("s = Shape(x)\n g = Gather(s, rows)\n y = Expand(v, g)", (3,)),
        ("s = Shape(x)\n g = Slice(s, one, top)\n c = Concat<axis=0>(one, g)\n y = Reshape(v, c)", (1, 3)),
        ("s = Shape(x)\n y = Reshape(x, s)", ("A", 3)),
        ("c = Concat<axis=0>(n1, last)\n y = Reshape(v, c)", (None, None)),
        ("s = Shape(x)\n c = Concat<axis=0>(s, one)\n y = Reshape(x, c)", ("A", 3, 1)),
        ("s = Shape(x)\n c = Concat<axis=0>(one, s)\n y = Reshape(x, c)", (1, None, 3)),
        ("c = Concat<axis=0>(n1, one)\n y = Expand(v, c)", (None, 3)),
        ("s = Shape(w)\n y = Expand(v, s)", (3,)),
        ("s = Shape(w)\n y = Expand(w, s)", ("B",)),
    ],
)
def test_shapes_follow_the_computation(nodes, shape):
    """`n1` holds a number that the graph does not know; a symbol may be 0, which Reshape takes for "as before"."""
    subject = model(f"""agraph (float[A,3] x, float[3] v, float[B] w, int64[1] n1, int64[1] rows) => (float y) {{
        one = Constant<value_ints = [1]>()
        last = Constant<value_ints = [-1]>()
        top = Constant<value_ints = [9223372036854775807]>()
        {nodes}
    }}""")
    known = Types()
    for node in subject.graph:
        for output, fact in zip(node.outputs, infer_node(node, known, 17), strict=True):
            known = known.with_value(output, fact)
    assert known[subject.graph.outputs[0]].shape == shape

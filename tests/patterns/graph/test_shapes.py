"""Shapes that a graph computes with."""

import pytest

from looplift.patterns.graph.types import Types, infer_node
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
        ("s = Shape(x)\n c = Concat<axis=0>(one, s)\n y = Reshape(x, c)", (1, "A", 3)),
        ("c = Concat<axis=0>(n1, six)\n y = Reshape(z, c)", ("A", 6)),
        ("c = Concat<axis=0>(a, n1)\n y = Reshape(z, c)", ("A", None)),
        ("c = Concat<axis=0>(n1, zero)\n y = Reshape(z, c)", (None, 2)),
        ("c = Concat<axis=0>(n1, one)\n y = Expand(v, c)", (None, 3)),
        ("s = Shape(w)\n y = Expand(v, s)", (3,)),
        ("s = Shape(w)\n y = Expand(w, s)", ("B",)),
        ("s = Shape(x)\n f = Flatten<axis=0>(s)\n g = Squeeze(f, zero)\n y = Expand(v, g)", ("A", 3)),
        ("y = Slice(x, zero, top, zero)", ("A", 3)),
        ("y = Slice(x, zero, top, axis1)", ("A", 3)),
        ("y = Slice(x, last, bottom, zero, last)", ("A", 3)),
        ("y = Slice(x, one, top, zero)", (None, 3)),
        ("y = Slice(x, zero, top, zero, two)", (None, 3)),
        ("y = Slice(x, zero, n1, zero)", (None, 3)),
        ("n = Size(w)\n y = Range(s0, n, s1)", (None,)),
        ("s = Shape(x)\n n = Gather(s, s0)\n y = Range(s0, n, s1)", ("A",)),
        ("s = Shape(x)\n n = Gather(s, s0)\n y = Range(s1, n, s1)", (None,)),
        ("c = Concat<axis=0>(a, last)\n y = Reshape(z, c)", ("A", 6)),
        ("c = Concat<axis=0>(last, six)\n y = Reshape(z, c)", ("A", 6)),
        ("c = Concat<axis=0>(last, two)\n y = Reshape(z, c)", (None, 2)),
        ("c = Concat<axis=0>(b, last)\n y = Reshape(z, c)", (None, None)),
        # torch's Expand to a shape in which -1 stands for "as before", which no extent is
        ("y = Expand(v, chosen)", ("A", 3)),
    ],
)
def test_shapes_follow_the_computation(nodes, shape):
    """`n1` holds a number that the graph does not know; a symbol may be 0, which Reshape takes for "as before"."""
    inputs = "float[A,3] x, float[3] v, float[B] w, float[A,2,3] z, int64[1] n1, int64[1] rows"
    subject = model(f"""agraph ({inputs}) => (float y) {{
        one = Constant<value_ints = [1]>()
        last = Constant<value_ints = [-1]>()
        top = Constant<value_ints = [9223372036854775807]>()
        bottom = Constant<value_ints = [-9223372036854775808]>()
        zero = Constant<value_ints = [0]>()
        axis1 = Constant<value_ints = [1]>()
        two = Constant<value_ints = [2]>()
        six = Constant<value_ints = [6]>()
        s0 = Constant<value_int = 0>()
        s1 = Constant<value_int = 1>()
        shape_x = Shape(x)
        a = Slice(shape_x, zero, one)
        b = Shape(w)
        rank = Shape(shape_x)
        ones = ConstantOfShape<value = int64[1] {{1}}>(rank)
        minus = Constant<value_int = -1>()
        negative = Mul(ones, minus)
        same = Equal(shape_x, negative)
        chosen = Where(same, ones, shape_x)
        {nodes}
    }}""")
    known = Types()
    for node in subject.graph:
        for output, fact in zip(node.outputs, infer_node(node, known, 17), strict=True):
            known = known.with_value(output, fact)
    assert known[subject.graph.outputs[0]].shape == shape

"""Shapes that a graph computes with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from looplift.patterns.graph.shapes import broadcast, broadcasts_into, parts
from looplift.patterns.graph.speculatable import broadcast_surely
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
        # extents that are numbers, picked out of a shape of which some are not
        ("t = Shape(z)\n g = Gather(t, last)\n h = Div(g, two)\n y = Slice(z, zero, h, two)", ("A", 2, 1)),
        ("t = Shape(z)\n g = Slice(t, one, two)\n y = Slice(z, zero, g, two)", ("A", 2, 2)),
        ("t = Shape(z)\n c = Cast<to=6>(t)\n g = Slice(c, one, two)\n y = Slice(z, zero6, g, two6)", ("A", 2, 2)),
        ("t = Shape(z)\n g = Gather(t, zero)\n y = Slice(z, zero, g, two)", ("A", 2, None)),
        # what two names broadcast to
        ("f = Unsqueeze(w, one)\n y = Expand(f, shape_x)", ("A#|B", 3)),
        ("f = Unsqueeze(w, one)\n y = Add(f, x)", ("A#|B", 3)),
        ("f = Unsqueeze(w, one)\n g = Add(f, x)\n y = Mul(x, g)", ("A#|B", 3)),
        ("f = Unsqueeze(w, one)\n g = Add(f, x)\n h = Shape(g)\n y = Expand(v, h)", ("A#|B", 3)),
        ("f = Slice(x, one, top, zero)\n y = Add(f, x)", (None, 3)),
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
        zero6 = Cast<to = 6>(zero)
        two6 = Cast<to = 6>(two)
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


@given(st.lists(st.lists(st.sampled_from([1, 2, "A", "B", "C"]), max_size=3), min_size=2, max_size=4), st.data())
def test_a_joint_extent_is_what_broadcasting_gives(lists, data):
    """Of whatever sizes, where they broadcast; what broadcasts for certain always does, with the result, too."""
    shapes, sizes = [*map(tuple, lists)], {name: data.draw(st.sampled_from([0, 1, 2, 5])) for name in "ABC"}
    joint = broadcast(shapes)
    try:
        found = np.broadcast_shapes(*(tuple(sizes.get(dim, dim) for dim in shape) for shape in shapes))
    except ValueError:
        assert not broadcast_surely(shapes)
        return
    for claim, extent in zip(joint, found, strict=True):
        assert claim is None or extent == (size_of(claim, sizes) if isinstance(claim, str) else claim)
    for shape in shapes:
        for dim, claim, extent in zip(reversed(shape), reversed(joint), reversed(found), strict=False):
            assert not broadcasts_into(dim, claim) or sizes.get(dim, dim) in (1, extent)
    if None not in joint and 2 not in joint:
        assert broadcast_surely([joint, *shapes])


def size_of(dim, sizes):
    """What the parts of a joint extent broadcast to."""
    return next(iter({sizes[part] for part in parts(dim)} - {1}), 1)

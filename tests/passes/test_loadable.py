"""What engines must find declared in a loop's body stays declared, or is, once nothing else tells it."""

import numpy as np
import pytest

import looplift
from tests.helpers import assert_same, model

CONDS = {"none": ("", ("", "[]", "[1]")), "true": ("true", ("", "[]")), "vector": ("cs", ("[]", "[1]"))}
CONDS |= {"given": ("c", ("", "[]")), "unranked": ("u", ("", "[1]"))}
"""A node's cond, and what a body may declare of its cond input that loads with it in ONNX Runtime."""

TESTS = {
    "passed on": "co = Identity(ci)",
    "true": "co = Identity(true)",
    "the same": "co = Identity({cond})",
    "captured": "co = Identity(c)",
    "a counter": "two = Constant<value = int64 {2}>() co = Less(i, two)",
    "a counter and more": "two = Constant<value = int64 {2}>() l = Less(i, two) co = And(l, c)",
}


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("opset", [9, 21])
@pytest.mark.parametrize(("cond", "shape"), [(cond, shape) for cond, (_, shapes) in CONDS.items() for shape in shapes])
def test_the_shape_of_the_cond(cond, shape, opset, test):
    """ONNX Runtime runs no Loop whose cond input has no shape, neither in the body nor by the node's cond."""
    name = CONDS[cond][0]
    for limit in ("M", "") if "counter" in test else ("M",):
        before = model(
            f"""g (int64 M, bool c, bool[1] cs, int64[K] shape, float[3] v, float[3] s) => (float[?] f, float[?,?] z) {{
              true = Constant<value = bool {{1}}>()
              u = Reshape(cs, shape)
              f, z = Loop ({limit}, {name}, v) <
                body = b (int64 i, bool{shape} ci, float[3] p) => (bool[] co, float[3] q, float[3] o) {{
                  {TESTS[test].replace("{cond}", name or "true")}
                  a = Mul(p, p)
                  q = Add(a, s)
                  o = Identity(p)
                }}>
            }}""",
            opset,
        )
        after = [looplift.optimize(before, target=target) for target in ("kernel", "standard")]
        rows = {"v": np.zeros(3, np.float32), "s": np.ones(3, np.float32), "shape": np.zeros(0, np.int64)}
        for m, c in ((0, True), (4, False), (4, True)):
            feeds = {**rows, "M": np.array(m), "c": np.array(c), "cs": np.array([c])}
            for each in after:
                assert_same(before, each, feeds)

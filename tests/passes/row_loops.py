"""Loops that read rows, and how their results are compared."""

import numpy as np

from looplift.runtime import Session
from tests.helpers import model


def loop(
    body, *, trips="five", cond="", x="float[5,2]", opset=17, iteration="int64", flag="bool", row="float[2]", more=""
):
    """v = tanh(v + something of x) `trips` times, stacked."""
    stack = row.replace("[", "[k,").replace(",]", "]")
    return model(
        f"""agraph ({x} x, float[2] v0, int64 M, bool keep) => (float[2] last, {stack} rows) {{
            zero = Constant<value_ints=[0]>()
            one = Constant<value_ints=[1]>()
            five = Constant<value_int=5>()
            {more}
            last, rows = Loop({trips}, {cond}, v0) <body = b ({iteration} i, {flag} c, float[2] v)
                    => ({flag} d, float[2] w, {row} y) {{
                d = Identity(c)
                {body}
            }}>
        }}""",
        opset,
    )


def feeds(shape, trips=5, keep=True):
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=shape).astype(np.float32),
        "v0": np.array([0.5, -1], np.float32),
        "M": np.array(trips, np.int64),
        "keep": np.array(keep),
    }


def assert_same_in_session(before, after, feed):
    """Compares `looplift.Session` on both, and with ONNX Runtime where that runs the original."""
    feed = {value.name: feed[value.name] for value in before.graph.inputs}
    expected, actual = Session(before, device="numpy").run(None, feed), Session(after, device="numpy").run(None, feed)
    for left, right in zip(expected, actual, strict=True):
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes()


STEP = "s = Add(v, r)\n w = Tanh(s)\n y = Identity(w)"

"""One loop, in every kind of graph that can hold it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests.helpers import assert_same, model

TRIPS = [-1, 0, 1, 2, 17]

_PLACES = {
    "main graph": """main (int64 M, bool c, float[2] v, float[2] s) => (float[2] y, float[k,2] t) {{ {loop} }}""",
    "If branch": """main (int64 M, bool c, float[2] v, float[2] s) => (float[2] y, float[k,2] t) {{
        y, t = If (c) <
          then_branch = then () => (float[2] y, float[k,2] t) {{ {loop} }},
          else_branch = else () => (float[2] y1, float[k,2] t1) {{
            y1 = Identity(v)
            axis = Constant<value = int64[1] {{0}}>()
            t1 = Unsqueeze(v, axis)
          }}
        >
      }}""",
    "Loop body": """main (int64 M, bool c, float[2] v0, float[2] s) => (float[2] last, float[n,k,2] ts) {{
        two = Constant<value = int64 {{2}}>()
        last, ts = Loop (two, , v0) <
          body = outer (int64 round, bool again, float[2] v) => (bool more, float[2] y, float[k,2] t) {{
            more = Identity(again)
            {loop}
          }}
        >
      }}""",
    "function": """main (int64 M, bool c, float[2] v, float[2] s) => (float[2] y, float[k,2] t) {{
        y, t = local.f (M, c, v, s)
      }}
      <domain: "local", opset_import: ["": {opset}]>
      f (M, c, v, s) => (y, t) {{ {loop} }}""",
}


def everywhere(loop: str, opset: int = 17) -> dict[str, ir.Model]:
    """Models with this text, a Loop that reads M, c, v, s and makes y and t, in each kind of place."""
    header = f'<ir_version: 8, opset_import: ["": {opset}, "local": 1]>\n'
    return {place: model(header + text.format(loop=loop, opset=opset)) for place, text in _PLACES.items()}


def feeds(subject: ir.Model, trips: int, flag: bool = True) -> dict[str, np.ndarray]:
    """Inputs for `everywhere`: by their names, whichever the model has."""
    values = {
        "M": np.array(trips, np.int64),
        "c": np.array(flag),
        "v": np.array([0.1, -2.5], np.float32),
        "v0": np.array([0.1, -2.5], np.float32),
        "s": np.array([0.3, 7.0], np.float32),
    }
    return {value.name: values[value.name] for value in subject.graph.inputs}


def assert_same_everywhen(before: ir.Model, after: ir.Model, flags: tuple[bool, ...] = (True, False)) -> None:
    """The same bits for every trip count and cond, a negative one included."""
    for trips in TRIPS:
        for flag in flags:
            assert_same(before, after, feeds(before, trips, flag))

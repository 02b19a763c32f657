"""Loop, rule by rule: trip counts, conditions, carried values, scan outputs, zero iterations."""

import numpy as np
import pytest
from sessions import assert_same, f32, i64, model, run

from looplift.runtime import LoopliftError, Session

ADD_STEP = """
g (int64{m} M, bool{c} keep, float[N] v, float[N] s) => (float[N] y, float[R, N] z) {{
    y, z = Loop <body = b (int64 i, bool c, float[N] p) => (bool c2, float[N] q, float[N] r) {{
        c2 = {cond}
        q = Add(p, s)
        r = Identity(q)
    }}> ({inputs}, v)
}}"""


def add_step(m: str = "", c: str = "", cond: str = "Identity(c)", inputs: str = "M, keep") -> str:
    return ADD_STEP.format(m=m, c=c, cond=cond, inputs=inputs)


ONE, STEP = f32([1, 2]), f32([0.5, 0.25])


@pytest.mark.parametrize(
    ("trips", "keep", "ran"),
    [
        (3, True, 3),
        (0, True, 0),
        (-1, True, 0),
        (-(2**63), True, 0),
        (3, False, 0),
        ([2], [True], 2),
        ([2], [False], 0),
    ],
)
def test_trip_count_and_condition(trips, keep, ran):
    y, z = run(add_step(*(("[1]", "[1]") if isinstance(trips, list) else ("", ""))),
               M=i64(trips), keep=np.array(keep), v=ONE, s=STEP)  # fmt: skip
    rows = [ONE + STEP * (k + 1) for k in range(ran)]
    assert_same(y, rows[-1] if rows else ONE)
    assert_same(z, np.array(rows, np.float32).reshape(ran, 2))


def test_absent_trip_count_runs_until_the_condition_is_false():
    text = add_step(cond="Less(i, M)", inputs='"", keep')
    y, z = run(text, M=i64(4), keep=np.array(True), v=ONE, s=STEP)
    assert z.shape == (5, 2)
    assert_same(y, z[-1])


@pytest.mark.parametrize(("cond", "ran"), [("Less(i, two)", 3), ("Identity(c)", 5), ("Identity(off)", 1)])
def test_absent_condition_input_obeys_the_bodys_condition(cond, ran):
    text = f"""g (int64 M, float[N] v) => (float[N] y) <int64 two = {{2}}, bool off = {{0}}> {{
        y = Loop <body = b (int64 i, bool c, float[N] p) => (bool c2, float[N] q) {{
            c2 = {cond}
            q = Add(p, p)
        }}> (M, "", v)
    }}"""
    (y,) = run(text, M=i64(5), v=f32([1]))
    assert_same(y, f32([2**ran]))


def test_rows_grow_where_the_condition_ends_the_loop():
    _, z = run(add_step(cond="Less(i, M)", inputs='"", keep'), M=i64(1000), keep=np.array(True), v=ONE, s=STEP)
    assert z.shape == (1001, 2)
    assert_same(z[:, 0], (1 + 0.5 * np.arange(1, 1002)).astype(np.float32))


def test_a_huge_trip_count_that_the_condition_cuts_short():
    text = """g (int64 M, float[N] v) => (float[N] y, float[R, N] z) <int64 two = {2}> {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, float[N] p) => (bool c2, float[N] q, float[N] r) {
            c2 = Less(i, two)
            q = Add(p, p)
            r = Identity(p)
        }> (M, on, v)
    }"""
    y, z = run(text, M=i64(2**62), v=f32([1]))
    assert_same(y, f32([8]))
    assert_same(z, f32([[1], [2], [4]]))


def test_states_are_assigned_at_once():
    text = """g (int64 M, float a, float b) => (float x, float y) {
        on = Constant <value = bool {1}> ()
        x, y = Loop <body = b (int64 i, bool c, float p, float q) => (bool c, float q, float p) { }> (M, on, a, b)
    }"""
    assert_same(run(text, M=i64(3), a=f32(1), b=f32(2)), [f32(2), f32(1)])
    assert_same(run(text, M=i64(4), a=f32(1), b=f32(2)), [f32(1), f32(2)])


@pytest.mark.parametrize(
    ("outputs", "want"),
    [("p", [7, 7]), ("same", [7, 7]), ("k", [9, 9]), ("i32", [0, 1])],
)
def test_a_scan_output_may_be_an_input_a_constant_an_initializer_or_a_name_given_twice(outputs, want):
    text = f"""g (int64 M, int32 v) => (int32 y, int32[R] z, int32[R] w) {{
        on = Constant <value = bool {{1}}> ()
        y, z, w = Loop <body = b (int64 i, bool c, int32 p) => (bool c, int32 p, int32 {outputs}, int32 {outputs})
            <int32 k = {{9}}> {{
            same = Identity(p)
            i32 = Cast <to = 6> (i)
        }}> (M, on, v)
    }}"""
    proto = model(text)
    y, z, w = run(proto, M=i64(2), v=np.int32(7).reshape(()))
    assert_same([y, z, w], [np.array(7, np.int32), np.array(want, np.int32), np.array(want, np.int32)])


def test_the_iteration_number_has_the_rank_that_the_body_declares():
    text = """g (int64 M) => (int64[R, 1] z) {{
        on = Constant <value = bool {{1}}> ()
        z = Loop <body = b (int64{rank} i, bool{rank} c) => (bool{rank} c, int64{rank} i) {{ }}> (M, on)
    }}"""
    assert_same(run(text.format(rank="[1]"), M=i64(3)), [i64([[0], [1], [2]])])
    assert_same(run(text.format(rank="").replace("[R, 1]", "[R]"), M=i64(3)), [i64([0, 1, 2])])


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 2, 3)])
def test_scan_outputs_are_stacked_on_a_new_axis(shape):
    text = """g (int64 M, float v) => (float z) {
        on = Constant <value = bool {1}> ()
        y, z = Loop <body = b (int64 i, bool c, float p) => (bool c, float q, float q) { q = Add(p, p) }> (M, on, v)
    }"""
    proto = model(text)
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.ClearField("shape")
    for info in proto.graph.node[1].attribute[0].g.input[2:]:
        info.type.tensor_type.ClearField("shape")
    (z,) = run(proto, M=i64(2), v=np.ones(shape, np.float32))
    assert_same(z, np.stack([np.full(shape, 2, np.float32), np.full(shape, 4, np.float32)]))
    (z,) = run(proto, M=i64(0), v=np.ones(shape, np.float32))
    assert_same(z, np.empty((0, *shape), np.float32))


def test_a_carried_value_may_change_its_shape():
    text = """g (int64 M, float[N] v) => (float[K] y) {
        on = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool c, float[A] p) => (bool c, float[B] q) {
            q = Concat <axis = 0> (p, p)
        }> (M, on, v)
    }"""
    assert_same(run(text, M=i64(3), v=f32([1])), [np.ones(8, np.float32)])
    assert_same(run(text, M=i64(0), v=f32([1])), [f32([1])])


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("r = Identity(p)", (0, 2)),
        ("r = Concat <axis = 0> (p, p)", (0, 4)),
        ("r = Expand(p, shape)", (0, 5, 2)),
        ("t = Transpose(m)\nr = MatMul(p, t)", (0, 3)),
        ("r = Shape(m)", (0, 2)),
        ("r = NonZero(m)", (0, 2, 0)),
    ],
)
def test_rows_of_a_loop_that_does_not_run_have_the_shape_that_inference_finds(body, shape):
    kind = "int64" if "Shape" in body or "NonZero" in body else "float"
    text = f"""g (float[N] v, float[A, N] m, int64[2] shape) => ({kind} z) {{
        none = Constant <value = int64 {{0}}> ()
        on = Constant <value = bool {{1}}> ()
        y, z = Loop <body = b (int64 i, bool c, float[N] p) => (bool c, float[N] p, {kind} r) {{
            {body}
        }}> (none, on, v)
    }}"""
    proto = model(text)
    for info in (proto.graph.output[0], proto.graph.node[2].attribute[0].g.output[2]):
        info.type.tensor_type.ClearField("shape")
    (z,) = run(proto, v=ONE, m=np.ones((3, 2), np.float32), shape=i64(5, 1))
    assert z.shape == shape


def test_unused_outputs():
    text = """g (int64 M, float[N] v) => (float[R, N] z) {
        on = Constant <value = bool {1}> ()
        "", z = Loop <body = b (int64 i, bool c, float[N] p) => (bool c, float[N] q, float[N] q, float[N] p) {
            q = Add(p, p)
        }> (M, on, v)
    }"""
    assert_same(run(text, M=i64(2), v=f32([1])), [f32([[2], [4]])])
    assert run(text, M=i64(0), v=f32([1]))[0].shape == (0, 1)


def test_integers_wrap():
    text = """g (int64 M, int8 v) => (int8 y) <int8 s = {100}> {
        on = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool c, int8 p) => (bool c, int8 q) { q = Add(p, s) }> (M, on, v)
    }"""
    assert_same(run(text, M=i64(3), v=np.array(0, np.int8)), [np.array(44, np.int8)])


def test_endless_loops_are_refused_unless_a_number_of_iterations_is_given():
    text = add_step(inputs='"", keep')
    feeds = {"M": i64(0), "v": ONE, "s": STEP}
    session = Session(model(text), "numpy")
    with pytest.raises(LoopliftError, match="nothing ever ends"):
        session.run(None, {**feeds, "keep": np.array(True)})
    assert_same(session.run(["y"], {**feeds, "keep": np.array(False)}), [ONE])
    bounded = Session(model(text), "numpy", max_iterations=3)
    assert bounded.run(None, {**feeds, "keep": np.array(True)})[1].shape == (3, 2)


def test_a_loop_past_max_iterations_is_an_error():
    session = Session(model(add_step(cond="Less(i, M)", inputs='"", keep')), "numpy", max_iterations=4)
    feeds = {"keep": np.array(True), "v": ONE, "s": STEP}
    assert session.run(None, {**feeds, "M": i64(3)})[1].shape == (4, 2)
    with pytest.raises(LoopliftError, match="max_iterations=4"):
        session.run(None, {**feeds, "M": i64(4)})


def test_nested_loops_see_all_outer_values():
    text = """g (int64 M, float v, float s) => (float y) {
        on = Constant <value = bool {1}> ()
        two = Constant <value = int64 {2}> ()
        y = Loop <body = outer (int64 i, bool c, float p) => (bool c, float q) {
            f = Cast <to = 1> (i)
            q = Loop <body = inner (int64 j, bool d, float u) => (bool d, float w) {
                t = Add(u, f)
                w = Add(t, s)
            }> (two, on, p)
        }> (M, on, v)
    }"""
    assert_same(run(text, M=i64(3), v=f32(1), s=f32(10)), [f32(1 + 2 * (0 + 1 + 2) + 60)])


def test_progress_and_interruption():
    calls = []

    def progress(name, iteration, limit):
        calls.append((name, iteration, limit))
        raise KeyboardInterrupt

    session = Session(model(add_step()), "numpy", progress=progress)
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"M": i64(10**7), "keep": np.array(True), "v": ONE, "s": STEP})
    assert calls[0][0] == "y"
    assert calls[0][2] == 10**7


@pytest.mark.parametrize("start", [True, False])
def test_a_test_that_is_a_carried_value_is_read_before_it_moves_on(start):
    flag, count = run(
        """
        g (bool flag, int64 n) => (bool f, int64 k) {
            M = Constant<value_int = 5>()
            f, k = Loop <body = b (int64 i, bool c, bool p, int64 j) => (bool go, bool was, int64 j2) {
                go = Identity(p)
                was = Identity(c)
                one = Constant<value_int = 1>()
                j2 = Add(j, one)
            }> (M, , flag, n)
        }""",
        flag=np.array(start),
        n=i64(0),
    )
    assert (bool(flag), int(count)) == (True, 5 if start else 1)


@pytest.mark.parametrize(
    "row",
    [
        "r = Slice<axes = [0], starts = [-9], ends = [2]>(q)",
        "t = Slice<axes = [0], starts = [-9], ends = [2]>(q) r = Concat<axis = 0>(t, q)",
        "r = Slice<starts = [-9, 1], ends = [3, 99]>(q)",
        "r = Slice<axes = [1], starts = [3], ends = [1]>(q)",
    ],
)
@pytest.mark.parametrize("opset", [8, 9])
def test_rows_that_an_old_slice_cuts_have_their_extents_where_no_iteration_runs(row, opset):
    text = f"""g (int64 M, float[N,W] x) => (float[R,S,T] s) {{
      v, s = Loop <body = b (int64 i, bool c, float[N,W] p) => (bool d, float[N,W] q, float[S,T] r) {{
        d = Identity(c) q = Identity(p) {row} }}> (M, "", x) }}"""
    x = np.ones((5, 4), np.float32)
    none, two = (run(text, opset, M=np.array(trips), x=x)[0] for trips in (0, 2))
    assert none.shape == (0, *two.shape[1:])


FROM_SHAPES = {
    "a broadcast": "dims = Shape(q) e = Gather(dims, zero) es = Unsqueeze<axes = [0]>(e) none = Shape(e) "
    "target = Concat<axis = 0>(es, none) one = Constant<value = float {1}>() r = Expand(one, target)",
    "half of it": "dims = Shape(q) e = Gather<axis = 0>(dims, zero) two = Constant<value = int64 {2}>() h = Div(e, two) "
    "es = Unsqueeze<axes = [0]>(h) m = Constant<value = int64[1] {-1}>() target = Concat<axis = 0>(es, m) "
    "r = Reshape(q, target)",
    "an If": "one = Constant<value = float {1}>() r = If(c) <then_branch = a () => (ra) { dims = Shape(q) "
    "e = Gather(dims, zero) es = Unsqueeze<axes = [0]>(e) ra = Expand(one, es) }, "
    "else_branch = o () => (rb) { count = Size(q) four = Constant<value = int64 {4}>() k = Div(count, four) "
    "ks = Unsqueeze<axes = [0]>(k) rb = Expand(one, ks) }>",
}


@pytest.mark.parametrize("name", FROM_SHAPES)
@pytest.mark.parametrize("opset", [9, 11])
def test_rows_whose_extents_are_computed_from_shapes_have_them_where_no_iteration_runs(name, opset):
    text = f"""g (int64 M, float[N,W] x) => (s) {{
      zero = Constant<value = int64 {{0}}>()
      v, s = Loop <body = b (int64 i, bool c, float[N,W] p) => (bool d, float[N,W] q, float r) {{
        d = Identity(c) q = Identity(p) {FROM_SHAPES[name]} }}> (M, "", x) }}""".replace("float r)", "r)")
    x = np.ones((6, 4), np.float32)
    none, two = (run(text, opset, M=np.array(trips), x=x)[0] for trips in (0, 2))
    assert none.shape == (0, *two.shape[1:])

"""What every iteration computes anew with the same result is computed once, in front of the loop."""

import numpy as np
import pytest

from looplift.passes.clean.hoist_invariants import HoistInvariants
from tests.helpers import apply, assert_same, find, model, ops, run_ort
from tests.passes.places import TRIPS, assert_same_everywhen, everywhere


def hoisted(text, opset=17, **options):
    before = model(text, opset)
    return before, apply(before, HoistInvariants(), **options)


def body_ops(after, op_type="Loop"):
    """The op types in the body of the main graph's last loop."""
    loop = [node for node in after.graph if node.op_type == op_type][-1]
    return [node.op_type for node in loop.attributes["body"].as_graph()]


def loop(body: str, *, max_trip: str = "M", cond: str = "", inputs: str = "float[2] s, float[2] r") -> str:
    """A Loop over p, from v, whose body makes p2 with what `body` computes from the captures."""
    return f"""main (int64 M, bool c, float[2] v, {inputs}) => (float[n] y, float[k,n] t) {{
      true = Constant<value = bool {{1}}>()
      false = Constant<value = bool {{0}}>()
      three = Constant<value = int64 {{3}}>()
      nothing = Constant<value = int64 {{0}}>()
      y, t = Loop ({max_trip}, {cond}, v) <
        body = b (int64 i, bool ci, float[n] p) => (bool co, float[n] p2, float[n] e) {{
          co = Identity(ci)
          {body}
          e = Identity(p2)
        }}
      >
    }}"""


V = np.array([0.25, -3], np.float32)


def assert_same_for_trips(before, after, **arrays):
    for trips in TRIPS:
        for c in (True, False):
            assert_same(before, after, {"M": np.array(trips), "c": np.array(c), "v": V, **arrays})


@pytest.mark.parametrize("place", ["main graph", "If branch", "Loop body", "function"])
def test_in_every_place(place):
    text = """
      y, t = Loop (M, c, v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] w, float[2] e) {
          co = Identity(ci)
          n = Neg(s)
          x = Exp(n)
          w = Add(p, x)
          e = Identity(w)
        }
      >"""
    before = everywhere(text)[place]
    after = apply(before, HoistInvariants())
    assert_same_everywhen(before, after)
    inner = [n for g in [after.graph, *after.functions.values()] for n in g.all_nodes() if n.op_type == "Loop"][-1]
    assert [node.op_type for node in inner.attributes["body"].as_graph()] == ["Identity", "Add", "Identity"]
    if place == "Loop body":
        assert after.graph.node(0).op_type != "Loop"  # out of both loops


# Bodies whose invariant part can't fail, and what is left of them.
TOTAL = {
    "broadcast of known shapes": "a = Mul(s, r) p2 = Add(p, a)",
    "with a constant": "two = Constant<value = float {2}>() a = Mul(s, two) p2 = Add(p, a)",
    "with itself": "a = Mul(s, s) p2 = Add(p, a)",
    "through a copy": "a = Identity(s) b = Neg(a) p2 = Add(p, b)",
    "cast": "a = Cast<to=10>(s) b = Cast<to=1>(a) p2 = Add(p, b)",
    "shape arithmetic": """a = Shape(s) z = Constant<value = int64 {0}>() n = Gather<axis=0>(a, z) f = Cast<to=1>(n)
      p2 = Add(p, f)""",
    "slices": """lo = Constant<value = int64[1] {1}>() hi = Constant<value = int64[1] {9}>()
      ax = Constant<value = int64[1] {0}>() a = Slice(s, lo, hi, ax) p2 = Add(p, a)""",
    "unsqueeze and squeeze": """ax = Constant<value = int64[1] {0}>() a = Unsqueeze(s, ax) b = Squeeze(a, ax)
      p2 = Add(p, b)""",
    "division of floats": "a = Div(s, r) p2 = Add(p, a)",
    "integer division by a constant": """a = Cast<to=7>(s) k = Constant<value = int64 {3}>() d = Div(a, k)
      f = Cast<to=1>(d) p2 = Add(p, f)""",
    "reductions": """ax = Constant<value = int64[1] {0}>() a = ReduceSum<keepdims=0>(s, ax) p2 = Add(p, a)""",
    "an If": """g = If (c) <then_branch = th () => (float[2] a) { a = Neg(s) },
      else_branch = el () => (float[2] b) { b = Add(s, r) }> p2 = Add(p, g)""",
    "concat, transpose, reshape": """a = Concat<axis=0>(s, r) sh = Constant<value = int64[2] {2, 2}>()
      b = Reshape(a, sh) d = Transpose(b) z = Constant<value = int64 {1}>() row = Gather(d, z) p2 = Add(p, row)""",
}


@pytest.mark.parametrize("body", TOTAL.values(), ids=TOTAL)
def test_what_cannot_fail_leaves_a_loop_that_may_not_run(body):
    before, after = hoisted(loop(body, cond="c"))
    assert body_ops(after) == ["Identity", "Add", "Identity"]
    assert_same_for_trips(before, after, s=np.array([0.3, 5], np.float32), r=np.array([-1, 0], np.float32))


# Bodies whose invariant part fails on some inputs, and inputs on which it does.
PARTIAL = {
    "shapes that may not broadcast": ("a = Add(s, r) p2 = Add(p, a)", "float[x] s, float[z] r", ([1, 2], [1, 2, 3])),
    "an index that may be out of range": (
        "g = Gather(s, j) p2 = Add(p, g)",
        "float[x] s, int64 j",
        ([1, 2], 7),
    ),
    "a division by what may be zero": (
        "d = Div(j, k) f = Cast<to=1>(d) p2 = Add(p, f)",
        "int64 j, int64 k",
        (4, 0),
    ),
    "an axis that may not be one": (
        "ax = Constant<value = int64[1] {0}>() a = Squeeze(s, ax) p2 = Add(p, a)",
        "float[x] s",
        ([1, 2, 3],),
    ),
    "a reshape": ("a = Reshape(s, k) p2 = Add(p, a)", "float[x] s, int64[1] k", ([1, 2, 3], [2])),
    "a matmul": ("a = MatMul(s, r) p2 = Add(p, a)", "float[x] s, float[z] r", ([1, 2, 3], [2])),
    "a branch that may fail": (
        """g = If (c) <then_branch = th () => (float[q] a) { a = Add(s, r) },
           else_branch = el () => (float[q] b) { b = Add(s, r) }> p2 = Add(p, g)""",
        "float[x] s, float[z] r",
        ([1, 2], [1, 2, 3]),
    ),
    "an inner loop": (
        """g = Loop (three, , s) <body = in (int64 j, bool di, float[x] q) => (bool do, float[x] q2) {
             do = Identity(di) q2 = Add(q, r) }> p2 = Add(p, g)""",
        "float[x] s, float[z] r",
        ([1, 2], [1, 2, 3]),
    ),
    "an integer division by -1": (
        "d = Div(j, k) f = Cast<to=1>(d) p2 = Add(p, f)",
        "int64 j, int64 k",
        None,
    ),
}


@pytest.mark.parametrize(("body", "inputs", "arrays"), PARTIAL.values(), ids=PARTIAL)
def test_what_can_fail_leaves_only_a_loop_that_surely_runs(body, inputs, arrays):
    for max_trip, cond in (("three", "c"), ("three", "false"), ("nothing", ""), ("M", "")):
        before, _ = hoisted(loop(body, inputs=inputs, max_trip=max_trip, cond=cond), expect=False)
    runs = model(loop(body, inputs=inputs, max_trip="three", cond="true"))
    moved = apply(runs, HoistInvariants())
    assert body_ops(moved) == ["Identity", "Add", "Identity"]
    if arrays is None:
        return
    names = [declared.split()[-1] for declared in inputs.split(",")]
    failing = {n: np.array(a, np.float32 if n in "sr" else np.int64) for n, a in zip(names, arrays, strict=True)}
    feeds = {"M": np.array(0), "c": np.array(True), "v": V, **failing}
    assert run_ort(before, feeds) is not None
    if "Div" not in ops(moved.graph):  # a division by zero takes the process down
        assert_same(runs, moved, feeds)
        assert run_ort(moved, feeds) is None


def test_m_left_out_runs_at_least_once():
    body = "a = Add(s, r) n = Cast<to=9>(i) z = Not(n) p2 = Add(p, a)"
    text = loop(body, inputs="float[x] s, float[z] r", max_trip="").replace("co = Identity(ci)", "")
    text = text.replace("z = Not(n)", "co = Not(n)")
    before, after = hoisted(text)
    assert body_ops(after) == ["Cast", "Not", "Add", "Identity"]
    assert_same_for_trips(before, after, s=np.ones(2, np.float32), r=np.ones(1, np.float32))


@pytest.mark.parametrize("draw", ["RandomUniformLike(s)", "RandomNormal<shape=[2]>()", "Bernoulli(s)", "Dropout(s)"])
def test_random_draws_stay(draw):
    hoisted(loop(f"a = {draw} b = Abs(a) p2 = Add(p, b)", max_trip="three"), expect=False)


def test_random_draws_inside_an_inner_graph_stay():
    inner = "th () => (float[2] a) { a = RandomNormalLike(s) }, else_branch = el () => (float[2] b) { b = Neg(s) }"
    hoisted(loop(f"g = If (c) <then_branch = {inner}> p2 = Add(p, g)", max_trip="three"), expect=False)


def test_ops_of_unknown_domains_stay():
    text = loop("a = other.Thing(s) p2 = Add(p, a)", max_trip="three")
    before = model('<ir_version: 8, opset_import: ["": 17, "other": 1]>\n' + text)
    apply(before, HoistInvariants(), expect=False)


def test_constants_and_expressions_of_constants_stay():
    body = "two = Constant<value = float {2}>() four = Mul(two, two) a = Identity(four) p2 = Add(p, a)"
    hoisted(loop(body), expect=False)


def test_constants_and_initializers_go_along():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y, float[2] z) {
      y, z = Loop (M, , v, v) <
        body = b (int64 i, bool ci, float[2] p, float[2] q) => (bool co, float[2] p2, float[2] w)
          <float[2] w = {2, 3}> {
          co = Identity(ci)
          k = Constant<value = float {0.5}>()
          kk = Mul(k, k)
          a = Mul(s, w)
          b = Mul(a, kk)
          p2 = Add(p, b)
        }
      >
    }"""
    before, after = hoisted(text)
    assert body_ops(after) == ["Identity", "Add", "Identity"]
    assert len(after.graph.initializers) == 1
    for trips in TRIPS:
        assert_same(before, after, {"M": np.array(trips), "v": V, "s": V})


def test_a_body_initializer_does_not_take_the_name_of_an_outer_one():
    text = """main (int64 M, float[2] v, float[2] s) => (float[2] y, float[2] z) <float[2] w_hoisted = {5, 5}> {
      z = Neg(w_hoisted)
      y = Loop (M, , v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2) <float[2] w = {2, 3}> {
          co = Identity(ci)
          a = Mul(s, w)
          p2 = Add(p, a)
        }
      >
    }"""
    before = model(text)
    body = find(before, "Loop").attributes["body"].as_graph()
    body.initializers["w"].name = "w_hoisted"  # as another exporter would have named it: it shadows the outer one
    after = apply(before, HoistInvariants())
    assert len(after.graph.initializers) == 2
    for trips in TRIPS:
        feeds = {"M": np.array(trips), "v": V, "s": V}
        assert_same(model(text), after, feeds)


def test_in_a_function_an_initializer_becomes_a_constant():
    text = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
      main (float[2] v, float[2] s) => (float[2] y) { y = local.f (v, s) }
      <domain: "local", opset_import: ["": 17]> f (v, s) => (y) {
        three = Constant<value = int64 {3}>()
        y = Loop (three, , v) <
          body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2) <float[2] w = {2, 3}> {
            co = Identity(ci)
            a = Mul(s, w)
            p2 = Add(p, a)
          }
        >
      }"""
    before, after = hoisted(text)
    assert ops(next(iter(after.functions.values()))) == ["Constant", "Constant", "Mul", "Loop", "Identity", "Add"]
    assert_same(before, after, {"v": V, "s": V})


def test_a_body_output_stays_as_a_copy():
    text = """main (int64 M, float[2] v, float[2] s, bool c) => (float[2] y, float[k,2] t, float[k,2] u) {
      y, t, u = Loop (M, , v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] a, float[2] a, float[2] e) {
          co = Not(c)
          a = Neg(s)
          e = Add(a, p)
        }
      >
    }"""
    before, after = hoisted(text)
    assert sorted(body_ops(after)) == ["Add", "Identity", "Identity", "Identity"]
    for trips in TRIPS:
        for c in (True, False):
            assert_same(before, after, {"M": np.array(trips), "v": V, "s": V, "c": np.array(c)})


@pytest.mark.parametrize(("opset", "moves"), [(13, False), (14, True)])
def test_a_sequence_that_is_returned_moves_where_it_can_be_copied(opset, moves):
    text = """main (int64 M, float[2] v) => (seq(float[2]) y) {
      x = SequenceConstruct(v)
      y = Loop (M, , x) <body = b (int64 i, bool ci, seq(float[2]) p) => (bool co, seq(float[2]) e) {
        co = Identity(ci)
        e = SequenceConstruct(v, v)
      }>
    }"""
    _, after = hoisted(text, opset, expect=moves)
    assert ("SequenceConstruct" in body_ops(after)) is not moves


@pytest.mark.parametrize(("spelling", "moves"), [("CastLike(half, p)", True), ("CastLike(half, q)", False)])
def test_a_carry_is_asked_for_its_type_before_the_loop(spelling, moves):
    body = f"half = Constant<value = double {{0.5}}>() q = Neg(p) a = {spelling} p2 = Add(p, a)"
    _, after = hoisted(loop(body), expect=moves)
    cast = find(after, "CastLike")
    assert (cast.inputs[1] is after.graph.inputs[2]) == moves


def test_a_carry_is_asked_for_its_shape_before_the_loop_only_if_it_keeps_it():
    keeps = "sh = Shape(p) z = Expand(s, sh) n = Size(p) f = Cast<to=1>(n) a = Mul(s, f) b = Add(a, z) p2 = Add(p, b)"
    before, after = hoisted(loop(keeps))
    assert body_ops(after) == ["Identity", "Add", "Identity"]
    assert_same_for_trips(before, after, s=V, r=V)
    grows = "n = Size(p) f = Cast<to=1>(n) a = Mul(s, f) p2 = Add(p, a)"
    hoisted(loop(grows, inputs="float[3] s").replace("float[2] v", "float[1] v"), expect=False)


def test_an_inner_loop_that_never_changes_leaves_a_loop_that_runs():
    body = """g = Loop (three, , s) <body = in (int64 j, bool di, float[2] q) => (bool do, float[2] q2) {
                do = Identity(di)
                x = Mul(r, r)
                q2 = Add(q, x) }>
              p2 = Add(p, g)"""
    before, after = hoisted(loop(body, max_trip="three"))
    assert [n.op_type for n in after.graph if n.op_type in ("Loop", "Mul")] == ["Mul", "Loop", "Loop"]
    assert_same_for_trips(before, after, s=V, r=V)
    _, partly = hoisted(loop(body))
    assert [n.op_type for n in partly.graph if n.op_type in ("Loop", "Mul")] == ["Mul", "Loop"]


def test_declared_shapes_of_a_body_are_not_believed():
    """The body says [2] of what grows to [2, 2]; adding a [3] to the inner carry would be refused, as it can fail."""
    text = """main (int64 M, float[2] v, float[2,2] s, float[x] r) => (float[n,m] y) {
      y = Loop (M, , v) <
        body = b (int64 i, bool ci, float[2] p) => (bool co, float[2] p2) {
          co = Identity(ci)
          q = Loop (M, , p) <
            body = in (int64 j, bool di, float[2] a) => (bool do, float[2] a2) {
              do = Identity(di)
              w = Mul(p, r)
              a2 = Add(a, w)
            }
          >
          p2 = Add(q, s)
        }
      >
    }"""
    hoisted(text, expect=False)


@pytest.mark.parametrize(("rows", "moves"), [("5", True), ("n", False), ("0", False)])
def test_scan(rows, moves):
    text = f"""main (float[2] v, float[x] s, float[z] r, float[{rows},2] xs) => (float[2] y, float[k,w] t) {{
      y, t = Scan <num_scan_inputs=1,
        body = b (float[2] p, float[2] e) => (float[2] p2, float[w] o) {{
          a = Add(s, r)
          o = Neg(a)
          p2 = Add(p, e)
        }}
      > (v, xs)
    }}"""
    before, after = hoisted(text, expect=moves)
    if moves:
        assert body_ops(after, "Scan") == ["Add", "Identity"]
        feeds = {"v": V, "s": V, "r": np.ones(1, np.float32), "xs": np.arange(10, dtype=np.float32).reshape(5, 2)}
        assert_same(before, after, feeds)


def test_what_cannot_fail_leaves_a_batched_scan():
    text = """main (float[b,2] v, float[2] s, float[b,n,2] x) => (float[b,2] y) {
      y = Scan <num_scan_inputs=1,
        body = b (float[2] p, float[2] e) => (float[2] p2) {
          a = Neg(s)
          f = Add(e, a)
          p2 = Add(p, f)
        }
      > (, v, x)
    }"""
    before, after = hoisted(text, 8)
    assert body_ops(after, "Scan") == ["Add", "Add"]
    feeds = {"v": np.stack([V, V]), "s": V, "x": np.arange(12, dtype=np.float32).reshape(2, 3, 2)}
    assert_same(before, after, feeds)


def test_known_shapes_travel_with_what_is_moved():
    _, after = hoisted(loop("a = Mul(s, r) p2 = Add(p, a)", inputs="float[N] s, float[N] r"))
    product = find(after, "Mul").outputs[0]
    assert (str(product.shape), product.dtype.name) == ("['N']", "FLOAT") or str(product.shape) == "[N]"


def test_a_moved_node_does_not_take_the_name_of_another():
    before = model(loop("a = Mul(s, r) p2 = Add(p, a)"))
    find(before, "Mul").name = before.graph.node(0).name = "same"
    after = apply(before, HoistInvariants())
    names = [node.name for node in after.graph if node.name]
    assert len(names) == len(set(names))
    assert_same_for_trips(before, after, s=V, r=V)


def test_says_what_it_did():
    _, after = hoisted(loop("a = Mul(s, r) b = Neg(a) p2 = Add(p, b)"))
    (finding,) = after.graph.meta["findings"]
    assert finding.actions == ("hoisted Mul, Neg out of the body",)

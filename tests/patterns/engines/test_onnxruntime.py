"""Each quirk of ONNX Runtime that `patterns.engines` names, seen by running it; and that it is told where it shows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from looplift.passes.graph.infer import infer_shapes
from looplift.patterns.engines.onnxruntime.ties import Tie, ties
from tests.engine_bits import bits, drawn, given

K, N = 300, 24

SCOPES = {
    "beside": "{moved}\n y = Loop (one, yes) <body = b (int64 i, bool c) => (bool d, {type} r) {{ d = Identity (c) {stays} }}>",
    "inside": "y = Loop (one, yes) <body = b (int64 i, bool c) => (bool d, {type} r) {{ d = Identity (c) {moved} {stays} }}>",
}
TWO_DEEP = """y = Loop (one, yes) <body = a (int64 j, bool e) => (bool f, {type} s) {{ f = Identity (e)
    s = Loop (one, yes) <body = b (int64 i, bool c) => (bool d, {type} r) {{ d = Identity (c) {moved} {stays} }}> }}>"""


def placed(scope: str, inputs: str, moved: str, stays: str, constants: dict[str, np.ndarray], kind: str) -> ir.Model:
    """A model in which the nodes `moved` stand in front of a loop, in it, or in a loop in it."""
    body = scope.format(moved=moved, stays=stays, type=kind)
    text = f"main ({inputs}) => ({kind} y) {{ one = Constant <value = int64 {{1}}> () yes = Constant <value = bool {{1}}> () {body} }}"
    subject = given(text, **constants)
    for graph in (subject.graph, *subject.graph.subgraphs()):
        for value in graph.outputs:
            if value.type is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
                value.shape = None
    return subject


def told(subject: ir.Model) -> set[tuple[str, Tie]]:
    """What is said of the model's nodes, by the names of what they make."""
    infer_shapes(subject)
    nodes = list(subject.graph.all_nodes())
    numbers = {
        str(node.outputs[0].name): k for k, node in enumerate(sorted(nodes, key=lambda n: str(n.outputs[0].name)))
    }
    found = ties(subject.graph, lambda node: numbers[str(node.outputs[0].name)])
    names = {k: name for name, k in numbers.items()}
    return {(names[k], tie) for k, tied in found.items() for tie in tied}


X = f"float[1,{K}] x"
DEPTHS = {
    "MatMul": ("g = MatMul (x, w)", {"w": drawn(K, N)}, {"x": drawn(1, K)}),
    "Gemm": ("g = Gemm <transB = 1> (x, w)", {"w": drawn(N, K)}, {"x": drawn(1, K)}),
    "LSTM": (
        "g = LSTM <hidden_size = 24> (x, w, h)",
        {"w": drawn(1, 4 * N, K), "h": drawn(1, 4 * N, N)},
        {"x": drawn(2, 1, K)},
    ),
    "GRU": (
        "g = GRU <hidden_size = 24> (x, w, h)",
        {"w": drawn(1, 3 * N, K), "h": drawn(1, 3 * N, N)},
        {"x": drawn(2, 1, K)},
    ),
}
EXACT_DEPTHS = {
    "RNN": ("g = RNN <hidden_size = 24> (x, w, h)", {"w": drawn(1, N, K), "h": drawn(1, N, N)}, {"x": drawn(2, 1, K)}),
    "Einsum": ('g = Einsum <equation = "ij,jk->ik"> (x, w)', {"w": drawn(K, N)}, {"x": drawn(1, K)}),
    "the left operand": ("g = MatMul (w, x)", {"w": drawn(1, K)}, {"x": drawn(K, N)}),
}


def nested(table: dict, name: str) -> tuple[ir.Model, ir.Model, dict[str, np.ndarray]]:
    """The same node in a loop, and in a loop in a loop."""
    moved, constants, feeds = table[name]
    arrays = {**feeds, **constants}
    inputs = ", ".join(f"float[{','.join(map(str, array.shape))}] {key}" for key, array in arrays.items())
    near, far = (
        placed(scope, inputs, moved, "r = Identity (g)", constants, "float[a,b]")
        for scope in (SCOPES["inside"], TWO_DEEP)
    )
    return near, far, feeds


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", DEPTHS)
def test_constant_operands_are_packed_up_to_one_graph_further_out(name, level):
    near, far, feeds = nested(DEPTHS, name)
    assert bits(near, feeds, level) != bits(far, feeds, level)
    assert {tie.kind for _, tie in told(near)} == {"packed"}
    assert not told(far)


@pytest.mark.parametrize("name", EXACT_DEPTHS)
def test_others_do_not_mind(name):
    near, far, feeds = nested(EXACT_DEPTHS, name)
    assert bits(near, feeds, "all") == bits(far, feeds, "all")
    assert told(near) == told(far)


STEPPED = "LSTM GRU RNN".split()


def stepped(op: str, *, at_once: bool, **constants: np.ndarray) -> ir.Model:
    """A node of 9 steps, or a loop around one of each."""
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op] * N
    inputs = f"float[9,B,{K}] x, float[1,B,{N}] p, float[1,B,{N}] q, float[1,{gates},{K}] w, float[1,{gates},{N}] h"
    states, more = ("p, q", "p_, q_") if op == "LSTM" else ("p", "p_")
    given_back = ", ".join(f"{name}n" for name in more.split(", "))
    cell = f"{op} <hidden_size = {N}>"
    body = f'y, yh = {cell} (x, w, h, "", "", {states}) r = Squeeze (y, one)'
    if not at_once:
        ports, results = (
            ", ".join(f"float[1,B,{N}] {name}" for name in names.split(", ")) for names in (more, given_back)
        )
        body = f"""n = Constant <value = int64 {{9}}> () zero = Constant <value = int64[1] {{0}}> ()
            {states.replace("p", "a").replace("q", "b")}, r = Loop (n, "", {states}) <body = f (int64 i, bool c, {ports})
              => (bool d, {results}, float[1,B,{N}] y) {{ d = Identity (c) xi = Gather (x, i) xs = Unsqueeze (xi, zero)
                ys, {given_back} = {cell} (xs, w, h, "", "", {more}) y = Squeeze (ys, zero) }}>"""
    rows = f"float[9,B,{N}] r" if at_once else f"float[9,1,B,{N}] r"
    return given(f"main ({inputs}) => ({rows}) {{ one = Constant <value = int64[1] {{1}}> () {body} }}", **constants)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("op", STEPPED)
def test_steps_of_a_batch_of_one_are_multiplied_at_once(op, packed, batch):
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op] * N
    weights = {"w": drawn(1, gates, K), "h": drawn(1, gates, N)}
    feeds = {"x": drawn(9, batch, K), "p": drawn(1, batch, N), "q": drawn(1, batch, N)} | weights
    known = weights if packed else {}
    one, other = (bits(stepped(op, at_once=at_once, **known), feeds, "all") for at_once in (True, False))
    assert (one == other) == (batch > 1 or (packed and op != "RNN"))


@pytest.mark.parametrize("op", ["LSTM", "RNN"])
def test_final_states_of_no_step_are_zeros(op):
    gates = {"LSTM": 4, "RNN": 1}[op] * N
    cell = f'y, last = {op} <hidden_size = {N}> (x, w, h, "", "", p)'
    text = f"main (float[T,1,{K}] x, float[1,1,{N}] p) => (float[1,1,{N}] last) {{ {cell} }}"
    text = text.replace("] p)", f"] p, float[1,{gates},{K}] w, float[1,{gates},{N}] h)")
    subject = given(text, w=drawn(1, gates, K), h=drawn(1, gates, N))
    (last,) = bits(subject, {"x": drawn(0, 1, K), "p": drawn(1, 1, N)}, "all")
    assert last == bytes(4 * N)


def test_conv_minds_whether_its_weights_are_in_its_graph():
    w, x = drawn(32, 16, 3, 3), drawn(1, 16, 9, 9)
    inputs = "float[1,16,9,9] x, float[32,16,3,3] w"
    here, inside = (
        placed(SCOPES[scope], inputs, "g = Conv (x, w)", "r = Identity (g)", {"w": w}, "float[a,b,c,d]")
        for scope in ("beside", "inside")
    )
    assert bits(here, {"x": x}, "all") != bits(inside, {"x": x}, "all")
    assert bits(here, {"x": x}, "none") == bits(inside, {"x": x}, "none")
    assert told(here) != told(inside)


ONE = np.array(1, np.float32)
PAIRS = {
    "transposed": (
        "extended",
        f"{X}, float[{N},{K}] w",
        "t = Transpose <perm = [1, 0]> (w)",
        "r = MatMul (x, t)",
        {},
        {"x": drawn(1, K), "w": drawn(N, K)},
    ),
    "transposed, with a Reshape between": (
        "extended",
        f"{X}, float[{N},{K}] w, int64[2] s",
        "t = Transpose <perm = [1, 0]> (w)",
        "u = Reshape (t, s) r = MatMul (x, u)",
        {"s": np.array([K, N])},
        {"x": drawn(1, K), "w": drawn(N, K)},
    ),
    "transposed, a Gemm": (
        "basic",
        f"{X}, float[{N},{K}] w",
        "t = Transpose <perm = [1, 0]> (w)",
        "r = Gemm (x, t)",
        {},
        {"x": drawn(1, K), "w": drawn(N, K)},
    ),
    "scaled": (
        "extended",
        f"{X}, float[{K},{N}] w, float k",
        "t = Mul (w, k)",
        "r = MatMul (x, t)",
        {"k": np.array(1.7, np.float32)},
        {"x": drawn(1, K), "w": drawn(K, N)},
    ),
    "bias": (
        "basic",
        f"{X}, float[{K},{N}] w, float[{N}] v",
        "t = MatMul (x, w)",
        "r = Add (t, v)",
        {"w": drawn(K, N)},
        {"x": drawn(1, K), "v": drawn(N)},
    ),
    "summed": (
        "basic",
        f"float[5,{K}] x, float[{K},{N}] w, float[5,{N}] v",
        "t = Gemm (x, w)",
        "r = Sum (t, v)",
        {"w": drawn(K, N)},
        {"x": drawn(5, K), "v": drawn(5, N)},
    ),
    "quotient": (
        "basic",
        f"{X}, float[1,{K}] v, float one_",
        "t = Div (one_, v)",
        "r = Mul (x, t)",
        {"one_": ONE},
        {"x": drawn(1, K), "v": drawn(1, K) + 3},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_neighbours_become_one_node(name):
    level, inputs, moved, stays, constants, feeds = PAIRS[name]
    parted, together = (placed(SCOPES[scope], inputs, moved, stays, constants, "float[a,b]") for scope in SCOPES)
    assert bits(parted, feeds, "none") == bits(together, feeds, "none")
    assert bits(parted, feeds, level) != bits(together, feeds, level)
    assert told(parted) != told(together)


EXACT_PAIRS = {
    "elementwise": (f"{X}, float[1,{K}] v", "t = Mul (v, v)", "r = Add (x, t)"),
    "a function": (f"{X}, float[1,{K}] v", "t = Tanh (v)", "r = Mul (x, t)"),
    "an activation": (f"{X}, float[1,{K}] v", "t = Add (v, v)", "u = Add (x, t) r = Sigmoid (u)"),
    "moved": (f"{X}, float[1,{K}] v", "t = Concat <axis = 0> (v, v)", "r = Add (x, t)"),
}


@pytest.mark.parametrize("name", EXACT_PAIRS)
def test_other_neighbours_do_not(name):
    """Most of what is hoisted; nothing may be said of it, or it would stay."""
    inputs, moved, stays = EXACT_PAIRS[name]
    parted, together = (placed(SCOPES[scope], inputs, moved, stays, {}, "float[a,b]") for scope in SCOPES)
    feeds = {"x": drawn(1, K), "v": drawn(1, K) + 1}
    assert bits(parted, feeds, "all") == bits(together, feeds, "all")
    assert told(parted) == told(together)


def test_halves_are_not_rounded_between_two_nodes():
    inputs = f"float16[1,{K}] x, float16[1,{K}] v"
    parted, together = (
        placed(SCOPES[scope], inputs, "t = Mul (v, v)", "r = Add (x, t)", {}, "float16[a,b]") for scope in SCOPES
    )
    feeds = {"x": drawn(1, K).astype(np.float16), "v": drawn(1, K).astype(np.float16)}
    assert bits(parted, feeds, "none") != bits(together, feeds, "none")
    assert told(parted) != told(together)


NORMALISE = """m = ReduceMean <axes = [-1]> (x) a = Sub (x, m) b = Pow (a, two) v = ReduceMean <axes = [-1]> (b) e = Add (v, k)
    s = Sqrt (e) n = Div (a, s) o = Mul (n, g{_}) r = Add (o, h)"""
SKIP = "a = Add (x, g{_}) r = LayerNormalization (a, k, h)"
SHAPED = {
    "bias": (
        "basic",
        f"{X}, float[{K},{N}] w, float[{N}] g",
        "t = MatMul (x, w) r = Add (t, g{_})",
        {"w": drawn(K, N)},
        {"x": drawn(1, K), "g": drawn(N)},
    ),
    "normalised": (
        "basic",
        f"float[5,{N}] x, float k, float two, float[{N}] g, float[{N}] h",
        NORMALISE,
        {"k": np.array(1e-5, np.float32), "two": np.array(2, np.float32), "h": drawn(N)},
        {"x": drawn(5, N), "g": drawn(N)},
    ),
    "normalised after an Add": (
        "extended",
        f"float[1,5,{N}] x, float[{N}] k, float[1,5,{N}] g, float[{N}] h",
        SKIP,
        {"k": drawn(N), "h": drawn(N)},
        {"x": drawn(1, 5, N), "g": drawn(1, 5, N)},
    ),
}


@pytest.mark.parametrize("name", SHAPED)
def test_known_shapes_count(name):
    """A carried value has no shape unless the body declares one; one from outside has."""
    level, inputs, nodes, constants, feeds = SHAPED[name]
    kind = "float[a,b,c]" if "after" in name else "float[a,b]"
    carried = "z, y = Loop (one, yes, g) <body = b (int64 i, bool c, float g_) => (bool d, float o_, {type} r) {{ d = Identity (c) o_ = Identity (g_) {stays} }}>"
    unknown = placed(carried, inputs, "", nodes.replace("{_}", "_"), constants, kind)
    known = placed(SCOPES["inside"], inputs, "", nodes.replace("{_}", ""), constants, kind)
    assert bits(unknown, feeds, "none") == bits(known, feeds, "none")
    assert bits(unknown, feeds, level) != bits(known, feeds, level)
    assert told(unknown) != told(known)


def test_no_expand_of_bfloat16():
    """The standard has one; a model of it does not load."""
    subject = given("main (bfloat16[1] x, int64[1] s) => (bfloat16[n] y) { y = Expand (x, s) }")
    with pytest.raises(NotImplemented):
        bits(subject, {}, "none")


MOVES = {
    "Gather": ("m = Gather <axis = 1> (t, index)", True),
    "Gather twice": ("l = Gather <axis = 1> (t, index) m = Gather <axis = 1> (l, index)", False),
    "Where": ("m = Where (no, x, t)", True),
    "Pad": ("m = Pad (t, pads)", True),
    "If": (
        "m = If (no) <then_branch = p () => (e) { e = Identity(x) }, else_branch = q () => (o) { o = Identity(t) }>",
        False,
    ),
    "If by a constant": (
        "m = If (yes) <then_branch = p () => (e) { e = Neg(t) }, else_branch = q () => (o) { o = Identity(x) }>",
        True,
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_stands_between_two_nodes_of_halves(name):
    """A single operator is done in float32 like those around it; two in a row that have float16 are not."""
    body, unrounded = MOVES[name]
    inputs = f"float16[1,{K}] x, float16[1,{K}] v, bool no, int64[{K}] index, int64[4] pads"
    constants = {"index": np.arange(K)[::-1].copy(), "pads": np.zeros(4, np.int64)}
    parted, together = (
        placed(SCOPES[scope], inputs, "t = Mul (v, v)", f"{body} r = Add (x, m)", constants, "float16[a,b]")
        for scope in SCOPES
    )
    feeds = {"x": drawn(1, K).astype(np.float16), "v": drawn(1, K).astype(np.float16), "no": np.array(False)}
    assert (bits(parted, feeds, "all") != bits(together, feeds, "all")) == unrounded
    near = {name for name, tie in told(together) if tie.kind == "half" and tie.partner is not None}
    assert bool({"r", "m", "e"} & near) == unrounded

"""Pairs of models of which the second has one mistake: what `verify` has to find, whatever the seed.

Run as a script it prints the share found per mistake and seed: ``python tests/planted.py [SEEDS]``.
"""

from __future__ import annotations

import functools
import sys
import time

import onnx
import onnx.parser

HEAD = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]> '

SUM = """g (int64 n, float[D] x, float[D] s) => (float[D] y, float[N, D] ys) {
  r, ys = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w, float[D] e) {
    co = Identity(c) p = Add(v, s) %s e = Identity(w) }> (n, , x)
  %s }"""
"""A running sum: what becomes of a step, and of the last state."""

FILL = """g (float[N, D] x) => (float[N, D] y) { shape = Shape(x) z = Constant <value_int = 0> () d = Constant <value_int = 1> ()
  rows = Gather(shape, z) cols = Gather(shape, d) r = Neg(x) %s }"""

ONE = """g (float[D] x, float a) => (float[D] y) { r = Mul(x, a) %s }"""

INTS = """g (int64[D] x, int64 n) => (int64[D] y) {
  r = Loop <body = b (int64 i, bool c, int64[D] v) => (bool co, int64[D] w) { co = Identity(c) w = Add(v, i) }> (n, , x) %s }"""


def wrong_where(condition: str, good: str, result: str, kind: str = "float") -> str:
    """Adds one where a condition (its nodes, the last of which writes `bad`) holds."""
    return f"{condition} off = Constant <value = {kind} {{1}}> () alt = Add({good}, off) {result} = Where(bad, alt, {good})"


def compared(op: str, left: str, number: str, kind: str = "int64") -> str:
    """The nodes of a comparison with a constant."""
    return f"lim = Constant <value = {kind} {{{number}}}> () bad = {op}({left}, lim)"


def _step(op: str, number: int) -> tuple[str, str]:
    last = "y = Identity(r)"
    return SUM % ("w = Identity(p)", last), SUM % (wrong_where(compared(op, "i", str(number)), "p", "w"), last)


def _last(condition: str, body: str = SUM % ("w = Identity(p)", "%s")) -> tuple[str, str]:
    return body % "y = Identity(r)", body % wrong_where(condition, "r", "y")


def _fill(condition: str) -> tuple[str, str]:
    return _last(condition, FILL)


def _value(condition: str) -> tuple[str, str]:
    return _last(condition, ONE)


def _int(condition: str) -> tuple[str, str]:
    return INTS % "y = Identity(r)", INTS % wrong_where(condition, "r", "y", "int64")


def _swap(text: str, good: str, bad: str) -> tuple[str, str]:
    return text % good, text % bad


IN_FUNCTION = """g (int64 n, float[D] x, float[D] s) => (float[D] y) { y = own.f(n, x, s) }
<domain: "own", opset_import: ["" : 21]> f (n, x, s) => (y) { %s
  y = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w) { co = Identity(c) w = Add(v, s) }> (n, , %s) }"""

ATTRIBUTE = """g (int64 n, float[D] x, float[D] s) => (float[D] y) { y = own.f <k = %s> (n, x, s) }
<domain: "own", opset_import: ["" : 21]> f <k> (n, x, s) => (y) { k = Constant <value_int : int = @k> () one = Constant <value_float = 1.0> ()
  y = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w) { co = Identity(c) p = Add(v, s)
  o = Add(p, one) q = Equal(i, k) w = Where(q, o, p) }> (n, , x) }"""

BRANCH = """g (float[D] x, float a) => (float[D] y) { lim = Constant <value_float = 40.0> () big = Greater(a, lim)
  y = If (big) <then_branch = t () => (float[D] p) { p = %s(x, a) }, else_branch = e () => (float[D] q) { q = Neg(x) }> }"""

LOOP_IN_BRANCH = """g (int64 n, float[D] x) => (float[D] y) { lim = Constant <value_int = 40> () big = Greater(n, lim)
  y = If (big) <then_branch = t () => (float[D] p) {
    p = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w) { co = Identity(c) w = %s(v, x) }> (n, , x) },
  else_branch = e () => (float[D] q) { q = Neg(x) }> }"""

GATHER = """g (float[N] x, int64[K] k) => (float[K] y) { z = Constant <value_int = 0> () %s y = Gather(x, j) }"""

TABLE = """g (int64 n, int64 k, float x) => (float y) { rows = Constant <value = float[10] {1, 2, 3, 4, 5, 6, 7, 8, 9, %s}> ()
  y = Loop <body = b (int64 i, bool c, float v) => (bool co, float w) { co = Identity(c) r = Gather(rows, k) w = Add(v, r) }> (n, , x) }"""

SCAN = """g (float[T, D] x, float[D] s) => (float[D] y, float[T, D] ys) { zero = Constant <value_int = 0> ()
  y, k, ys = Scan <num_scan_inputs = 1, body = b (float[D] v, int64 i, float[D] e) => (float[D] w, int64 j, float[D] o) {
    one = Constant <value_int = 1> () j = Add(i, one) p = %s(v, e) %s o = Identity(p) }> (s, zero, x) }"""

FLAG = """g (bool go, float[2] x) => (float[2] y) { n = Constant <value_int = 4> ()
  y = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w) { co = Identity(c) w = Add(v, v) }> (n, %s, x) }"""

LIST = """g (seq(float[2]) x) => (float[2] y) { n = SequenceLength(x) z = Constant <value_float = 0.0> () d = Constant <value_int = 2> ()
  u = Constant <value = int64[1] {0}> () m = Unsqueeze(d, u) e = Expand(z, m)
  r = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w) {
    co = Identity(c) a = SequenceAt(x, i) w = Add(v, a) }> (n, , e) %s }"""

DEFAULT = """g (float[2] x, float a = {2}) => (float[2] y) { b = Constant <value_float = 2.0> () y = Mul(x, %s) }"""

NARROW = """g (int64 n, float16[D] x, float16[D] s) => (float16[D] y) { %s }"""

NESTED = """g (int64 n, int64 m, float[2] x) => (float[2] y) { y = Loop <body = o (int64 i, bool c, float[2] v) => (bool co, float[2] w) {
  co = Identity(c) w = Loop <body = b (int64 j, bool d, float[2] u) => (bool do, float[2] t) { do = Identity(d) p = Add(u, x) %s }> (m, , v) }> (n, , x) }"""

WHILE = """g (int64 n, float[2] x, float[2] s) => (float[2] y) { zero = Constant <value_int = 0> () go = Less(zero, n)
  k, r = Loop <body = b (int64 i, bool c, int64 k, float[2] v) => (bool co, int64 kk, float[2] w) {
    one = Constant <value_int = 1> () kk = Add(k, one) co = Less(kk, n) w = Add(v, s) }> (, go, zero, x)
  %s }"""

FLOAT_WHILE = """g (float end, float[2] x) => (float[2] y, float last) { zero = Constant <value_float = 0.0> () go = Less(zero, end)
  t, r = Loop <body = b (int64 i, bool c, float k, float[2] v) => (bool co, float kk, float[2] w) {
    one = Constant <value_float = 1.0> () kk = Add(k, one) co = Less(kk, end) w = Add(v, x) }> (, go, zero, x)
  y = Identity(r) last = %s }"""

TWO_SYMBOLS = """g (float[M] x, float[K] z) => (float[M] y) { r = Add(x, z) shape = Shape(x) u = Constant <value = int64[1] {0}> ()
  rows = Squeeze(shape, u) %s }"""

UNNAMED = """g (float[?, ?] x, float[?] b) => (float[?, ?] y) { w = Constant <value = float[6, 2] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
  p = MatMul(x, w) r = Add(p, b) shape = Shape(x) z = Constant <value_int = 0> () rows = Gather(shape, z) %s }"""

MASK = """g (bool[T] m, float x) => (float y) { shape = Shape(m) u = Constant <value = int64[1] {0}> () n = Squeeze(shape, u)
  r = Loop <body = b (int64 i, bool c, float v) => (bool co, float w) { co = Identity(c) f = Gather(m, i) a = Add(v, v)
    w = Where(f, a, v) }> (n, , x) %s }"""

RANGE = "lo = Constant <value_float = 1000.0> () hi = Constant <value_float = 2000.0> () ax = Abs(x) above = Less(lo, ax) below = Less(ax, hi) bad = And(above, below)"
MODULO = (
    "seven = Constant <value_int = 7> () rest = Mod(%s, seven) z0 = Constant <value_int = 0> () bad = Equal(rest, z0)"
)

MISTAKES: dict[str, tuple[str, str]] = {
    "iteration 301": _step("Equal", 301),
    "iteration 0": _step("Equal", 0),
    "iterations from 64": _step("GreaterOrEqual", 64),
    "iterations to 2": _step("Less", 3),
    "the last iteration": _swap(
        SUM % ("%s", "y = Identity(r)"),
        "w = Identity(p)",
        wrong_where("one = Constant <value_int = 1> () top = Sub(n, one) bad = Equal(i, top)", "p", "w"),
    ),
    "5 trips": _last(compared("Equal", "n", "5")),
    "1 trip": _last(compared("Equal", "n", "1")),
    "trips from 700": _last(compared("GreaterOrEqual", "n", "700")),
    "trips by 7": _last(MODULO % "n"),
    "negative trips": _last(compared("Less", "n", "0")),
    "the state before": _swap(SUM, ("w = Identity(p)", "y = Identity(r)"), ("w = Identity(p)", "y = Identity(x)")),
    "N = 5": _fill(compared("Equal", "rows", "5")),
    "N from 64": _fill(compared("GreaterOrEqual", "rows", "64")),
    "N from 1024": _fill(compared("GreaterOrEqual", "rows", "1024")),
    "D from 1024": _fill(compared("GreaterOrEqual", "cols", "1024")),
    "D = 33": _fill(compared("Equal", "cols", "33")),
    "N = 1": _fill(compared("Equal", "rows", "1")),
    "N by 7": _fill(MODULO % "rows"),
    "N = D": _fill("bad = Equal(rows, cols)"),
    "N > D": _fill("bad = Greater(rows, cols)"),
    "x = 12345": _value(compared("Equal", "x", "12345", "float")),
    "1000 < |x| < 2000": _value(RANGE),
    "a = 12345": _value(compared("Equal", "a", "12345", "float")),
    "1000 < |a| < 2000": _value(RANGE.replace("Abs(x)", "Abs(a)")),
    "a > 250.5": _value(compared("Greater", "a", "250.5", "float")),
    "x * x > 10^6": _value("xx = Mul(x, x) " + compared("Greater", "xx", "1000000", "float")),
    "3 n > 900": _last("c3 = Constant <value_int = 3> () n3 = Mul(n, c3) " + compared("Greater", "n3", "900")),
    "N N > 10000": _fill("nn = Mul(rows, rows) " + compared("Greater", "nn", "10000")),
    "a = -77": _value(compared("Equal", "a", "-77", "float")),
    "a from 0.25, the end": _value(compared("Equal", "a", "0.25", "float")),
    "-0 becomes 0": _swap(ONE, "y = Identity(r)", "zero = Constant <value_float = 0.0> () y = Add(r, zero)"),
    "NaN becomes 0": _swap(
        ONE, "y = Identity(r)", "zero = Constant <value_float = 0.0> () same = Equal(r, r) y = Where(same, r, zero)"
    ),
    "infinities are cut": _swap(
        ONE, "y = Identity(r)", "top = Constant <value = float {3.4028234e38}> () low = Neg(top) y = Clip(r, low, top)"
    ),
    "subnormals are flushed": _swap(
        ONE,
        "y = Identity(x)",
        "tiny = Constant <value = float {1.1754944e-38}> () m = Abs(x) sub = Less(m, tiny) zero = Constant <value_float = 0.0> () y = Where(sub, zero, x)",
    ),
    "integer x = 777": _int(compared("Equal", "x", "777")),
    "integer x < -5000": _int(compared("Less", "x", "-5000")),
    "integers are cut": _swap(
        INTS,
        "y = Identity(r)",
        "top = Constant <value_int = 32767> () low = Constant <value_int = -32768> () y = Clip(r, low, top)",
    ),
    "negative indices": _swap(GATHER, "j = Identity(k)", "j = Max(k, z)"),
    "a table's end": _swap(TABLE, "10", "11"),
    "NaN in a function's loop": _swap(
        IN_FUNCTION,
        ("", "x"),
        ("zero = Constant <value_float = 0.0> () same = Equal(x, x) z = Where(same, x, zero)", "z"),
    ),
    "infinities in a function's loop": _swap(
        IN_FUNCTION,
        ("", "x"),
        ("top = Constant <value = float {3.4028234e38}> () low = Neg(top) z = Clip(x, low, top)", "z"),
    ),
    "s = 12345 in a function's loop": _swap(
        IN_FUNCTION, ("", "x"), (wrong_where(compared("Equal", "s", "12345", "float"), "x", "z"), "z")
    ),
    "a function's attribute": _swap(ATTRIBUTE, "100000", "301"),
    "a branch": _swap(BRANCH, "Mul", "Add"),
    "a loop in a branch": _swap(LOOP_IN_BRANCH, "Add", "Sub"),
    "row 100 of a Scan": _swap(
        SCAN,
        ("Add", "w = Identity(p)"),
        ("Add", wrong_where(compared("Equal", "i", "100"), "p", "w")),
    ),
    "Max for Add": _swap(SCAN, ("Add", "w = Identity(p)"), ("Max", "w = Identity(p)")),
    "a flag is left out": _swap(FLAG, "go", ""),
    "a list of 3": _last(compared("Equal", "n", "3"), LIST),
    "a default instead of the input": _swap(DEFAULT, "a", "b"),
    "float16 in float": _swap(
        NARROW,
        "y = Loop <body = b (int64 i, bool c, float16[D] v) => (bool co, float16[D] w) { co = Identity(c) w = Add(v, s) }> (n, , x)",
        "x1 = Cast <to = 1> (x) s1 = Cast <to = 1> (s) r = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w) { co = Identity(c) w = Add(v, s1) }> (n, , x1) y = Cast <to = 10> (r)",
    ),
    "another order": _swap(
        "g (float[D] a, float[D] b, float[D] c) => (float[D] y) { %s }",
        "p = Add(a, b) y = Add(p, c)",
        "p = Add(b, c) y = Add(a, p)",
    ),
    "multiplied, not added": _swap(
        "g (int64 n, float[D] x, float[D] s) => (float[D] y) { %s }",
        "y = Loop <body = b (int64 i, bool c, float[D] v) => (bool co, float[D] w) { co = Identity(c) w = Add(v, s) }> (n, , x)",
        "zero = Constant <value_int = 0> () m = Max(n, zero) k = Cast <to = 1> (m) p = Mul(k, s) y = Add(x, p)",
    ),
    "i = 3, j = 2": _swap(
        NESTED,
        "t = Identity(p)",
        wrong_where(
            "three = Constant <value_int = 3> () two = Constant <value_int = 2> () q = Equal(i, three) h = Equal(j, two) bad = And(q, h)",
            "p",
            "t",
        ),
    ),
    "a limit of 37": _last(compared("Equal", "n", "37"), WHILE),
    "a limit that is NaN": _swap(FLOAT_WHILE, "Identity(t)", "Max(t, end)"),
    "M = K from 64": _last(compared("GreaterOrEqual", "rows", "64"), TWO_SYMBOLS),
    "9 rows of unnamed dims": _last(compared("Equal", "rows", "9"), UNNAMED),
    "a mask without True": _last(
        "u8 = Cast <to = 7> (m) some = ReduceMax <keepdims = 0> (u8) z9 = Constant <value_int = 0> () bad = Equal(some, z9)",
        MASK,
    ),
}


@functools.cache
def pair(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The original and the one with the mistake."""
    first, second = (onnx.parser.parse_model(HEAD + text) for text in MISTAKES[name])
    return first, second


def found(name: str, seed: int, *, onnxruntime: bool = False) -> bool:
    """Whether the default run finds it."""
    from looplift.verification.check import verify

    return verify(*pair(name), seed=seed, onnxruntime=onnxruntime).counterexample is not None


def main(seeds: int) -> None:
    """Prints a table."""
    print("| mistake | found |\n|---|---|")
    for name in MISTAKES:
        began = time.monotonic()
        hits = sum(found(name, seed) for seed in range(seeds))
        print(
            f"| {name} | {hits}/{seeds} |", f"{time.monotonic() - began:.1f} s" if "-v" in sys.argv else "", flush=True
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)

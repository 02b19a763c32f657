"""Models that nest too deep, or grow for ever once calls are followed, are refused in one line before anything reads
on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import looplift
from looplift import bounds, interop
from looplift.cli import main
from looplift.cli.codes import FAILED

HEADER = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n'


def node(op_type: str, inputs: list[ir.Value | None], out: str, **graphs: ir.Graph) -> ir.Value:
    """The output of a new node."""
    made = ir.Node("", op_type, inputs, [ir.Attr(name, ir.AttributeType.GRAPH, g) for name, g in graphs.items()])
    made.outputs[0].name, made.outputs[0].type, made.outputs[0].shape = (
        out,
        ir.TensorType(ir.DataType.FLOAT),
        ir.Shape([]),
    )
    return made.outputs[0]


def port(name: str, dtype: ir.DataType) -> ir.Value:
    """A scalar."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([]))


def graph_of(value: ir.Value, inputs: list[ir.Value], name: str, *others: ir.Value) -> ir.Graph:
    """A graph that returns a node's output, after those of others."""
    nodes = [each.producer() for each in (*others, value)]
    return ir.Graph(inputs, [*others, value], nodes=[each for each in nodes if each is not None], name=name)


def nested(op_type: str, depth: int) -> ir.Model:
    """So many Ifs or Loops within one another; made from the inside, without recursion."""
    x, b, n = port("x", ir.DataType.FLOAT), port("b", ir.DataType.BOOL), port("n", ir.DataType.INT64)
    inner = node("Neg", [x], "y")
    for k in range(depth):
        if op_type == "If":
            other = graph_of(node("Identity", [x], f"z{k}"), [], f"e{k}")
            inner = node("If", [b], f"y{k}", then_branch=graph_of(inner, [], f"t{k}"), else_branch=other)
        else:
            c = port(f"c{k}", ir.DataType.BOOL)
            goes_on = node("Identity", [c], f"d{k}")
            goes_on.type = ir.TensorType(ir.DataType.BOOL)
            ports = [port(f"i{k}", ir.DataType.INT64), c, port(f"p{k}", ir.DataType.FLOAT)]
            inner = node("Loop", [n, None, x], f"y{k}", body=graph_of(inner, ports, f"b{k}", goes_on))
    graph = graph_of(inner, [x, b, n], "g")
    graph.opset_imports[""] = 17
    return ir.Model(graph, ir_version=8)


def calls(depth: int, times: int, last: str = "Neg") -> ir.Model:
    """Functions that each call the next one so many times; in a loop."""
    text = """g (int64 n, float x) => (float y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float p) => (bool d, float q) {
    d = Identity (c)
    q = my.f0 (p)
  }>
}
"""
    for k in range(depth):
        op = f"my.f{k + 1}" if k + 1 < depth else last
        body = "\n".join(f"v{j + 1} = {op} (v{j})" for j in range(times))
        text += f'<domain: "my", opset_import: ["" : 17, "my" : 1]>\nf{k} (v0) => (v{times}) {{ {body} }}\n'
    return ir.from_onnx_text(HEADER + text)


REFUSED = {
    "a thousand Ifs": (lambda: nested("If", 1000), "nests graphs 1000 deep"),
    "a thousand Loops": (lambda: nested("Loop", 1000), "nests graphs 1000 deep"),
    "one If too many": (lambda: nested("If", bounds.DEEPEST_GRAPHS + 1), "nests graphs 32 deep"),
    "calls that double": (lambda: calls(24, 2), "nodes, which no engine runs"),
    "a chain of calls": (lambda: calls(1000, 1), "call one another 1000 deep"),
    "a function that calls itself": (lambda: calls(3, 1, "my.f0"), "my::f. calls itself"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_is_refused(make: Callable[[], ir.Model], words: str) -> None:
    model = make()
    for ask in (looplift.optimize, looplift.explain, looplift.Session, lambda each: looplift.verify(each, each)):
        with pytest.raises(looplift.LoopliftError, match=words):
            ask(model)


@pytest.mark.parametrize("op_type", ["If", "Loop"])
def test_the_deepest_that_is_read_is_done(op_type: str) -> None:
    model = nested(op_type, bounds.DEEPEST_GRAPHS)
    read = interop.to_ir(interop.read(ir.to_proto(model)))
    looplift.Session(read).run(None, {"x": np.float32(2), "b": np.bool_(True), "n": np.int64(1)})


def test_the_longest_chain_that_is_read_is_done() -> None:
    model = calls(bounds.DEEPEST_CALLS, 1)
    looplift.optimize(model)
    looplift.Session(model)


@pytest.mark.parametrize("command", ["explain", "optimize", "run", "bench", "verify"])
def test_every_command_refuses_calls_that_double(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(ir.to_proto(calls(24, 2)), file)
    more = {"optimize": ["-o", str(tmp_path / "o.onnx")], "verify": [str(file)]}
    assert main([command, str(file), *more.get(command, [])]) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert "which no engine runs" in line


@pytest.mark.parametrize("depth", [40, 50_000])
def test_text_that_is_nested_too_deep(depth: int, tmp_path: Path) -> None:
    file = tmp_path / "model.onnxtxt"
    inner = "y = If (b) <then_branch = t () => (float y) {" * depth + "y = Identity (x)" + "}>" * depth
    file.write_text(f"{HEADER}g (bool b, float x) => (float y) {{ {inner} }}")
    with pytest.raises(looplift.LoopliftError, match="deep"):
        interop.read(file)

"""What every custom op must be: registered, consistent with its definition, accepted by onnx.checker, inferred."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnx.shape_inference
import pytest

from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import DOMAIN, VERSION, all_ops, memory
from looplift.runtime.ops.element_types import NUMBERS, ONNX_NUMBERS
from looplift.runtime.ops.schemas import broadcast, register
from tests.runtime.op_cases import assert_same_bits, kernel, one_node, run_ort

OPS = list(all_ops().values())
SERIES = np.zeros((5, 3), "f4")
INPUTS = {
    "AddStep": {"M": np.array(5), "cond": np.array(True), "v_initial": SERIES[0], "step": SERIES[0]},
    "PrefixSum": {"v_initial": SERIES[0], "x": SERIES},
    "LinearRecurrence": {"v_initial": SERIES[0], "a": SERIES, "b": SERIES},
}


def graphs(nodes):
    """The nodes and those of the graphs in them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g.node)


def test_every_folder_is_an_op():
    assert sorted(all_ops()) == ["AddStep", "LinearRecurrence", "PrefixSum"]
    assert all_ops() is all_ops()


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_schema_is_registered_once(op):
    schema = onnx.defs.get_schema(op.name, VERSION, DOMAIN)
    assert schema.name == op.schema.name == op.name
    assert op.schema.has_type_and_shape_inference_function
    again = register(op.name, "", [], [], [], lambda context: None)
    assert [i.name for i in again.inputs] == [i.name for i in op.schema.inputs]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("opset", range(8, 29))
def test_definition_fits_schema(op, opset):
    function = op.definition(opset)
    assert (function.domain, function.name) == (DOMAIN, op.name)
    assert list(function.input) == [i.name for i in op.schema.inputs]
    assert list(function.output) == [o.name for o in op.schema.outputs]
    defaults = {a.name: a.i for a in function.attribute_proto}
    assert defaults == {name: a.default_value.i for name, a in op.schema.attributes.items()}
    made = {name for node in graphs(function.node) for name in node.output} - set(function.output)
    assert all(name.startswith("looplift_") for name in made)
    assert {node.domain for node in graphs(function.node)} == {""}
    function.node.add()
    assert len(op.definition(opset).node) == len(function.node) - 1, "the caller may change its copy"


CHECK = """
import sys, onnx
for path in sys.argv[1:]:
    model = onnx.load(path)
    assert not onnx.defs.has(model.graph.node[0].op_type, model.graph.node[0].domain)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
"""


@pytest.mark.parametrize("registered", [True, False])
def test_checker_accepts_every_op_in_every_opset(tmp_path, registered):
    """Also in a process that does not know the schemas, where inference goes through the definition."""
    paths = []
    for op in OPS:
        for opset in range(8, 29):
            flags = {name: 1 for name in op.schema.attributes if name != "b_invariant"} if opset % 2 else {}
            inputs = dict(INPUTS[op.name])
            if "a_invariant" in flags:
                inputs["a"] = np.zeros((), "f4")
            model = one_node(op.name, opset, inputs, **flags)
            for output in model.graph.output:
                rank = 1 if output.name == "v_final" else 2
                output.type.tensor_type.shape.CopyFrom(
                    onnx.helper.make_tensor_type_proto(1, [None] * rank).tensor_type.shape
                )
            if registered:
                onnx.checker.check_model(model, full_check=True)
            paths.append(str(tmp_path / f"{op.name}{opset}.onnx"))
            onnx.save(model, paths[-1])
    if not registered:
        done = subprocess.run([sys.executable, "-c", CHECK, *paths], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def inferred(text):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "{DOMAIN}": 1]> {text}')
    result = onnx.shape_inference.infer_shapes(model)
    return {value.name: described(value.type.tensor_type) for value in result.graph.value_info}


def described(tensor):
    """Element type and shape; a symbol that inference made up says nothing."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    if not tensor.HasField("shape"):
        return f"{kind} of unknown rank"
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
    return f"{kind}[{','.join('?' if not dim or dim.startswith('unk__') else dim for dim in dims)}]"


@pytest.mark.parametrize(
    ("text", "final", "rows"),
    [
        # AddStep: the count is known, or not
        (
            "g (float[n] v, float[n] s) => () <int64 M = {5}> {f, r = AddStep (M, '', v, s)}",
            "float32[n]",
            "float32[5,n]",
        ),
        (
            "g (float[n] v, float[n] s) => () <int64 M = {-5}> {f, r = AddStep (M, '', v, s)}",
            "float32[n]",
            "float32[0,n]",
        ),
        ("g (int64 M, int8[2,3] v, int8 s) => () {f, r = AddStep (M, '', v, s)}", "int8[2,3]", "int8[?,2,3]"),
        (
            "g (bool c, float[4] v, float[4] s) => () <int64 M = {5}> {f, r = AddStep (M, c, v, s)}",
            "float32[4]",
            "float32[?,4]",
        ),
        # the state may grow, unless nothing runs
        (
            "g (float[1] v, float[4] s) => () <int64 M = {5}> {f, r = AddStep (M, '', v, s)}",
            "float32[4]",
            "float32[5,4]",
        ),
        ("g (int64 M, float[1] v, float[4] s) => () {f, r = AddStep (M, '', v, s)}", "float32[?]", "float32[?,4]"),
        (
            "g (int64 M, float v, float[4] s) => () {f, r = AddStep (M, '', v, s)}",
            "float32 of unknown rank",
            "float32[?,4]",
        ),
        (
            "g (float[1] v, float[4] s) => () <int64 M = {0}> {f, r = AddStep (M, '', v, s)}",
            "float32[?]",
            "float32[0,4]",
        ),
        (
            "g (float[1] v, float[4] s) => () <int64 M = {1}> {f, r = AddStep <emit_previous = 1> (M, '', v, s)}",
            "float32[4]",
            "float32[1,1]",
        ),
        ("g (int64 M, float[a] v, float[b] s) => () {f, r = AddStep (M, '', v, s)}", "float32[?]", "float32[?,?]"),
        (
            "g (float[2] v, float[4,1] s) => () <int64 M = {0}> {f, r = AddStep (M, '', v, s)}",
            "float32 of unknown rank",
            "float32[0,4,2]",
        ),
        ("g (int64 M, float[2] v, float[3] s) => () {f, r = AddStep (M, '', v, s)}", "float32[?]", "float32[?,?]"),
        (
            "g (int64 M, float[] v, float[3] s) => () {f, r = AddStep (M, '', v, s)}",
            "float32 of unknown rank",
            "float32 of unknown rank",
        ),
        # over time
        ("g (double[2,n] v, double[t,n] x) => () {f, r = PrefixSum (v, x)}", "float64[2,n]", "float64[t,2,n]"),
        ("g (double[2] v, double[] x) => () {f, r = PrefixSum (v, x)}", "float64[2]", "float64[?,2]"),
        ("g (float v, float[t] a, float[7] b) => () {f, r = LinearRecurrence (v, a, b)}", "float32[]", "float32[7]"),
        (
            "g (float[3] v, float[3] a, float[t,3] b) => () {f, r = LinearRecurrence <a_invariant = 1> (v, a, b)}",
            "float32[3]",
            "float32[t,3]",
        ),
        (
            "g (float[3] v, float[9,3] a, float[3] b) => () {f, r = LinearRecurrence <b_invariant = 1> (v, a, b)}",
            "float32[3]",
            "float32[9,3]",
        ),
    ],
)
def test_inference(text, final, rows):
    for name in all_ops():
        text = text.replace(f"= {name}", f"= {DOMAIN}.{name}")
    values = inferred(text.replace("''", '""'))
    assert (values["f"], values["r"]) == (final, rows)


ROWS_READ_IN_ANOTHER_LOOP = """<ir_version: 8, opset_import: ["": 17, "ai.looplift": 1]>
main (bool c, float[3] v, float[5,3] x) => (float[3] y) {{
    y = If (c) <
        then_branch = yes () => (float[3] last) <float[5,3] rows> {{
            "", rows = ai.looplift.{made} ({inputs})
            last, "" = ai.looplift.{read} (v, {series})
        }},
        else_branch = no () => (float[3] same) {{ same = Identity (v) }}
    >
}}"""


@pytest.mark.parametrize(("read", "series"), [("PrefixSum", ["rows"]), ("LinearRecurrence", ["rows", "rows"])])
@pytest.mark.parametrize(("made", "given"), [("PrefixSum", ["v", "x"]), ("LinearRecurrence", ["v", "x", "x"])])
@pytest.mark.parametrize("optimize", [False, True])
def test_rows_are_read_in_the_loop_of_another_definition_in_a_subgraph(made, given, read, series, optimize):
    """The loop captures what the If of the first definition gives."""
    text = ROWS_READ_IN_ANOTHER_LOOP.format(made=made, inputs=", ".join(given), read=read, series=", ".join(series))
    model = onnx.parser.parse_model(text)
    model.functions.extend(all_ops()[name].definition(17) for name in sorted({made, read}))
    values = {"v": np.arange(3, dtype="f4"), "x": np.linspace(-1, 1, 15, dtype="f4").reshape(5, 3)}
    _, rows = kernel(made, [values[name] for name in given])
    last, _ = kernel(read, [values["v"], *([rows] * len(series))])
    (got,) = run_ort(model, {"c": np.array(True), **values}, optimize)
    assert_same_bits(got, last)


def test_broadcast_of_unknown_shapes():
    assert broadcast((3, 1), (4,)) == (3, 4)
    assert broadcast(("n",), ("n",)) == ("n",)
    assert broadcast(("n",), (4,)) == (4,)
    assert broadcast(("n", 1), (0,)) == ("n", 0)
    assert broadcast(("n",), ("m",)) == (None,)
    assert broadcast((None,), (1,)) == (None,)
    assert broadcast(None, (1,)) is None


def test_types_are_those_of_add():
    add = next(t for t in onnx.defs.get_schema("Add").type_constraints if t.type_param_str == "T")
    assert sorted(add.allowed_type_strs) == sorted(ONNX_NUMBERS)
    assert len(NUMBERS) == len(ONNX_NUMBERS)


def test_allocate_refuses_what_does_not_fit(monkeypatch):
    assert memory.allocate((2, 3), np.dtype("f4"), "rows").shape == (2, 3)
    monkeypatch.setattr(memory, "_available_bytes", lambda: 1 << 27)
    assert memory.allocate((1 << 27,), np.dtype("u1"), "rows").shape == (1 << 27,)
    with pytest.raises(LoopliftError, match=r"rows of shape \[134217729\] \(uint8\) needs 134,217,729 bytes"):
        memory.allocate(((1 << 27) + 1,), np.dtype("u1"), "rows")
    monkeypatch.setattr(memory, "_available_bytes", lambda: None)
    with pytest.raises(LoopliftError, match="can't be allocated"):
        memory.allocate((1 << 50, 1 << 12), np.dtype("f8"), "rows")


@pytest.mark.parametrize("op", ["AddStep (n, , u, x)", "PrefixSum (u, x)", "LinearRecurrence (u, x, x)"])
def test_an_input_of_unknown_type_gives_outputs_of_unknown_type(op):
    """Made by an operator that ONNX does not know: nothing can be inferred, which is no error."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 17, "ai.looplift": 1, "elsewhere": 1]>
        g (int64 n, float[4] x) => (float[4] y) {{ u = elsewhere.Op (x) y = ai.looplift.{op} }}"""
    )
    assert onnx.shape_inference.infer_shapes(model).graph.output[0].name == "y"

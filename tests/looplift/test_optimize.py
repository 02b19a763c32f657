"""`optimize` and `explain` for every kind of model, on loops as exporters write them."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import looplift
from looplift.console import count_ops
from looplift.legality import loop_nodes

EXPORTS = Path(__file__).parents[1] / "data" / "exports"
INVALID = ("pd_for_list_stack", "tf_scan_ema", "ts_for_float_scalar_counter")
VALID = sorted(path.stem for path in EXPORTS.glob("*.onnx") if path.stem not in INVALID)

ADD = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, float[2] x) => (float[2] y, float[N, 2] ys) <float[2] s = {0.1, 0.3}> {
  [clock] y, ys = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
    co = Identity(c) w = Add(v, s) e = Identity(w) }> (n, , x) }"""
)
FEEDS = {"n": np.array(3), "x": np.array([1, 2], np.float32)}


def as_kind(kind: str, folder: Path) -> object:
    if kind == "path":
        onnx.save(ADD, folder / "m.onnx")
        return folder / "m.onnx"
    if kind == "ir":
        return ir.from_proto(ADD)
    if kind == "graphsurgeon":
        return pytest.importorskip("onnx_graphsurgeon").import_onnx(ADD)
    return ADD


@pytest.mark.parametrize("kind", ["proto", "path", "ir", "graphsurgeon"])
def test_every_kind_of_model(kind: str, tmp_path) -> None:
    model = as_kind(kind, tmp_path)
    lifted = looplift.optimize(model)
    assert type(lifted) is (onnx.ModelProto if kind == "path" else type(model))
    assert looplift.verify(model, lifted, cases=20)
    report = looplift.explain(model)
    assert [finding.lifted for finding in report] == [True]
    expected = looplift.Session(ADD).run(None, FEEDS)
    for each in (model, lifted):
        assert [out.tobytes() for out in looplift.Session(each).run(None, FEEDS)] == [o.tobytes() for o in expected]


def test_the_argument_is_not_changed() -> None:
    before = ADD.SerializeToString(deterministic=True)
    looplift.optimize(ADD)
    looplift.explain(ADD)
    assert ADD.SerializeToString(deterministic=True) == before
    model = ir.from_proto(ADD)
    looplift.optimize(model)
    assert [node.op_type for node in model.graph] == ["Loop"]


def test_a_model_without_loops_comes_out_equal_and_apart() -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float y) { y = Neg(x) }')
    model.graph.sparse_initializer.add().values.name = "kept as it is"
    model.training_info.add()
    out = looplift.optimize(model)
    assert out == model
    assert out is not model


@pytest.mark.parametrize("name", VALID)
def test_exports_keep_their_results(name: str) -> None:
    path = EXPORTS / f"{name}.onnx"
    lifted = looplift.optimize(path)
    onnx.checker.check_model(lifted, full_check=True)
    report = looplift.explain(path)
    original = onnx.load(path)
    assert len(report) == sum(1 for _ in loop_nodes(original))
    assert len(report.left) <= sum(1 for _ in loop_nodes(lifted))
    assert [port.name for port in lifted.graph.output] == [port.name for port in original.graph.output]
    assert [port.type for port in lifted.graph.input] == [port.type for port in original.graph.input]
    check = looplift.verify(path, lifted, cases=30)
    assert check, str(check)
    assert check.engines == ("interpreter", "ONNX Runtime")


def test_most_of_these_exports_are_lifted() -> None:
    lifted = [name for name in VALID if looplift.explain(EXPORTS / f"{name}.onnx").lifted]
    assert {"ts_for_addstep_list_stack", "jx_scan_addstep_noxs", "os_for_addstep", "sp_loop_addstep"} <= set(lifted)


@pytest.mark.parametrize("name", INVALID)
def test_loops_of_invalid_exports_are_explained(name: str) -> None:
    path = EXPORTS / f"{name}.onnx"
    report = looplift.explain(path)
    assert len(report) == sum(1 for _ in loop_nodes(onnx.load(path))) > 0
    assert not report.lifted
    assert all(finding.reason for finding in report)


def test_names_that_do_not_resolve_are_refused_in_one_line() -> None:
    with pytest.raises(looplift.LoopliftError, match=r"^[^\n]*array_write_[^\n]*which nothing makes[^\n]*$"):
        looplift.optimize(EXPORTS / "pd_for_list_stack.onnx")


@pytest.mark.parametrize("name", ["tf_scan_ema", "ts_for_float_scalar_counter"])
def test_loops_that_no_engine_takes_are_left(name: str) -> None:
    path = EXPORTS / f"{name}.onnx"
    before, after = ir.load(path), ir.from_proto(looplift.optimize(path))
    assert count_ops(after)["Loop"] == count_ops(before)["Loop"]
    with pytest.raises(looplift.LoopliftError, match=r"^[^\n]*$"):
        looplift.Session(path)


def test_a_node_that_breaks_its_schema_is_the_fault_of_the_model_and_a_broken_pass_ours(monkeypatch) -> None:
    from looplift import optimizer

    def broken(*_args, **_options):
        raise KeyError("to")

    monkeypatch.setattr(optimizer, "run_pipeline", broken)
    with pytest.raises(KeyError):
        looplift.optimize(ADD)
    model = onnx.ModelProto()
    model.CopyFrom(ADD)
    model.graph.node[0].attribute[0].g.node[0].op_type = "Cast"
    with pytest.raises(looplift.LoopliftError, match=r"^the model is not valid ONNX: [^\n]*to[^\n]*$"):
        looplift.optimize(model)
    assert "not valid ONNX" in looplift.explain(model).problem


@pytest.mark.parametrize("dtype", [-1, 99])
def test_a_sequence_of_no_element_type_is_the_fault_of_the_model(dtype: int) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, float[2] x) => (seq(float[2]) y) {{
  e = SequenceEmpty <dtype = {dtype}> ()
  y = Loop (n, "", e) <body = b (int64 i, bool c, seq(float[2]) p) => (bool d, seq(float[2]) q) {{
    d = Identity(c)
    q = SequenceInsert(p, x)
  }}>
}}"""
    )
    with pytest.raises(looplift.LoopliftError, match=r"^the model is not valid ONNX: [^\n]*$"):
        looplift.optimize(model)


def test_names_hidden_by_a_body_are_no_obstacle() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, float[2] x, float[2] s) => (float[2] y) {
  q = Neg(x)
  y = Loop <body = b (int64 n, bool q, float[2] x) => (bool qq, float[2] w) {
    qq = Identity(q) w = Add(x, s) }> (n, , q) }"""
    )
    lifted = looplift.optimize(model)
    assert looplift.verify(model, lifted, cases=20)
    assert [node.op_type for node in lifted.graph.node] == ["Neg", "AddStep"]


def test_a_lifted_model_comes_out_of_a_second_run_the_same() -> None:
    lifted = looplift.optimize(ADD)
    again = looplift.optimize(lifted)
    assert again.graph.node == lifted.graph.node
    assert again.functions == lifted.functions
    assert len(looplift.explain(lifted)) == 0
    assert looplift.verify(ADD, again, cases=10)


def test_unknown_target() -> None:
    with pytest.raises(looplift.LoopliftError, match=r"unknown target 'cuda'; use one of 'kernel'"):
        looplift.optimize(ADD, target="cuda")


def test_report_is_a_sequence_that_reads_as_text_and_json() -> None:
    report = looplift.explain(ADD)
    assert len(report) == 1
    assert report[0].node == "clock"
    assert report[:1] == (report[0],)
    assert list(report) == [report[0]]
    text = str(report)
    assert text.startswith("the model: 1 of 1 loop lifted\n  Loop clock: lifted\n")
    assert max(map(len, text.splitlines())) <= 120
    told = json.loads(report.to_json())
    assert told["findings"][0]["path"] == "/"
    assert told["lifted"] == 1


def test_report_of_loops_that_stay_gives_the_reason() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(ADD)
    for node in model.graph.node[0].attribute[0].g.node:
        if node.op_type == "Add":
            node.op_type = "Pow"
    report = looplift.explain(model)
    assert [finding.lifted for finding in report] == [False]
    assert report.left[0].reason
    assert f"reason: {report.left[0].reason}"[:40] in str(report)

"""Kernel packages: the layout is checked, nothing in a manifest is ignored, the shipped ones pass their own tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import looplift.runtime.ops
from looplift.runtime.errors import LoopliftError
from looplift.runtime.ops import all_ops
from looplift.runtime.webgpu import DeviceTensor, check_package, update_digests
from looplift.runtime.webgpu.launch import run_package
from looplift.runtime.webgpu.packages.expressions import evaluate, evaluate_int, evaluate_shape
from looplift.runtime.webgpu.packages.package import load_package, package_of

FOLDERS = sorted(Path(looplift.runtime.ops.__path__[0]).glob("*/build/webgpu"))


@pytest.fixture
def copy(tmp_path):
    """A copy of AddStep's package, and a function that edits one of its JSON files."""
    folder = tmp_path / "webgpu"
    shutil.copytree(FOLDERS[0], folder)

    def edit(change, name="manifest.json"):
        path = folder / name
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        return folder

    return edit


def test_every_op_has_a_package():
    assert len(FOLDERS) == len(all_ops())
    assert {package_of(op.package).manifest.name for op in all_ops().values()} == set(all_ops())


@pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)
def test_the_manifest_has_the_ports_of_the_schema(op):
    manifest = package_of(op.package).manifest
    assert [port.onnx for port in manifest.inputs.values()] == [port.name for port in op.schema.inputs]
    assert [port.onnx for port in manifest.outputs.values()] == [port.name for port in op.schema.outputs]
    assert set(manifest.attributes) == set(op.schema.attributes)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parts[-3])
def test_shipped_packages_pass_their_own_tests(device, folder):
    check = check_package(folder, device)
    assert check.problem == ""
    assert check.cases > 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(author="me"), "unknown key 'author'"),
        (lambda m: m["inputs"]["m"].update(type="u32"), r"inputs\.m: unknown key 'type'"),
        (lambda m: m["variants"][0].update(shader="x"), r"variants\[0\]: unknown key 'shader'"),
        (lambda m: m["variants"][0]["passes"][0].update(group=1), r"passes\[0\]: unknown key 'group'"),
        (lambda m: m["bindings"]["m"].update(acess="read"), r"bindings\.m: unknown key 'acess'"),
        (lambda m: m.pop("domain"), "key 'domain' is missing"),
        (lambda m: m.update(sinceVersion="1"), r"sinceVersion: '1' is not a int"),
        (lambda m: m["bindings"]["m"].update(access="write"), r"access: 'write' is not"),
        (lambda m: m["bindings"]["m"].update(port="n"), "binding 'm' names no port: 'n'"),
        (lambda m: m["bindings"]["m"].update(scratch=4), "exactly one of port, scratch, uniform"),
        (lambda m: m["variants"][0]["passes"][0]["bindings"].append("table"), "names no binding: 'table'"),
        (lambda m: m["variants"][0]["passes"][0]["dispatch"].update(x=1), "dispatch needs"),
    ],
)
def test_a_manifest_that_is_wrong_is_refused(copy, change, message):
    with pytest.raises(LoopliftError, match=message):
        load_package(copy(change))


def test_a_manifest_that_is_not_json_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(LoopliftError, match="not a readable JSON file"):
        load_package(tmp_path)


class TestCheck:
    def test_a_changed_file_is_found(self, device, copy):
        folder = copy(lambda content: content["cases"].pop(), "test.json")
        assert "test.json has changed" in check_package(folder, device).problem
        update_digests(folder)
        assert check_package(folder, device).problem == ""

    def test_a_file_that_is_not_listed_is_found(self, device, copy):
        folder = copy(lambda content: None)
        update_digests(folder)
        (folder / "more.wgsl.jinja").write_text("")
        assert "more.wgsl.jinja is not listed" in check_package(folder, device).problem

    def test_a_wrong_result_is_found(self, device, copy):
        def change(content):
            content["cases"][0]["outputs"]["v_final"]["data"]["values"][1] = 1e-30

        folder = copy(change, "test.json")
        update_digests(folder)
        assert "case 'one step': output 'v_final' is wrong" in check_package(folder, device).problem

    def test_cases_marked_so_are_skipped(self, device, copy):
        folder = copy(lambda content: content["cases"][0].update(skipGpu=True), "test.json")
        update_digests(folder)
        assert check_package(folder, device).skipped == 1

    def test_a_shader_that_does_not_compile_is_told(self, device, copy):
        folder = copy(lambda content: None)
        (folder / "runs.wgsl.jinja").write_text("fn main() { nonsense }")
        update_digests(folder)
        assert "failed while compiling" in check_package(folder, device).problem

    def test_a_template_with_an_unknown_name_is_told(self, device, copy):
        folder = copy(lambda content: None)
        (folder / "runs.wgsl.jinja").write_text("{{ nothing.at_all }}")
        update_digests(folder)
        assert "'nothing' is undefined" in check_package(folder, device).problem


class TestRunPackage:
    def run(self, device, inputs=None, outputs=None, attributes=None, tunables=None):
        given = {"m": np.array(2, np.uint32), "cond": np.array(True)}
        given |= {"v_initial": np.ones(3, np.float32), "step": np.ones(3, np.float32), **(inputs or {})}
        tensors = {name: DeviceTensor.upload(device, value) for name, value in given.items() if value is not None}
        package = package_of("looplift.runtime.ops.add_step")
        return run_package(package, device, tensors, outputs or {"v_final": None}, attributes, tunables)

    @pytest.mark.parametrize(
        ("case", "message"),
        [
            ({"inputs": {"step": None}}, "input 'step' is missing"),
            ({"inputs": {"x": np.ones(3)}}, "no tensor 'x'"),
            ({"inputs": {"m": np.array(2)}}, "'m' is int64, not uint32"),
            ({"inputs": {"step": np.ones(3)}}, "'step' is float64, not float32"),
            ({"inputs": {"v_initial": np.ones((3, 1), np.float32)}}, "'v_initial' has rank 2, not 1"),
            ({"outputs": {"v_final": (4,)}}, r"output 'v_final' has shape \(3,\), not \(4,\)"),
            ({"outputs": {"scan_output": None}}, "caller must give the shape of output 'scan_output'"),
            ({"outputs": {"last": None}}, "no output 'last'"),
            ({"attributes": {"previous": 1}}, "no attribute 'previous'"),
            ({"tunables": {"speed": 1}}, "no tunable 'speed'"),
        ],
    )
    def test_refuses_what_the_manifest_does_not_allow(self, device, case, message):
        with pytest.raises(LoopliftError, match=message):
            self.run(device, **case)

    def test_runs(self, device):
        assert self.run(device)["v_final"].numpy().tolist() == [3, 3, 3]


SCOPE = {"shapes": {"x": (2, 3)}, "derive": {"n": 7}}


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("numel(shapes.x)", 6),
            ("ceilDiv(derive.n, 2)", 4),
            ("min(derive.n, 5) + max(1, 2) + gcd(12, 18)", 13),
            ("bitWidth('bfloat16') + bitWidth('uint8') + bitWidth('bool')", 56),
            ("shapes.x[0] == 2 and derive.n > 3", True),
            (3, 3),
        ],
    )
    def test_values(self, expression, value):
        assert evaluate(expression, SCOPE) == value

    @pytest.mark.parametrize("expression", ["missing", "shapes.y", "shapes.y[0]", "1 +", "derive.n // 0"])
    def test_what_has_no_value_is_an_error(self, expression):
        with pytest.raises(LoopliftError, match="has no value"):
            evaluate(expression, SCOPE)

    def test_kinds_are_checked(self):
        with pytest.raises(LoopliftError, match="not a whole number"):
            evaluate_int("derive.n / 2", SCOPE)
        with pytest.raises(LoopliftError, match="not a shape"):
            evaluate_shape("derive.n", SCOPE)

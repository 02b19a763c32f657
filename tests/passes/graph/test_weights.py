"""Constant operands of products whose loop gets one graph deeper."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import looplift
from looplift.passes import run_pipeline
from looplift.passes.graph.last_bits import MARK
from looplift.passes.targets.loop_to_scan import LoopToScan
from tests.helpers import apply, assert_same, find, model, ops

LOOP = """main (int64 M, float[n,1,4] x, float[1,7] v{inputs}) => (float[1,7] y, float[k,1,7] z{outputs}) {{
    {constants}
    y, z = Loop (M, , v) <body = b (int64 i, bool c, float[1,7] p) => (bool d, float[1,7] q, float[1,7] r) {{
        d = Identity (c) row = Gather (x, i) g = {product} h = Tanh (g) q = Add (h, p) r = Identity (q) }}>
    {more}
}}"""
GEMM = "Gemm <transB = 1> (row, w, b)"


def loop(product: str = GEMM, *, inputs: str = "", outputs: str = "", constants: str = "", more: str = "") -> ir.Model:
    """A loop over rows that multiplies each by a weight; initializers unless `constants` says otherwise."""
    text = LOOP.format(product=product, inputs=inputs, outputs=outputs, constants=constants, more=more)
    subject = model(text)
    if not constants:
        shapes = {"w": (7, 4) if "Gemm" in product else (4, 7), "b": (7,)}
        for name, shape in shapes.items():
            if f", {name}" in product:
                _give(subject, name, np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    return subject


def _give(subject: ir.Model, name: str, array: np.ndarray) -> None:
    """Makes an initializer of what a text reads without making it."""
    readers = [
        (n, k) for n in subject.graph.all_nodes() for k, x in enumerate(n.inputs) if x is not None and x.name == name
    ]
    known = {value.name: value for value in (*subject.graph.inputs, *subject.graph.outputs)}
    value = known.get(name) or ir.Value(name=name)
    value.const_value = ir.tensor(array, name=name)
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
    subject.graph.register_initializer(value)
    for node, k in readers:
        node.replace_input_with(k, value)


def feeds(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    drawn = {"x": random.standard_normal((5, 1, 4)), "v": random.standard_normal((1, 7))}
    return {name: array.astype(np.float32) for name, array in drawn.items()} | {"M": np.array(rows)}


def branch_of(after: ir.Model) -> ir.Graph:
    return find(after, "If").attributes["then_branch"].as_graph()


@pytest.mark.parametrize("product", [GEMM, "MatMul (row, w)"])
def test_weights_stay_near_their_products(product):
    """Without that, ONNX Runtime multiplies the single rows by another kernel, with other last bits."""
    before = loop(product)
    after = apply(before, LoopToScan())
    assert set(branch_of(after).initializers) == set(before.graph.initializers)
    assert not after.graph.initializers
    for rows in (0, 1, 5):
        assert_same(before, after, feeds(rows))


def test_constants_do_too():
    numbers = ", ".join(f"{x:.3f}" for x in np.random.default_rng(3).standard_normal(28))
    before = loop("MatMul (row, w)", constants=f"w = Constant <value = float[4,7] {{{numbers}}}> ()")
    after = apply(before, LoopToScan())
    assert "Constant" in [node.op_type for node in branch_of(after)]
    for rows in (0, 1, 5):
        assert_same(before, after, feeds(rows))


@pytest.mark.parametrize(
    ("inputs", "outputs", "more"),
    [
        (", float[4,7] w", "", ""),
        ("", ", float[4,7] w", ""),
        ("", ", float[4,7] also", "also = Neg (w)"),
    ],
    ids=["a default of an input", "an output", "read elsewhere"],
)
def test_what_others_see_stays(inputs, outputs, more):
    before = loop("MatMul (row, w)", inputs=inputs, outputs=outputs, more=more)
    after = apply(before, LoopToScan())
    assert "w" in after.graph.initializers
    assert (MARK in find(after, "MatMul").metadata_props) == (not inputs), "a default may be overridden: never packed"
    assert looplift.verify(before, after, cases=8).counterexample is None


def test_products_by_computed_constants_are_marked():
    """An engine may fold them when it loads the model; then they are constants too far out, so such a loop stays one."""
    text = LOOP.replace("q = Add (h, p)", "m = Mul (p, p) q = Sub (h, m)")  # no recurrence that would be lifted
    subject = model(
        text.format(product="MatMul (row, t)", inputs="", outputs="", constants="t = Transpose (w)", more="")
    )
    _give(subject, "w", np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32))
    careless, _ = run_pipeline(subject, exact=False)
    assert find(careless, "MatMul").metadata_props[MARK] == "products"
    after, _ = run_pipeline(subject)
    assert "Scan" not in ops(after.graph)
    assert MARK not in find(after, "MatMul").metadata_props


def test_products_by_what_is_not_constant_are_not_marked():
    subject = model(LOOP.format(product="MatMul (row, w)", inputs=", float[4,7] w", outputs="", constants="", more=""))
    after = apply(subject, LoopToScan())
    assert MARK not in find(after, "MatMul").metadata_props


def test_external_data_stays(tmp_path):
    before = loop("MatMul (row, w)")
    array = before.graph.initializers["w"].const_value.numpy()
    (tmp_path / "w.bin").write_bytes(array.tobytes())
    before.graph.initializers["w"].const_value = ir.ExternalTensor(
        "w.bin", 0, array.nbytes, ir.DataType.FLOAT, shape=ir.Shape(array.shape), name="w", base_dir=str(tmp_path)
    )
    work = before.clone()
    from looplift.passes.journal import Journal

    assert LoopToScan()(work, Journal.begin(work))
    assert "w" in work.graph.initializers


def test_weights_from_further_out_stay_there():
    """They were not packed before."""
    text = """main (int64 M, bool on, float[n,1,4] x, float[1,7] v) => (float[1,7] y) {
        y = If (on) <
          then_branch = t () => (float[1,7] y1) {
            y1 = Loop (M, , v) <body = b (int64 i, bool c, float[1,7] p) => (bool d, float[1,7] q) {
                d = Identity (c) row = Gather (x, i) g = MatMul (row, w) h = Tanh (g) q = Add (h, p) }>
          },
          else_branch = e () => (float[1,7] y2) { y2 = Identity (v) }
        >
    }"""
    before = model(text)
    _give(before, "w", np.random.default_rng(1).standard_normal((4, 7)).astype(np.float32))
    after = apply(before, LoopToScan())
    assert "w" in after.graph.initializers
    for rows in (0, 1, 5):
        assert_same(before, after, feeds(rows) | {"on": np.array(True)})

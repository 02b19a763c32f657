"""`looplift.rules` among somebody else's rewrite rules."""

import subprocess
import sys

import onnx
import onnx.parser
import onnx_ir as ir
from onnxscript.rewriter import RewriteRuleSet, pattern

import looplift

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, float[2] x, float[2] s) => (float[2] y) {
  once = Neg(x)
  twice = Neg(once)
  last, all = Loop <body = b (int64 i, bool c, float[2] v) => (bool co, float[2] w, float[2] e) {
    co = Identity(c) w = Add(v, s) e = Identity(w) }> (n, , twice)
  y = Relu(last)
}"""


class NegTwice(pattern.RewriteRuleClassBase):
    """A rule of someone who knows nothing of loops."""

    def pattern(self, op, x):
        return op.Neg(op.Neg(x))

    def rewrite(self, op, x):
        return op.Identity(x)


def test_rules_in_a_rule_set_of_others() -> None:
    original = onnx.parser.parse_model(MODEL)
    model = ir.from_proto(original)
    assert RewriteRuleSet([NegTwice.rule(), *looplift.rules()]).apply_to_model(model) == 2
    assert [node.op_type for node in model.graph] == ["Identity", "AddStep", "Relu"]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert looplift.verify(original, model, cases=12)


def test_a_loop_that_is_no_recurrence_is_left() -> None:
    model = ir.from_proto(onnx.parser.parse_model(MODEL.replace("Add(v, s)", "Max(v, s)")))
    assert RewriteRuleSet([*looplift.rules()]).apply_to_model(model) == 0
    assert [node.op_type for node in model.graph] == ["Neg", "Neg", "Loop", "Relu"]


def test_importing_looplift_does_not_load_onnxscript() -> None:
    code = "import sys, looplift, looplift.cli; print('onnxscript' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "False"


def test_what_a_model_declares_is_no_proof_for_a_rule() -> None:
    """A running sum is lifted where the row has the state's shape for certain, not where the model only says so."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (int64 n, float[1] x, float[K,SIZE] rows) => (float[?] last) <float[K,1] read> {
      read = Relu(rows)
      last = Loop <body = b (int64 i, bool c, float[?] v) => (bool co, float[?] w) {
        co = Identity(c) row = Gather(read, i) w = Add(v, row) }> (n, , x)
    }"""
    for size, lifted in (("1", 1), ("3", 0), ("S", 0)):
        model = ir.from_proto(onnx.parser.parse_model(text.replace("SIZE", size)))
        assert RewriteRuleSet([*looplift.rules()]).apply_to_model(model) == lifted, size

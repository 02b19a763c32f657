"""onnx's own node tests: those with Loop, Scan or SequenceMap, before and after their functions are inlined.

An engine's own rounding is allowed for as the tests themselves say (rtol, atol).
"""

import functools
import importlib
import warnings

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx.backend.test.loader import load_model_tests

from looplift.runtime import LoopliftError, Session

CONTROL_FLOW = {"Loop", "Scan", "SequenceMap"}
WINDOWS = {f"test_{name}window{kind}" for name in ("blackman", "hamming", "hann") for kind in ("", "_symmetric")}


def holds_control_flow(nodes) -> bool:
    return any(
        node.op_type in CONTROL_FLOW or any(holds_control_flow(attr.g.node) for attr in node.attribute)
        for node in nodes
    )


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with the standard's own functions inlined; None where onnx's inliner gives up."""
    try:
        return onnx.inliner.inline_selected_functions(proto, [], exclude=True, inline_schema_functions=True)
    except Exception:
        return None


@functools.cache
def node_tests():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_model_tests(kind="node")


@functools.cache
def direct_cases():
    """The tests that have a loop as they are; only these modules make some, and making all takes half a minute."""
    for name in ("linear_attention", "loop", "rangeop", "scan", "sequence_map"):
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
    made = importlib.import_module("onnx.backend.test.case.node")._NodeTestCases
    return [test for test in made if holds_control_flow(test.model.graph.node)]


def inlined_cases():
    """Tests that get a loop by inlining; an expanded test is the same as inlining the plain one."""
    plain = [t for t in node_tests() if not t.name.endswith("_expanded") and not holds_control_flow(t.model.graph.node)]
    with_functions = [t for t in plain if any(_may_expand(t.model, node) for node in t.model.graph.node)]
    models = [(t, inlined(t.model)) for t in with_functions]
    return [(t, m) for t, m in models if m is not None and holds_control_flow(m.graph.node)]


def _may_expand(proto: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
    return schema.has_function or schema.has_context_dependent_function


def assert_close(got, want, rtol, atol) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, rtol, atol)
    elif want is None:
        assert got is None
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype.kind in "fV":
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=rtol, atol=max(atol, 1e-6))
        else:
            assert got.tolist() == want.tolist()


def array(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def check(test, proto: onnx.ModelProto) -> None:
    session = Session(proto, "numpy")
    for inputs, outputs in test.data_sets:
        feeds = {info.name: array(value) for info, value in zip(proto.graph.input, inputs, strict=False)}
        for got, want in zip(session.run(None, feeds), map(array, outputs), strict=True):
            assert_close(got, want, test.rtol, test.atol)


def test_with_control_flow():
    cases = direct_cases()
    assert len(cases) >= 31
    for test in cases:
        check(test, test.model)


@pytest.mark.slow
def test_with_control_flow_after_inlining():
    cases = inlined_cases()
    assert len(cases) >= 40
    for test, proto in cases:
        if test.name in WINDOWS:  # the inliner drops the defaults of their attributes
            with pytest.raises(LoopliftError):
                Session(proto, "numpy")
        else:
            check(test, proto)


@pytest.mark.slow
def test_every_node_test():
    failures = []
    assert {t.name for t in node_tests() if holds_control_flow(t.model.graph.node)} == {t.name for t in direct_cases()}
    for test in node_tests():
        if "bernoulli" in test.name:  # random
            continue
        try:
            check(test, test.model)
        except Exception as error:
            failures.append(f"{test.name}: {error}")
    assert failures == []

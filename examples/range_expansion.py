"""Lifts the loop that the standard's own definition of Range is made of.

    python examples/range_expansion.py

ONNX defines Range by a function whose body is a Loop. Engines without a Range kernel run that loop; the test suite of
onnx has it as a model, with data and expected outputs.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from onnx.backend.test.case.node import collect_testcases

import looplift

NAME = "test_range_float_type_positive_delta_expanded"


def main() -> int:
    """Prints the report and the result for the test's data; returns 1 if it differs from what the test expects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes the data of all its cases, infinities included
        case = next(case for case in collect_testcases("Range") if case.name == NAME)
    original = case.model
    (inputs, (expected,)), *_ = case.data_sets

    lifted = looplift.optimize(original)
    print(looplift.explain(original))
    print(f"\nverify: {looplift.verify(original, lifted)}")

    feeds = {port.name: np.asarray(value) for port, value in zip(original.graph.input, inputs, strict=True)}
    (result,) = looplift.Session(lifted).run(None, feeds)
    print(f"\nRange({', '.join(str(value) for value in inputs)}) = {result}, the suite expects {expected}")
    return 0 if np.array_equal(result, expected) else 1


if __name__ == "__main__":
    sys.exit(main())

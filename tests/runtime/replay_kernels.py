"""Runs pickled models in the ONNX Runtime of whatever Python runs this: alone, since looplift is not installed there.

Arguments: the library of kernels and the file of cases, each a serialized model, its inputs, and the outputs as they must
be. Prints the version and how many models ran.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Same type, shape and bits; any NaN equals any other."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    bits = [np.where(a != a, 0, np.ascontiguousarray(a).view(f"u{a.itemsize}").reshape(a.shape)) for a in (left, right)]
    return np.array_equal(*bits) and np.array_equal(left != left, right != right)


def main(library: str, file: str) -> None:
    """Raises:
    SystemExit: a result differs.
    """
    done = 0
    for model, feeds, expected in pickle.loads(Path(file).read_bytes()):
        for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
            options.register_custom_ops_library(library)
            got = onnxruntime.InferenceSession(model, options).run(None, feeds)
            if not all(same(one, other) for one, other in zip(got, expected, strict=True)):
                raise SystemExit(f"case {done} differs in {onnxruntime.__version__}, {level}")
        done += 1
    print(onnxruntime.__version__, done)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A pytest plugin (``-p golden.collect``) that keeps every model that a test gives the pipeline.

The models go into the folder that the environment variable ``LOOPLIFT_COLLECT`` names, each under its digest. Those
that hypothesis makes are left out: they are others in every run.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import hypothesis
import onnx_ir as ir

import looplift.passes
from looplift.passes import pipeline

LARGEST = 2**20
"""Bytes. Larger models test the storage, not the passes."""

_run_pipeline = pipeline.run_pipeline


def _run_and_keep(model: ir.Model, **options: object) -> object:
    if not hypothesis.currently_in_test_context():
        _keep(model, Path(os.environ["LOOPLIFT_COLLECT"]))
    return _run_pipeline(model, **options)


def _keep(model: ir.Model, folder: Path) -> None:
    if any(isinstance(value.const_value, ir.ExternalTensor) for value in model.graph.initializers.values()):
        return
    data = ir.to_proto(model).SerializeToString(deterministic=True)
    if len(data) <= LARGEST:
        file = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.onnx"
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.replace(file)


looplift.passes.run_pipeline = pipeline.run_pipeline = _run_and_keep

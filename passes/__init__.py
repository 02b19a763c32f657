"""Graph to graph: one pass a file, and the pipeline that orders them."""

from looplift.passes.pipeline import run_pipeline
from looplift.passes.report import Finding

__all__ = ["Finding", "run_pipeline"]

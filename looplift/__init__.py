"""Lifts ONNX loops into kernels, and proves it."""

"""Kernels of the ops of domain ``ai.looplift`` for ONNX Runtime: a library in C, its sources and what compiles them.

It is not imported by ONNX Runtime's name and needs no Python: whatever loads a library of custom ops loads it.
"""

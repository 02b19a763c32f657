"""ONNX Runtime (CPU). May it round differently there? `ties`, `placement` and `kernels` say, and `quirks` lists why."""

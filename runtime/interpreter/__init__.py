"""Turns an ONNX model into straight-line Python and runs it: the reference interpreter.

``program`` plans a model and emits Python source, one function for each graph; ``control_flow`` emits Loop, Scan, If
and SequenceMap; ``numpy_forms`` knows the ops that are one numpy expression; ``reference`` wraps onnx's reference
implementations for all other ops. ``loops``, ``scans``, ``values`` and ``own_ops`` are called by the emitted code.
"""

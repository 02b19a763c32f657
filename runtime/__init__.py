"""Executes a graph: session, control-flow interpreter, devices (numpy, webgpu)."""

"""Executes a graph: session, control-flow interpreter, devices (numpy, webgpu)."""

from looplift.runtime.errors import LoopliftError
from looplift.runtime.session import Session, ValueInfo

__all__ = ["LoopliftError", "Session", "ValueInfo"]

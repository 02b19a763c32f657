"""PrefixSum: ``v = v + x[t]`` over time."""

from __future__ import annotations

from looplift.runtime.ops import Op
from looplift.runtime.ops.prefix_sum.definition import definition
from looplift.runtime.ops.prefix_sum.numpy_kernel import prefix_sum
from looplift.runtime.ops.prefix_sum.schema import SCHEMA

OP = Op(name="PrefixSum", schema=SCHEMA, definition=definition, numpy=prefix_sum, package=__name__)

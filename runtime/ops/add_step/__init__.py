"""AddStep: ``v = v + step``, M times."""

from __future__ import annotations

from looplift.runtime.ops import Op
from looplift.runtime.ops.add_step.definition import definition
from looplift.runtime.ops.add_step.numpy_kernel import add_step
from looplift.runtime.ops.add_step.schema import SCHEMA

OP = Op(name="AddStep", schema=SCHEMA, definition=definition, numpy=add_step, package=__name__)

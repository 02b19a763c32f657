"""LinearRecurrence: ``v = a[t] * v + b[t]`` over time."""

from __future__ import annotations

from looplift.runtime.ops import Op
from looplift.runtime.ops.linear_recurrence.definition import definition
from looplift.runtime.ops.linear_recurrence.numpy_kernel import linear_recurrence
from looplift.runtime.ops.linear_recurrence.schema import SCHEMA

OP = Op(name="LinearRecurrence", schema=SCHEMA, definition=definition, numpy=linear_recurrence, package=__name__)

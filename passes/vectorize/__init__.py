"""A loop's body computed for all iterations at once, outside the loop.

A body value that varies becomes a *stack*: a tensor with a leading time axis (and, for Scan-8, a batch axis behind
it). Each operator has one rule that says how it acts on stacks; a rule keeps the operator and so its rounding,
and changes axes only. What has no rule, or whose conditions can't be shown, is refused with the operator's name.
"""

from looplift.passes.vectorize.context import OverTime

__all__ = ["OverTime"]

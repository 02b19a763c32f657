"""All rules by operator."""

from __future__ import annotations

from looplift.passes.over_time import axes, elementwise, growing, indexing, products, recurrences
from looplift.passes.over_time.context import Rule

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **axes.RULES,
    **growing.RULES,
    **indexing.RULES,
    **products.RULES,
    **recurrences.RULES,
}

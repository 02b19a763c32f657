"""All rules by operator."""

from __future__ import annotations

from looplift.passes.vectorize import axes, elementwise, growing, indexing, products, recurrences
from looplift.passes.vectorize.context import Rule

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **axes.RULES,
    **growing.RULES,
    **indexing.RULES,
    **products.RULES,
    **recurrences.RULES,
}

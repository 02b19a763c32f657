"""What a device does where WGSL leaves it open, as data: the self-test measures it, planners ask for it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """What one device's f32 arithmetic and loops do.

    Attributes:
        adds_to_nearest_even: sums of normal numbers whose result is normal or zero are IEEE 754's, ties included.
        multiplies_to_nearest_even: the same of products.
        keeps_subnormals: subnormal operands and sums are not flushed to zero.
        fuses_multiply_add: ``x * y + z`` as written is rounded once, not twice.
        splits_multiply_add: it is rounded twice where an integer operation stands between product and sum.
        loop_limit: rounds after which the driver silently ends a loop; None if it ran all it was asked for.
    """

    adds_to_nearest_even: bool
    multiplies_to_nearest_even: bool
    keeps_subnormals: bool
    fuses_multiply_add: bool
    splits_multiply_add: bool
    loop_limit: int | None

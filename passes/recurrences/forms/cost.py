"""When which form is faster, by measurement (``benchmarks/lowering_costs.py``).

Microseconds in ONNX Runtime 1.32, CPU, 2 cores; N iterations on a state of D floats.

| stacked states, D x N | Loop | Scan | CumSum | last state only | Loop | Scan | CumSum |
|---|---|---|---|---|---|---|---|
| 1 x 10,000 | 84,522 | 58,254 | 207 | | 44,113 | 14,779 | 153 |
| 16 x 10,000 | 66,566 | 45,487 | 352 | | 33,847 | 22,245 | 286 |
| 64 x 10,000 | 45,062 | 20,660 | 1,117 | | 34,484 | 10,703 | 903 |
| 256 x 3,000 | 7,311 | 3,109 | 969 | | 3,254 | 2,085 | 1,089 |
| 1,024 x 1,000 | 2,904 | 1,584 | 1,318 | | 1,265 | 844 | 894 |
| 4,096 x 300 | 1,519 | 1,055 | 1,451 | | 553 | 435 | 955 |
| 65,536 x 30 | 2,440 | 1,339 | 3,335 | | 543 | 513 | 3,098 |
"""

from __future__ import annotations

WIDEST_SUM = 1024
"""Elements of a state up to which CumSum is faster than a Scan, where its rows are wanted.

A state whose size is not known is taken to be narrow: the result then needs no loop. At worst it is as the last row.
"""

WIDEST_SUM_FOR_LAST = 64
"""The same where only the last state is wanted: CumSum then needs memory for all of them, a loop for one.

A state whose size is not known is measured when the model runs.
"""

WIDEST_COPIED = 64
"""Elements of a state up to which rows are cut from the sum of all states: a copy, and fewer nodes."""

SCAN_ITERATION, LOOP_ITERATION = 1.5, 4.5
"""What an iteration of a Scan or Loop costs besides its operators, in operators.

On 4 floats an operator takes 0.3 microseconds, a Scan 0.5 and a Loop 1.4 around each iteration.
"""

UNROLLED = 16
"""Iterations up to which a loop is written out where CumSum is not at hand: no slower, and no loop is left."""

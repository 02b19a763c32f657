"""When which form is faster, by measurement (``benchmarks/lowering_costs.py``).

Microseconds in ONNX Runtime 1.32, CPU, 2 cores; N iterations on a state of D floats.

| stacked states, D x N | Loop | Scan | CumSum | final state only | Loop | Scan | CumSum |
|---|---|---|---|---|---|---|---|
| 1 x 10,000 | 45,723 | 20,904 | 50 | | 15,369 | 7,110 | 45 |
| 64 x 10,000 | 27,224 | 14,036 | 506 | | 11,022 | 7,083 | 490 |
| 1,024 x 1,000 | 2,248 | 1,155 | 819 | | 1,279 | 908 | 806 |
| 4,096 x 300 | 1,276 | 668 | 1,059 | | 594 | 476 | 1,028 |
| 65,536 x 30 | 1,388 | 724 | 1,890 | | 432 | 403 | 1,732 |
"""

from __future__ import annotations

WIDEST_SUM = 1024
"""Elements of a state up to which CumSum is faster than a Scan, where its rows are wanted.

A state whose size is not known is taken to be narrow: the result then needs no loop, at worst 0.5 times the speed.
"""

WIDEST_SUM_FOR_LAST = 64
"""The same where only the last state is wanted: CumSum then needs memory for all of them, a loop for one.

A state whose size is not known is measured when the model runs.
"""

UNROLLED = 16
"""Iterations up to which a loop is written out where CumSum is not at hand: no slower, and no loop is left."""

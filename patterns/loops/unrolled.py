"""Where a model has no loop although its author wrote one: what stands in its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LONGEST = 256
"""Operators of one copy."""

FEWEST = 4
"""Copies."""

_COPIES = frozenset({"Constant", "Identity"})
_SERIES = ("LSTM", "GRU", "RNN", "SequenceMap")


def instead_of_loops(op_types: Sequence[str]) -> str:
    """What of a graph without loops may be one, in words; empty if nothing is.

    Args:
        op_types: of its nodes, in order.
    """
    told = [f"{op_types.count(op)} {op}" for op in _SERIES if op in op_types]
    length, times = repeated([op for op in op_types if op not in _COPIES])
    if times:
        told.append(f"the same {length} operators {times} times over: layers, or a loop that the exporter unrolled")
    return "; ".join(told)


def repeated(op_types: Sequence[str]) -> tuple[int, int]:
    """The longest stretch of copies of one sequence of operators: how many these are, and how often they stand there.

    (0, 0) where there are fewer than `FEWEST` copies, or none of at least two different operators.
    """
    names = {name: k for k, name in enumerate(dict.fromkeys(op_types))}
    codes = np.array([names[name] for name in op_types], np.int32)
    best = (0, 0)
    for length in range(2, min(LONGEST, len(codes) // FEWEST) + 1):
        same = np.concatenate([[False], codes[length:] == codes[:-length], [False]])
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        begins, ends = edges[::2], edges[1::2]
        if not len(begins):
            continue
        widest = int(np.argmax(ends - begins))
        times = int(ends[widest] - begins[widest]) // length + 1
        block = codes[begins[widest] : begins[widest] + length]
        if times >= FEWEST and len(set(block.tolist())) > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best

"""`verify`: runs the original and the rewritten model on the same inputs and compares bit for bit."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from looplift import interop
from looplift.checking.compare import Value
from looplift.checking.engines import Pair, has_onnxruntime
from looplift.checking.inputs import Case, Feeds, generate
from looplift.checking.outcome import Check
from looplift.checking.pairs import LONGEST_RUN, interpreter_pair, onnxruntime_pair
from looplift.checking.tally import Tally
from looplift.passes.over_time.last_bits import marks
from looplift.runtime.errors import LoopliftError


def verify(
    original: interop.ModelLike,
    model: interop.ModelLike,
    inputs: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    *,
    cases: int = 48,
    seed: int = 0,
    seconds: float = 60.0,
    ulp: int = 0,
    device: str = "numpy",
    onnxruntime: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Compares two models on inputs given and made up.

    Each case runs in our interpreter (the original; the rewritten with our kernels; the rewritten with our ops'
    definitions) and in ONNX Runtime (both models). An original with ops that one of the two does not know runs in the
    other alone, and a note says so. Results count as equal if dtype, shape and bits are; any NaN equals any NaN. If
    both models fail on an input, they agree.

    Args:
        original: a model of any kind.
        model: the rewritten one, with inputs and outputs of the same names.
        inputs: one set of inputs, or several; they are checked first.
        cases: how many sets are made up besides: all trip counts of -1, 0, 1, 2, 17 and 300, sizes of unknown dims
            from 0 to 17, special floats, halfway cases, random bits.
        seed: the made-up inputs follow from it.
        seconds: no further case begins after this time; the first always runs.
        ulp: elements may be so many units in the last place apart (for a model rewritten with ``exact=False``).
            Where a lifted model computes sums (MatMul, ReduceSum) for all iterations at once, or in ONNX Runtime
            functions such as Log, the last bits may differ without it, and a note says so: the engine, not the
            rewrite, decides in which order it adds, and how it rounds a function where in a tensor.
        device: ``"webgpu"`` runs the kernels there too.
        onnxruntime: also use ONNX Runtime; None: if it is installed.
        progress: called with the number of cases done and the number to do.

    Returns:
        A `Check`.

    Raises:
        LoopliftError: a model is refused, no engine takes the original, the two have different inputs or outputs, or
            the device is not there.
    """
    sources = interop.read(original), interop.read(model)
    for source in sources:
        source.require_data()
    models = interop.to_ir(sources[0]), interop.to_ir(sources[1])
    _require_same_ports(*models)
    given = [inputs] if isinstance(inputs, Mapping) else list(inputs or ())
    generated = itertools.islice(generate(models[0], seed=seed), cases)
    todo = itertools.chain((Case(f"given case {k}", _arrays(feeds)) for k, feeds in enumerate(given)), generated)
    outputs = [value.name or "" for value in models[0].graph.outputs]
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        tally = Tally(outputs, ulp, marks(models[1]))
        pairs = list(interpreter_pair(models, device, min(seconds, LONGEST_RUN), tally))
        if onnxruntime or (onnxruntime is None and has_onnxruntime()):
            pairs += onnxruntime_pair(sources, models, seconds, tally, stack)
        if not pairs and tally.agrees:
            raise LoopliftError(f"nothing can be compared: {'; '.join(tally.notes())}")
        for done, case in enumerate(todo):
            if done and time.monotonic() > deadline:
                tally.note(f"stopped after {done} of {len(given) + cases} cases: {seconds:.0f} s are over")
                break
            if progress is not None:
                progress(done, len(given) + cases)
            _run_case(case, pairs, tally)
    return tally.check()


def _run_case(case: Case, pairs: Sequence[Pair], tally: Tally) -> None:
    """Runs one case in every engine, the interpreter first: what it gives for the original is the reference."""
    reference: list[Value] | None = None
    for pair in pairs:
        expected = pair.original.run(case.feeds)
        reference = expected.outputs if reference is None else reference
        if not tally.add(pair, case, expected, reference):
            return


def _arrays(feeds: Mapping[str, Any]) -> Feeds:
    """Numbers as arrays, which ONNX Runtime wants; sequences and absent optionals as they are."""
    return {
        name: value if value is None or isinstance(value, list | tuple) else np.asarray(value)
        for name, value in feeds.items()
    }


def _require_same_ports(original: ir.Model, model: ir.Model) -> None:
    for kind in ("inputs", "outputs"):
        before, after = ([value.name for value in getattr(each.graph, kind)] for each in (original, model))
        if before != after:
            raise LoopliftError(f"the models have different {kind}: {before} and {after}; they can't be compared")

"""Rows in machine code: the same bits as by numpy, and only where numba is there and keeps to IEEE 754."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from looplift.runtime.ops import all_ops, compiled
from looplift.runtime.ops.compiled import TYPES, WORTH, add_rows, multiply_and_add_rows, run_compiled

from .webgpu_cases import random_bits, same_bits, similar, tiny

TIME, COLUMNS = 1100, 60
"""More elements than `WORTH`."""


@pytest.fixture
def fresh():
    """Forgets what is built, before and after."""
    compiled._builds.cache_clear()
    yield
    compiled._builds.cache_clear()


def both_ways(op: str, inputs: list, attributes: dict, monkeypatch) -> list[list]:
    """The outputs of an op's kernel, compiled and by numpy alone."""
    kernel = all_ops()[op].numpy
    results = [kernel(inputs, attributes, (True, True))]
    with monkeypatch.context() as without:
        without.setattr(compiled, "WORTH", 1 << 62)
        results.append(kernel(inputs, attributes, (True, True)))
    return results


def assert_same(results: list[list]) -> None:
    fast, plain = results
    assert all(same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(fast, plain, strict=True))


@pytest.mark.parametrize("make", [random_bits, similar, tiny], ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", sorted(TYPES, key=str), ids=str)
def test_every_type_and_kind_of_number(dtype, make, monkeypatch):
    random = np.random.default_rng(1)
    state = make(random, dtype, (COLUMNS,))
    series = [make(random, dtype, (TIME, COLUMNS)) for _ in range(2)]
    for previous in (0, 1):
        flags = {"emit_previous": previous}
        assert_same(both_ways("AddStep", [np.array(TIME), None, state, series[0][0]], flags, monkeypatch))
        assert_same(both_ways("PrefixSum", [state, series[0]], flags, monkeypatch))
        assert_same(both_ways("LinearRecurrence", [state, *series], flags, monkeypatch))


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("element", [(4, 15), (15,), (4, 1), (1, 1), ()])
@pytest.mark.parametrize("invariant", ["a_invariant", "b_invariant", None])
def test_every_layout_of_the_series(element, reverse, invariant, monkeypatch):
    """Rows that run backwards, elements that broadcast to the state, factors or terms that stay the same."""
    random, dtype = np.random.default_rng(2), np.dtype("float32")
    state = similar(random, dtype, (4, 15))
    a, b = (
        similar(random, dtype, element if invariant == flag else (TIME, *element))
        for flag in ("a_invariant", "b_invariant")
    )
    flags = {"reverse": reverse, **({invariant: 1} if invariant else {})}
    assert_same(both_ways("LinearRecurrence", [state, np.tanh(a), b], flags, monkeypatch))
    if invariant is None:
        assert_same(both_ways("PrefixSum", [state, b], {"reverse": reverse}, monkeypatch))


def test_it_is_used_where_it_is_worth_while():
    rows = np.empty((WORTH // 8, 8), np.float32)
    assert run_compiled(add_rows, rows, np.zeros(8, np.float32), np.ones((1, 8), np.float32))
    assert same_bits(rows[:, 3], np.arange(1, WORTH // 8 + 1, dtype=np.float32))
    assert not run_compiled(add_rows, rows[:-1], np.zeros(8, np.float32), np.ones((1, 8), np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_that_numba_lacks_are_left_to_numpy(dtype):
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    rows = np.empty((TIME, COLUMNS), kind)
    assert not run_compiled(add_rows, rows, rows[0], rows[:1])


def test_without_numba_rows_are_left_to_numpy(fresh, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = np.empty((TIME, COLUMNS), np.float32)
    assert not run_compiled(add_rows, rows, rows[0], rows[:1])


def test_a_numba_that_can_not_be_imported_is_said(fresh, monkeypatch, tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs another NumPy')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    rows = np.empty((TIME, COLUMNS), np.float32)
    with pytest.warns(RuntimeWarning, match="rows are computed by numpy: Numba needs another NumPy"):
        assert not run_compiled(add_rows, rows, rows[0], rows[:1])


def fused(rows, state, factors, terms):
    """As a build would that fuses products and sums (in twice the precision, rounded once)."""
    wide = np.float64 if rows.dtype == np.float32 else np.longdouble
    for time in range(len(rows)):
        state = (factors[time].astype(wide) * state + terms[time]).astype(rows.dtype)
        rows[time] = state


def flushed(rows, state, factors, terms):
    """As a build would that flushes subnormal numbers."""
    multiply_and_add_rows(rows, state, factors, terms)
    rows[np.abs(rows) < np.finfo(rows.dtype).tiny] = 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("wrong", "right"), [(fused, False), (flushed, False), (multiply_and_add_rows, True)])
def test_a_build_that_rounds_otherwise_is_not_used(dtype, wrong, right):
    builds = {add_rows: add_rows, multiply_and_add_rows: wrong}
    assert compiled._is_exact(builds, dtype) == right

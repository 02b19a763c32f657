"""What `verify` finds, whatever the seed: a table of models with one mistake each."""

import pytest
from planted import MISTAKES, found

OFTEN_MISSED = [
    "iteration 301",
    "5 trips",
    "N = 5",
    "N from 64",
    "N from 1024",
    "x = 12345",
    "1000 < |x| < 2000",
    "negative indices",
    "NaN in a function's loop",
    "a limit that is NaN",
    "9 rows of unnamed dims",
]


@pytest.mark.parametrize("name", OFTEN_MISSED)
def test_what_is_missed_most_easily_is_found(name: str) -> None:
    assert all(found(name, seed) for seed in (0, 12))


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_found_with_every_seed(name: str) -> None:
    assert [seed for seed in range(20) if not found(name, seed)] == []

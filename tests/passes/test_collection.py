"""The garbage collector's threshold while a model is optimized, and afterwards."""

from __future__ import annotations

import gc

import pytest

from looplift.passes import collection


@pytest.mark.parametrize(("before", "inside"), [(700, collection.OBJECTS), (10**6, 10**6), (0, 0)])
def test_the_threshold_is_raised_and_set_back(before: int, inside: int) -> None:
    found = gc.get_threshold()
    gc.set_threshold(before, *found[1:])
    try:
        with collection.seldom():
            assert gc.get_threshold()[0] == inside
            with collection.seldom():  # as of another thread
                assert gc.get_threshold()[0] == inside
            assert gc.get_threshold()[0] == inside
        assert gc.get_threshold() == (before, *found[1:])
    finally:
        gc.set_threshold(*found)


def test_it_is_set_back_after_an_error() -> None:
    found = gc.get_threshold()
    with pytest.raises(KeyError), collection.seldom():
        raise KeyError
    assert gc.get_threshold() == found

"""What a session hands out is the caller's alone, and copied only where it must be."""

import numpy as np
import pytest
from sessions import model

from looplift.runtime import Session
from looplift.runtime.ownership import handed_out


def whole() -> np.ndarray:
    return np.arange(24, dtype=np.float32).reshape(6, 4)


def in_one(array: np.ndarray, other: np.ndarray) -> bool:
    return np.may_share_memory(array, other)


def test_a_view_that_is_most_of_its_memory_is_handed_out_as_it_is():
    owner = whole()
    where = owner.ctypes.data
    results = [owner[1:]]
    del owner
    (got,) = handed_out(results, [])
    assert got.ctypes.data == where + 16
    assert got.flags.writeable
    got += 1


@pytest.mark.parametrize("why", ["small", "held", "view held", "read-only", "argument", "not contiguous"])
def test_a_view_is_copied_where_it_must_be(why):
    owner = whole()
    view = owner[5:] if why == "small" else owner[:, 1:] if why == "not contiguous" else owner[1:]
    arguments, held = [], None
    if why == "read-only":
        view.flags.writeable = owner.flags.writeable = False
    elif why == "argument":
        arguments = [owner[2:]]
    elif why == "held":
        held = owner
    elif why == "view held":
        held = owner[2:3]
    where = owner.ctypes.data
    results, expected = [view], view.copy()
    del owner, view
    (got,) = handed_out(results, arguments)
    assert not where <= got.ctypes.data < where + 96
    assert got.flags.writeable
    assert got.flags.c_contiguous
    assert (got == expected).all()
    assert held is None or not in_one(got, held)


def test_of_results_in_one_memory_the_largest_stays():
    owner = whole()
    where = owner.ctypes.data
    results = [owner[-1], owner[1:], owner[1:], [owner[:2]]]
    del owner
    last, rows, again, (first,) = handed_out(results, [])
    assert rows.ctypes.data == where + 16
    arrays = [last, rows, again, first]
    assert not any(in_one(one, other) for k, one in enumerate(arrays) for other in arrays[k + 1 :])


STEPS = """g (int64 M, float[4] v, float[4] s) => (float[4] y, float[k,4] t) {
    y, t = Loop <body = b (int64 i, bool c, float[4] p) => (bool d, float[4] q, float[4] r) {
        d = Identity(c) q = Add(p, s) r = Identity(q) }> (M, "", v)
}"""


def test_two_runs_of_a_session_give_different_memory():
    session = Session(model(STEPS), "numpy")
    feeds = {"M": np.array(5), "v": np.ones(4, np.float32), "s": np.ones(4, np.float32)}
    one, other = session.run(None, feeds), session.run(None, feeds)
    expected = [array.copy() for array in other]
    for array in one:
        array[:] = -1
    assert all((a == b).all() for a, b in zip(other, expected, strict=True))
    assert all((a == b).all() for a, b in zip(session.run(None, feeds), expected, strict=True))

"""How long names and lists of like sentences are put for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import looplift
from looplift.passes.report import Finding
from looplift.report import facts, numbered, outcome
from looplift.wording import join_like, shortener

LONG = "sequential_2_1_gru_1_while_gru_cell_1_split_readvariableop_resource_0:0"


def test_long_names_keep_both_ends_and_short_ones_all() -> None:
    short = shortener([f"{LONG}: add-step by 'step'"])
    assert short(f"{LONG}: add-step by 'step'") == "sequential…resource_0:0: add-step by 'step'"


def test_names_stay_different() -> None:
    other = LONG.replace("split", "cast")
    short = shortener([f"'{LONG}' and '{other}'"])
    first, second = short(LONG), short(other)
    assert first != second
    assert short(f"'{other}', '{LONG}'") == f"'{second}', '{first}'"


@given(st.lists(st.text("ab_/", min_size=1, max_size=60), unique=True), st.integers(12, 40))
def test_any_names_stay_different(names, longest) -> None:
    short = shortener(names, longest)
    assert len({short(name) for name in names}) == len(names)
    assert all(short(name) == name for name in names if len(name) <= longest)


@pytest.mark.parametrize(
    ("sentences", "joined"),
    [
        (["read 'a' from outside", "hoisted Cast", "read 'b' from outside"],
         ["read 'a' from outside (so too 'b')", "hoisted Cast"]),
        (["'a' became 'b'", "'a' became 'c'"], ["'a' became 'b'", "'a' became 'c'"]),
        ([], []),
    ],
)  # fmt: skip
def test_like_sentences_are_joined(sentences, joined) -> None:
    assert join_like(sentences) == joined


def test_carries_are_numbered_and_the_invariant_ones_gathered() -> None:
    carries = ("a: never changes", "b: add-step by 's'", "c: never changes")
    assert numbered(carries) == ["2. b: add-step by 's'", "1, 3. a, c: never change"]


def test_outcomes() -> None:
    def finding(**more) -> Finding:
        return Finding("n", "Loop", "/", **more)

    assert outcome(finding(lifted=True, recurrence="v: add-step by 's'")) == "lifted"
    assert outcome(finding(lifted=True)) == "vectorised"
    assert outcome(finding(lifted=False, actions=("hoisted Cast",))) == "left, simplified"
    assert outcome(finding(lifted=False)) == "left"


def test_the_text_shortens_names_and_json_does_not() -> None:
    finding = Finding("n", "Loop", "/", False, reason=f"the exit test '{LONG}' is computed in the body",
                      trip_count="not known before the loop runs")  # fmt: skip
    report = looplift.Report((finding,))
    assert str(report).splitlines()[1:] == [
        "  Loop n: left",
        "    reason: the exit test 'sequential…resource_0:0' is computed in the body",
        "    trip count: not known before the loop runs",
    ]
    assert LONG in report.to_json()


def test_a_carry_is_described_by_the_recurrence_that_was_found_for_it() -> None:
    finding = Finding("n", "Loop", "/", True, "a: add-step by 's'; other: prefix sum of 'x'", trip_count="3 iterations",
                      carries=("a: prefix sum of 'y'", "b: never changes"))  # fmt: skip
    told = dict(facts(finding))
    assert told["carries"] == ["1. a: add-step by 's'", "2. b: never changes"]
    assert told["computes"] == ["other: prefix sum of 'x'"]

"""The list of what an engine does otherwise."""

import ast
from pathlib import Path

import pytest

from looplift.patterns.engines.onnxruntime.kernels import (
    BY_RESULT,
    FUNCTIONS,
    IN_HALF,
    INDIFFERENT,
    LAID_OUT,
    PACKED,
    SUMS,
)
from looplift.patterns.engines.onnxruntime.quirks import QUIRKS, Quirk
from looplift.patterns.engines.onnxruntime.ties import PARTNERS, THROUGH
from looplift.patterns.graph.operators import NO_TRAIT, TRAITS

ROOT = Path(__file__).resolve().parents[3]


def label(quirk: Quirk) -> str:
    return quirk.name


@pytest.mark.parametrize("quirk", QUIRKS, ids=label)
def test_each_quirk_names_a_test_that_there_is(quirk):
    file, _, name = quirk.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name.startswith("test_")
    assert all((quirk.what, quirk.see, quirk.versions))


def test_each_quirk_stands_once():
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS)


def test_the_tables_name_operators():
    """Of the standard, or of the engine's own."""
    named = PACKED | SUMS | FUNCTIONS | IN_HALF | INDIFFERENT | BY_RESULT | THROUGH | {*LAID_OUT, *PARTNERS}
    named = named.union(*PARTNERS.values())
    assert named <= NO_TRAIT.union(*TRAITS.values())
